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
from speech_assets.ab.waiting import CoreTime, core_times, passed
from speech_assets.bench.metrics import Metrics, changes
from speech_assets.quality.samples import whole_answer

if TYPE_CHECKING:
    from collections.abc import Generator

    from resources.speech_server import SpeechServer
    from speech_assets.ab.plan import Ask

TIMEOUT_S = 600.0
_SETTLED_WITHIN_S = 10.0
_GONE_WITHIN_S = 5.0  # From a lost connection to the end of the process that has lost it.
_QUIET_WITHIN_S = 1.0
_RUNNING = ("speech_active_streams", "speech_queue_depth")
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
        first_audio_ms: from the request to the first audio that the model made, in the server. The
            whole answer waits for its end all the same, and it is no TTFA of a stream.
        lm_ms, lm_steps: time in steps of the language model, and how many there were.
        decode_ms, decode_calls: the same of the codec. On a GPU the steps go on meanwhile.
    cores: of the server's threads meanwhile; None where the system does not tell.
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
    cores: CoreTime | None = None

    @property
    def samples(self) -> int:
        """Of the audio, at 24 kHz."""
        return max(0, len(self.audio) - HEADER_BYTES) // BYTES_PER_SAMPLE


@dataclass(slots=True)
class Asker:
    """A server of an arm, asked clip after clip, and by nobody else from the first to the last.

    Somebody's request takes time from both arms, whichever server it asks: it is seen while it
    runs, and by the count of requests after it has ended, also between two clips.
    """

    client: httpx.Client
    server: SpeechServer
    _ended: float | None = None
    """Requests that had ended when the last clip had; None before the first."""

    def speak(self, ask: Ask, where: str) -> Answer:
        """Have the clip spoken, whole and with its lead-in; `where` it is, for errors.

        Raises:
            AskError: the server refused it, or is gone, or somebody else asks it, too.
        """
        with self._connected(where):
            return self._speak(ask, where)

    def check_alone(self, where: str) -> None:
        """Nothing, if no other request was made since the last clip, nor runs now.

        Raises:
            AskError: there was one, or the server is gone.
        """
        with self._connected(where):
            self._ended = _ended(self._alone(where))

    @contextlib.contextmanager
    def _connected(self, where: str) -> Generator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            # A server that has died is known by its process, whose end may come after the socket's.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.process.wait(_GONE_WITHIN_S)
            raise AskError(
                f"{where}: the server did not answer ({type(error).__name__}: {error}); run it "
                "again",
                retryable=True,
            ) from error

    def _speak(self, ask: Ask, where: str) -> Answer:
        before = self._alone(where)
        body = whole_answer(ask.sentence.text, ask.seed)
        threads = core_times(self.server.process.pid)
        began_s = time.monotonic()
        response = self.client.post("/v1/audio/speech", json=body)
        wall_ms = (time.monotonic() - began_s) * _MS
        cores = passed(threads, core_times(self.server.process.pid))
        has_audio = response.status_code == 200
        if not has_audio and _code(response) != "no_audio":
            again = response.status_code >= 500 or response.status_code == 429
            remedy = (
                "run it again" if again else "leave that sentence out, or let both arms take it"
            )
            raise AskError(
                f"{where}: the server answered {response.status_code}: {response.text}; {remedy}",
                retryable=again,
            )
        after = self._settled(before, where)
        self._ended = _ended(after)
        grown = changes(before, after) or {}
        is_first_known = grown.get("speech_first_made_seconds_count", 0.0) == 1
        return Answer(
            audio=response.content if has_audio else b"",
            finish_reason=response.headers["x-finish-reason"] if has_audio else "no_audio",
            frames=int(response.headers["x-speech-frames"]) if has_audio else 0,
            wall_ms=wall_ms,
            first_audio_ms=grown["speech_first_made_seconds_sum"] * _MS if is_first_known else None,
            lm_ms=grown["speech_engine_step_seconds_sum"] * _MS,
            lm_steps=int(grown["speech_engine_step_seconds_count"]),
            decode_ms=grown["speech_decode_seconds_sum"] * _MS,
            decode_calls=int(grown["speech_decode_seconds_count"]),
            cores=cores,
        )

    def _alone(self, where: str) -> Metrics:
        """The server's counts, where nobody asks it, and nobody has since the last clip."""
        found = self._quiet(_metrics(self.client, where), where)
        others = _ended(found) - (_ended(found) if self._ended is None else self._ended)
        if others < 0:
            raise AskError(
                f"{where}: the server's counts began anew: it was started again; run it again",
                retryable=True,
            )
        if others > 0:
            raise AskError(
                f"{where}: the server had {others:.0f} requests of somebody else since the clip "
                "before; leave it to the comparison"
            )
        return found

    def _settled(self, before: Metrics, where: str) -> Metrics:
        """The server's counts, once it has counted the request as ended and nothing runs.

        It does so after the last byte is sent, so that a client may look too early.
        """
        deadline_s = time.monotonic() + _SETTLED_WITHIN_S
        while time.monotonic() < deadline_s:
            found = _metrics(self.client, where)
            if _ended(found) == _ended(before):
                continue
            found = self._quiet(found, where)
            if (ended := _ended(found) - _ended(before)) != 1:
                raise AskError(
                    f"{where}: the server had {ended:.0f} requests at once; leave it to the "
                    "comparison"
                )
            return found
        raise AskError(f"{where}: the server did not count the request as ended", retryable=True)

    def _quiet(self, found: Metrics, where: str) -> Metrics:
        """`found`, or what is found later, once no stream runs or waits; one's own may end late."""
        deadline_s = time.monotonic() + _QUIET_WITHIN_S
        while running := sum(found.values.get(name, 0.0) for name in _RUNNING):
            if time.monotonic() > deadline_s:
                raise AskError(
                    f"{where}: the server has {running:.0f} streams of somebody else; leave it to "
                    "the comparison"
                )
            found = _metrics(self.client, where)
        return found


def _ended(found: Metrics) -> float:
    """Requests that the server has counted as ended."""
    return sum(n for name, n in found.values.items() if name.startswith(_REQUESTS))


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
