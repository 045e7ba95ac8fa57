"""The examples of docs/clients, as they stand, with the real packages against the real server."""

from __future__ import annotations

import hashlib
import http.server
import io
import itertools
import re
import shutil
import subprocess
import sys
import threading
import time
import wave
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
import soxr
from decoded import snr_db
from lineage_run import wait_for
from speech_servers import TIMEOUT_S, metric

from resources.speech_server import SpeechServer
from server.voices import OPENAI_VOICES
from speech_assets.asr.transcriber import Transcriber, load_transcriber
from speech_assets.quality.word_errors import word_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "clients"
# The voice has one word of it wrong with temperature 0, at most two of ten seeds otherwise.
TEXT = "The salt breeze came across from the sea."
RATE_HZ = 24_000
LEAD_IN_S = 0.3  # What a stream may have more of silence, or less, by the clock.
_COME_AGAIN_S = 3
PYTHON_OF_PROTOCOL = re.findall(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "protocol.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)
PYTHON = ROOT / ".venv-clients" / "bin" / "python"


def clients_are_there() -> bool:
    """Whether the environment of Pipecat and LiveKit is whole and of this lock."""
    lock = ROOT / "requirements-clients.lock"
    mark = PYTHON.parents[1] / ".installed"
    sha256 = hashlib.sha256(lock.read_bytes()).hexdigest()
    return mark.is_file() and mark.read_text("utf-8").split()[0] == sha256


needs_clients = pytest.mark.skipif(
    not clients_are_there(),
    reason="Pipecat and LiveKit are not installed, or not of this lock: make clients-env",
)
needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None, reason="no curl on this machine (apt-get install curl)"
)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeechServer]:
    """The embedded voice, the likeliest token always: clients that send no seed hear the same."""
    table = tmp_path_factory.mktemp("presets") / "presets.toml"
    table.write_text(
        f"""
        [presets.likeliest]
        model = "{ROOT}/server/embedded/voice"
        codec = "{ROOT}/server/embedded/codec"
        cpu_dtype = "auto"
        temperature = 0.0
        max_streams = 2
        max_queue = 2
        max_model_len = 2048
        """
    )
    environment = {"OMP_NUM_THREADS": "1", "SPEECH_PRESETS": str(table)}
    with SpeechServer.running("likeliest", environment=environment) as server:
        yield server


@pytest.fixture(scope="module")
def whole(embedded: SpeechServer) -> NDArray[np.int16]:
    """The text's samples, asked for at once."""
    body = {"input": TEXT, "response_format": "pcm", "stream": False}
    answer = httpx.post(f"{embedded.url}/v1/audio/speech", json=body, timeout=TIMEOUT_S)
    return np.frombuffer(answer.raise_for_status().content, "<i2").astype(np.int16)


@pytest.fixture(scope="module")
def transcriber() -> Transcriber:
    return load_transcriber("tiny.en-package")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def samples_of(file: Path | io.BytesIO) -> NDArray[np.int16]:
    with wave.open(str(file) if isinstance(file, Path) else file, "rb") as read:
        assert (read.getnchannels(), read.getsampwidth(), read.getframerate()) == (1, 2, RATE_HZ)
        return np.frombuffer(read.readframes(read.getnframes()), "<i2").astype(np.int16)


def aligned_snr_db(heard: NDArray[np.int16], meant: NDArray[np.int16]) -> float:
    """Signal over difference where both lie on each other best: lead-ins differ by the clock."""
    size = len(heard) + len(meant)
    spectrum = np.fft.rfft(heard.astype(np.float64), size)
    likeness = np.fft.irfft(spectrum * np.conj(np.fft.rfft(meant.astype(np.float64), size)), size)
    shift = int(likeness.argmax())
    shift -= size if shift > size // 2 else 0
    assert abs(shift) < LEAD_IN_S * RATE_HZ
    later, earlier = heard[max(0, shift) :], meant[max(0, -shift) :]
    # Lead-in and tail have fades of their own: of the speech between, all but 0.2 s at each end.
    edge = RATE_HZ // 5
    count = min(len(later), len(earlier)) - edge
    return snr_db(later[edge:count], earlier[edge:count])


@pytest.mark.parametrize(
    ("example", "options", "least_snr_db"),
    [
        pytest.param("openai_streaming.py", [], 25, id="openai"),
        pytest.param("pipecat_tts.py", [], 25, id="pipecat", marks=needs_clients),
        # As it asks by itself: mp3 in events, and plain for OpenAI's first models.
        pytest.param("livekit_tts.py", [], 10, id="livekit", marks=needs_clients),
        pytest.param(
            "livekit_tts.py", ["--model", "tts-1"], 10, id="livekit-plain", marks=needs_clients
        ),
        pytest.param(
            "livekit_tts.py", ["--format", "pcm"], 25, id="livekit-pcm", marks=needs_clients
        ),
        pytest.param(
            "livekit_tts.py", ["--format", "opus"], 10, id="livekit-opus", marks=needs_clients
        ),
    ],
)
def test_an_example_gets_the_speech_and_whisper_hears_its_words(
    embedded: SpeechServer,
    whole: NDArray[np.int16],
    transcriber: Transcriber,
    tmp_path: Path,
    example: str,
    options: list[str],
    least_snr_db: float,
) -> None:
    python = sys.executable if example.startswith("openai") else PYTHON
    out = tmp_path / "out.wav"
    done = run(python, EXAMPLES / example, TEXT, out, "--url", embedded.url, *options)
    assert done.returncode == 0, done.stderr[-2_000:]
    heard = samples_of(out)
    assert abs(len(heard) - len(whole)) < LEAD_IN_S * RATE_HZ
    assert aligned_snr_db(heard, whole) > least_snr_db
    sound = soxr.resample(heard.astype(np.float32) / 32_768, RATE_HZ, 16_000)
    assert word_errors(TEXT, transcriber.transcribe(sound).text).word_errors <= 2


@needs_curl
def test_curl_gets_the_speech(
    embedded: SpeechServer, whole: NDArray[np.int16], tmp_path: Path
) -> None:
    out = tmp_path / "out.wav"
    done = run("sh", EXAMPLES / "curl.sh", TEXT, out, embedded.url)
    assert (done.returncode, done.stderr) == (0, "")
    heard = samples_of(out)
    assert len(heard) == len(whole)
    # Not of the same seed, which the codec's noise has a part of.
    assert aligned_snr_db(heard, whole) > 25


@needs_curl
@pytest.mark.parametrize("has_jq", [True, False], ids=["jq", "no jq"])
def test_curl_speaks_a_text_with_quotes_and_lines(
    embedded: SpeechServer, tmp_path: Path, has_jq: bool
) -> None:
    if has_jq and shutil.which("jq") is None:
        pytest.skip("no jq on this machine (apt-get install jq)")
    if not has_jq:
        for name in ("sh", "curl", "tr"):
            (tmp_path / name).symlink_to(str(shutil.which(name)))
    path = f"PATH={tmp_path}" if not has_jq else "TEXT=1"
    out = tmp_path / "out.wav"
    script = EXAMPLES / "curl.sh"
    done = run("env", path, "sh", script, 'He said "hi" \\ and\nleft.', out, embedded.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(samples_of(out)) > RATE_HZ // 2


@needs_curl
def test_curl_says_why_it_was_refused(embedded: SpeechServer, tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    done = run("sh", EXAMPLES / "curl.sh", "...", out, embedded.url)
    assert done.returncode != 0
    assert "nothing_to_speak" in out.read_text("utf-8")


class _FullAtFirst(http.server.BaseHTTPRequestHandler):
    """Answers 429, then 503, then with audio; when it was asked is kept in the server."""

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Counting)
        server.asked_s.append(time.monotonic())
        self.rfile.read(int(self.headers["content-length"]))
        status = (429, 503, 200)[len(server.asked_s) - 1]
        body = b'{"error": {}}' if status != 200 else b"audio"
        self.send_response(status)
        if status != 200:
            self.send_header("Retry-After", str(_COME_AGAIN_S))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Counting(http.server.HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _FullAtFirst)
        self.asked_s: list[float] = []


@needs_curl
def test_curl_comes_again_when_it_was_told_to(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    with _Counting() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = run(
                "sh", EXAMPLES / "curl.sh", TEXT, out, f"http://127.0.0.1:{server.server_port}"
            )
        finally:
            server.shutdown()
            thread.join(TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    # Of the answers that were no speech nothing is left.
    assert out.read_bytes() == b"audio"
    # By itself it would wait for 1 s, then for 2.
    waits = [later - earlier for earlier, later in itertools.pairwise(server.asked_s)]
    assert len(waits) == 2
    assert min(waits) > _COME_AGAIN_S - 0.5


@pytest.mark.parametrize("script", PYTHON_OF_PROTOCOL, ids=["openai", "websockets"])
def test_the_python_of_the_protocols_page_gets_speech(embedded: SpeechServer, script: str) -> None:
    assert "127.0.0.1:8000" in script
    spoken = metric(embedded, "speech_requests_total", outcome="stop")
    samples = metric(embedded, "speech_audio_samples_total")
    done = run(
        sys.executable, "-c", script.replace("127.0.0.1:8000", embedded.url.removeprefix("http://"))
    )
    assert (done.returncode, done.stderr) == (0, "")
    wait_for(
        lambda: metric(embedded, "speech_requests_total", outcome="stop") == spoken + 1, "an end"
    )
    assert metric(embedded, "speech_audio_samples_total") - samples > RATE_HZ // 2


@needs_clients
@pytest.mark.parametrize("example", ["pipecat_tts.py", "livekit_tts.py"])
def test_an_agent_is_told_why_a_text_is_refused(
    embedded: SpeechServer, tmp_path: Path, example: str
) -> None:
    done = run(PYTHON, EXAMPLES / example, "...", tmp_path / "out.wav", "--url", embedded.url)
    assert done.returncode != 0
    assert "nothing in the text '...' can be spoken" in done.stderr


@needs_clients
def test_pipecat_knows_the_names_that_the_server_takes() -> None:
    script = "from pipecat.services.openai.tts import VALID_VOICES as v; print(*v)"
    done = run(PYTHON, "-c", script)
    assert set(done.stdout.split()) <= set(OPENAI_VOICES)


def test_the_page_of_clients_names_every_example() -> None:
    page = (ROOT / "docs" / "clients.md").read_text("utf-8")
    named = set(re.findall(r"\]\(clients/([\w.]+)\)", page))
    assert named == {file.name for file in EXAMPLES.iterdir() if file.is_file()}
