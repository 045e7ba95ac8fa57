// The page: one WebSocket, one utterance at a time, heard as it streams.

import { Player, SAMPLE_RATE_HZ, wavOf } from "./player.js";

const $ = (id) => document.getElementById(id);
const RETRY_MS = 2000;
const SHORTEST_VIEW_S = 4;
const TOKEN = "token"; // Kept for this tab alone.

let context = null; // AudioContext; browsers allow it only after a click.
let socket = null;
let player = null;
let turns = 0; // Utterances asked for on this socket; the last is the one that is heard.
let arriving = -1; // Index of the utterance whose audio comes; a cancelled one may still end.
let timings = null; // The server's, of the utterance that is spoken.
let drawn = false;
let asked = null; // The utterance that was asked for last, as an HTTP body.

// ---- state -------------------------------------------------------------------------------------

function show(state, words) {
  document.body.dataset.state = state;
  $("status").textContent = words ?? state;
  $("speak").disabled = state === "loading" || state === "speaking";
  $("stop").disabled = state !== "speaking" && !player?.isPlaying;
}

function complain(message) {
  $("alert").textContent = message;
  $("alert").hidden = !message;
}

class TokenNeeded extends Error {}

function authorization() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function fetched(path) {
  const answer = await fetch(path, { headers: authorization() });
  if (answer.status === 401) throw new TokenNeeded();
  return answer.json();
}

function askForToken() {
  show("loading", "a token is needed");
  complain(sessionStorage.getItem(TOKEN) ? "The server does not know this token." : "");
  $("token-field").hidden = false;
  $("token").focus();
}

async function load() {
  try {
    const ready = await (await fetch("/ready")).json();
    if (!ready.ready) {
      show("loading", ready.reason);
      setTimeout(load, RETRY_MS);
      return;
    }
    const [models, voices, config] = await Promise.all(
      ["/v1/models", "/v1/audio/voices", "/config"].map(fetched),
    );
    $("model").textContent = models.data[0].id;
    fillVoices(voices.data);
    fillFormats(config.formats);
    await connected();
    complain("");
    show("ready");
  } catch (error) {
    if (error instanceof TokenNeeded) {
      askForToken();
      return;
    }
    show("loading", "no connection");
    complain("The server cannot be reached. This page goes on trying; is the server running?");
    setTimeout(load, RETRY_MS);
  }
}

function fillVoices(voices) {
  const chosen = $("voice").value;
  const group = (label, members, text) => {
    const element = document.createElement("optgroup");
    element.label = label;
    for (const voice of members) element.append(new Option(text(voice), voice.id));
    return element;
  };
  const own = voices.filter((voice) => voice.alias_of === null);
  const aliases = voices.filter((voice) => voice.alias_of !== null);
  $("voice").replaceChildren(
    group("Voices", own, (voice) => voice.name),
    group("OpenAI's names", aliases, (voice) => `${voice.name} (${voice.alias_of})`),
  );
  if (chosen) $("voice").value = chosen;
}

function fillFormats(formats) {
  const chosen = $("format").value;
  $("format").replaceChildren(...formats.map((name) => new Option(name)));
  $("format").value = chosen;
}

// ---- socket ------------------------------------------------------------------------------------

function connected() {
  if (socket?.readyState === WebSocket.OPEN) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const token = sessionStorage.getItem(TOKEN);
    const url = `${scheme}://${location.host}/v1/audio/speech/stream`;
    // Pages cannot set a socket's headers, but what protocols it offers.
    socket = token ? new WebSocket(url, ["speech", `bearer.${token}`]) : new WebSocket(url);
    socket.binaryType = "arraybuffer";
    turns = 0;
    socket.onopen = () => {
      // A socket must be configured within seconds; the utterance configures it again.
      socket.send(JSON.stringify({ type: "session.config" }));
      resolve();
    };
    socket.onmessage = (event) => receive(event.data);
    socket.onclose = () => {
      reject(new Error("closed"));
      if (document.body.dataset.state !== "speaking") return;
      complain("The connection was lost while speaking. What was heard is not complete; speak again.");
      show("ready");
    };
  });
}

function receive(data) {
  const isSpeaking = document.body.dataset.state === "speaking";
  if (data instanceof ArrayBuffer) {
    if (isSpeaking && arriving === turns - 1) {
      player.push(new Int16Array(data));
      drawn = false;
      showHere();
    }
    return;
  }
  const message = JSON.parse(data);
  if (message.type === "error") {
    // A socket that was idle for long is closed with an error; the next utterance opens another.
    if (message.code !== "timeout") complain(message.message);
    return;
  }
  if (message.type === "audio.start") arriving = message.utterance_index;
  if (!isSpeaking || message.utterance_index !== turns - 1) return;
  if (message.type === "audio.done" && message.timings) {
    timings ??= { ...message.timings, generatedMs: 0, samples: 0 };
    timings.generatedMs += message.timings.total_ms;
    timings.samples += message.samples;
    showServer();
  } else if (message.type === "session.done") {
    finish();
  }
}

// ---- speaking ----------------------------------------------------------------------------------

async function speak() {
  const text = $("text").value.trim();
  if (!text) {
    complain("There is no text to speak. Type some above.");
    $("text").focus();
    return;
  }
  const askedAt = performance.now();
  complain("");
  player?.stop();
  context ??= new AudioContext({ sampleRate: SAMPLE_RATE_HZ });
  context.resume();
  player = new Player(context, askedAt);
  timings = null;
  clearFigures();
  show("speaking", "speaking");
  try {
    await connected();
  } catch {
    show("ready", "no connection");
    complain("The server cannot be reached. Is it running? Then speak again.");
    return;
  }
  const options = {
    voice: $("voice").value,
    lead_in: $("trim").checked ? "trim" : "keep",
    // One that is drawn here can be sent again, for a file.
    seed: $("seed").value ? Number($("seed").value) : Math.floor(Math.random() * 2 ** 31),
  };
  if ($("temperature").value) options.temperature = Number($("temperature").value);
  if ($("speed").value) options.speed = Number($("speed").value);
  asked = { input: text, stream: false, ...options };
  const config = {
    type: "session.config",
    response_format: "pcm",
    stream_audio: true,
    split_granularity: "sentence",
    ...options,
  };
  for (const message of [config, { type: "input.text", text }, { type: "input.done" }]) {
    socket.send(JSON.stringify(message));
  }
  turns += 1;
}

function stop() {
  if (document.body.dataset.state === "speaking") {
    // Before the answer comes, so that nothing more is played.
    finish();
    if (socket?.readyState === WebSocket.OPEN) socket.send('{"type": "session.cancel"}');
  }
  player?.stop();
  show("ready");
}

function finish() {
  show("ready");
  if (!player.length) return;
  if ($("save").href) URL.revokeObjectURL($("save").href);
  $("save").href = URL.createObjectURL(wavOf(player.pieces));
  $("save").hidden = false;
  $("waveform").setAttribute("aria-label", `Waveform of ${seconds(player.durationS)} of speech`);
}

// ---- saving ------------------------------------------------------------------------------------

function nameSave() {
  const format = $("format").value;
  $("save").textContent = `Save as ${format.toUpperCase()}`;
  $("save").download = `speech.${format}`;
}

/** A link's click: a WAV is there already, another format the server makes. */
async function save(event) {
  const format = $("format").value;
  if (format === "wav") return;
  event.preventDefault();
  if ($("save").dataset.making) return;
  $("save").dataset.making = format;
  $("save").textContent = `making ${format.toUpperCase()} …`;
  complain("");
  try {
    const answer = await fetch("/v1/audio/speech", {
      method: "POST",
      headers: { "content-type": "application/json", ...authorization() },
      body: JSON.stringify({ ...asked, response_format: format }),
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `speech.${format}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), RETRY_MS);
  } catch (error) {
    complain(`The file was not made: ${error.message}`);
  }
  delete $("save").dataset.making;
  nameSave();
}

// ---- figures and waveform ----------------------------------------------------------------------

const milliseconds = (ms) => (ms === null ? "–" : `${Math.round(ms)} ms`);
const seconds = (s) => `${s.toFixed(2)} s`;

function clearFigures() {
  for (const id of ["ttfa", "ttfs", "rtf", "duration"]) $(id).textContent = "–";
  for (const id of ["ttfa-server", "ttfs-server", "gaps"]) $(id).textContent = "";
  $("save").hidden = true;
  $("waveform").setAttribute("aria-label", "Waveform: nothing spoken yet");
  drawn = false;
}

function showHere() {
  $("ttfa").textContent = milliseconds(player.ttfaMs);
  $("ttfs").textContent = milliseconds(player.ttfsMs);
  $("duration").textContent = seconds(player.durationS);
  $("gaps").textContent = player.gaps ? `${player.gaps} gaps` : "no gaps";
}

function showServer() {
  $("ttfa-server").textContent = `server: ${milliseconds(timings.ttfa_ms)}`;
  $("ttfs-server").textContent = `server: ${milliseconds(timings.ttfs_ms)}`;
  if (timings.samples) {
    const audioMs = (timings.samples / SAMPLE_RATE_HZ) * 1000;
    $("rtf").textContent = (timings.generatedMs / audioMs).toFixed(2);
  }
}

function draw() {
  requestAnimationFrame(draw);
  const moving = player?.isPlaying ?? false;
  $("stop").disabled = document.body.dataset.state !== "speaking" && !moving;
  if (drawn) return;
  drawn = !moving;
  const canvas = $("waveform");
  const style = getComputedStyle(document.documentElement);
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  pen.fillStyle = style.getPropertyValue("--line");
  pen.fillRect(0, height / 2, width, 1);
  if (!player?.length) return;
  const view = Math.max(player.length, SHORTEST_VIEW_S * SAMPLE_RATE_HZ);
  const heard = player.heardS * SAMPLE_RATE_HZ;
  for (let x = 0; x < width; x++) {
    const from = Math.floor((x * view) / width);
    const to = Math.min(Math.floor(((x + 1) * view) / width), player.length);
    if (from >= player.length) break;
    let peak = 0;
    for (let i = from; i < to; i++) peak = Math.max(peak, Math.abs(player.samples[i]));
    pen.fillStyle = style.getPropertyValue(from < heard ? "--wave" : "--ahead");
    const half = Math.max(ratio, (peak * height) / 2);
    pen.fillRect(x, height / 2 - half, 1, 2 * half);
  }
}

// ---- wiring ------------------------------------------------------------------------------------

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  speak();
});
$("stop").addEventListener("click", stop);
$("token").addEventListener("change", () => {
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("token-field").hidden = true;
  load();
});
$("save").addEventListener("click", save);
$("format").addEventListener("change", nameSave);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !$("speak").disabled) {
    event.preventDefault();
    $("form").requestSubmit();
  } else if (event.key === "Escape" && !$("stop").disabled) {
    stop();
  }
});
const redraw = () => (drawn = false);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.addEventListener("resize", redraw);
draw();
load();
