// Audio as it streams: plays chunks without a buffer, remembers them, and knows when speech began.

export const SAMPLE_RATE_HZ = 24000;
const AUDIBLE = 10 ** (-40 / 20); // -40 dBFS, over windows of 10 ms.
const WINDOW = SAMPLE_RATE_HZ / 100;
const HEARD_GAP_MS = 20; // Shorter ones pass unnoticed.

/** Index of the first audible sample, by windows of 10 ms; -1 if there is none. */
export function onsetOf(samples) {
  for (let start = 0; start + WINDOW <= samples.length; start += WINDOW) {
    let sum = 0;
    for (let i = start; i < start + WINDOW; i++) sum += samples[i] * samples[i];
    if (Math.sqrt(sum / WINDOW) > AUDIBLE) return start;
  }
  return -1;
}

/** A WAV file of all `pieces` (Int16Array), as a Blob. */
export function wavOf(pieces) {
  const bytes = pieces.reduce((sum, piece) => sum + piece.byteLength, 0);
  const header = new DataView(new ArrayBuffer(44));
  const word = (at, text) => [...text].forEach((c, i) => header.setUint8(at + i, c.charCodeAt(0)));
  word(0, "RIFF");
  header.setUint32(4, 36 + bytes, true);
  word(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, SAMPLE_RATE_HZ, true);
  header.setUint32(28, SAMPLE_RATE_HZ * 2, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  word(36, "data");
  header.setUint32(40, bytes, true);
  return new Blob([header, ...pieces], { type: "audio/wav" });
}

/** One utterance: `push` what arrives, `stop` to be silent at once. */
export class Player {
  /** `context` plays; `askedAt` is when speech was asked for, in ms of performance.now(). */
  constructor(context, askedAt) {
    this.context = context;
    this.askedAt = askedAt;
    this.pieces = []; // Int16Array
    this.samples = new Float32Array(0); // All audio so far; grows by doubling.
    this.length = 0;
    this.ttfaMs = null;
    this.ttfsMs = null;
    this.gaps = 0;
    this.dryAt = null; // When a player without a buffer would run dry, ms of performance.now().
    this.startsAt = null; // Of the first chunk, seconds of the context.
    this.endsAt = 0;
    this.sources = new Set();
  }

  get durationS() {
    return this.length / SAMPLE_RATE_HZ;
  }

  /** Seconds of the audio that have been heard. Gaps count as heard: good enough for a cursor. */
  get heardS() {
    if (this.startsAt === null) return 0;
    return Math.min(Math.max(0, this.context.currentTime - this.startsAt), this.durationS);
  }

  get isPlaying() {
    return this.startsAt !== null && this.context.currentTime < this.endsAt;
  }

  push(pcm) {
    const now = performance.now();
    const start = this.length;
    this.pieces.push(pcm);
    this.#remember(pcm);
    if (this.dryAt === null) this.ttfaMs = now - this.askedAt;
    else if (now > this.dryAt + HEARD_GAP_MS) this.gaps += 1;
    const playsAt = this.dryAt === null ? now : Math.max(now, this.dryAt);
    if (this.ttfsMs === null) {
      const onset = onsetOf(this.samples.subarray(0, this.length));
      if (onset >= 0) {
        const aheadMs = (Math.max(0, onset - start) / SAMPLE_RATE_HZ) * 1000;
        this.ttfsMs = playsAt + aheadMs - this.askedAt;
      }
    }
    this.dryAt = playsAt + (pcm.length / SAMPLE_RATE_HZ) * 1000;
    this.#play(start);
  }

  stop() {
    for (const source of this.sources) source.stop();
    this.sources.clear();
    this.endsAt = 0;
  }

  #remember(pcm) {
    const needed = this.length + pcm.length;
    if (needed > this.samples.length) {
      const larger = new Float32Array(Math.max(needed, 2 * this.samples.length, SAMPLE_RATE_HZ * 8));
      larger.set(this.samples.subarray(0, this.length));
      this.samples = larger;
    }
    for (let i = 0; i < pcm.length; i++) this.samples[this.length + i] = pcm[i] / 32768;
    this.length = needed;
  }

  #play(start) {
    const buffer = this.context.createBuffer(1, this.length - start, SAMPLE_RATE_HZ);
    buffer.copyToChannel(this.samples.subarray(start, this.length), 0);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    source.onended = () => this.sources.delete(source);
    // A scheduled start must not lie in the past: a chunk that comes late begins now.
    const at = Math.max(this.context.currentTime, this.endsAt);
    this.startsAt ??= at;
    source.start(at);
    this.sources.add(source);
    this.endsAt = at + buffer.duration;
  }
}
