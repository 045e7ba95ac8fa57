"""One clip asked of a server, and what it cost there: engine steps, codec calls, time."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from server.wav import BYTES_PER_SAMPLE, HEADER_BYTES
from speech_assets.ab.errors import AskError
from speech_assets.bench.metrics import Metrics, changes
from speech_assets.quality.samples import whole_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resources.speech_server import SpeechServer
    from speech_assets.ab.plan import Ask

TIMEOUT_S = 600.0
_SETTLED_WITHIN_S = 10.0
_GONE_WITHIN_S = 5.0  # From a lost connection to the end of the process that has lost it.
_REQUESTS = "speech_requests_total"
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered, and what it counted meanwhile.

    Attributes:
        audio: a WAV file; empty where the model gave no audio.
        finish_reason: as the server says it; "no_audio" where there is none.
        frames: of seven tokens, that the model made; more than were sent, where ends are trimmed.
        wall_ms: from the request to the last byte of the answer, at the client.
        first_audio_ms: from the request to the first audio in the server. The whole answer waits
            for its end all the same, and it is no TTFA of a stream.
        lm_ms, lm_steps: time in steps of the language model, and how many there were.
        decode_ms, decode_calls: the same of the codec. On a GPU the steps go on meanwhile.
    """

    audio: bytes
    finish_reason: str
    frames: int
    wall_ms: float
    first_audio_ms: float | None
    lm_ms: float
    lm_steps: int
    decode_ms: float
    decode_calls: int

    @property
    def samples(self) -> int:
        """Of the audio, at 24 kHz."""
        return max(0, len(self.audio) - HEADER_BYTES) // BYTES_PER_SAMPLE


def speak(client: httpx.Client, server: SpeechServer, ask: Ask, where: str) -> Answer:
    """Have the clip spoken, whole and with its lead-in; `where` it is, for errors.

    Raises:
        AskError: the server refused it, or is gone, or somebody else asks it, too.
    """
    try:
        return _speak(client, ask, where)
    except httpx.HTTPError as error:
        # A server that has died is known by its process, whose end may come after the socket's.
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(_GONE_WITHIN_S)
        raise AskError(
            f"{where}: the server did not answer ({type(error).__name__}: {error}); run it again",
            retryable=True,
        ) from error


def _speak(client: httpx.Client, ask: Ask, where: str) -> Answer:
    before = _metrics(client, where)
    body = whole_answer(ask.sentence.text, ask.seed)
    began_s = time.monotonic()
    response = client.post("/v1/audio/speech", json=body)
    wall_ms = (time.monotonic() - began_s) * _MS
    spoke = response.status_code == 200
    if not spoke and _code(response) != "no_audio":
        again = response.status_code >= 500 or response.status_code == 429
        remedy = "run it again" if again else "leave that sentence out, or let both arms take it"
        raise AskError(
            f"{where}: the server answered {response.status_code}: {response.text}; {remedy}",
            retryable=again,
        )
    grown = _settled(client, before, where)
    is_first_known = grown.get("speech_ttfa_seconds_count", 0.0) == 1
    return Answer(
        audio=response.content if spoke else b"",
        finish_reason=response.headers["x-finish-reason"] if spoke else "no_audio",
        frames=int(response.headers["x-speech-frames"]) if spoke else 0,
        wall_ms=wall_ms,
        first_audio_ms=grown["speech_ttfa_seconds_sum"] * _MS if is_first_known else None,
        lm_ms=grown["speech_engine_step_seconds_sum"] * _MS,
        lm_steps=int(grown["speech_engine_step_seconds_count"]),
        decode_ms=grown["speech_decode_seconds_sum"] * _MS,
        decode_calls=int(grown["speech_decode_seconds_count"]),
    )


def _settled(client: httpx.Client, before: Metrics, where: str) -> Mapping[str, float]:
    """What the server's counts grew by, once it has counted the request as ended.

    It does so after the last byte is sent, so that a client may look too early.
    """
    deadline_s = time.monotonic() + _SETTLED_WITHIN_S
    while time.monotonic() < deadline_s:
        grown = changes(before, _metrics(client, where)) or {}
        ended = sum(n for name, n in grown.items() if name.startswith(_REQUESTS))
        if ended == 1:
            return grown
        if ended > 1:
            raise AskError(
                f"{where}: the server had {ended:.0f} requests at once; leave it to the comparison"
            )
    raise AskError(f"{where}: the server did not count the request as ended", retryable=True)


def _metrics(client: httpx.Client, where: str) -> Metrics:
    try:
        return Metrics.parse(client.get("/metrics").raise_for_status().text)
    except ValueError as error:
        raise AskError(f"{where}: /metrics: {error}") from error


def _code(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
