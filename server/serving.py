"""The one model of this process as clients meet it: ready or not, its names, and each delivery."""

from __future__ import annotations

import json
import logging
import secrets
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from server.metrics import Metrics, Outcome, PlaybackClock, Transport
from server.protocol import RequestError, SpeechOptions, check_model
from server.speech import BadRequestError, OverloadedError, SpeechRequest, UtteranceReport
from server.wav import BYTES_PER_SAMPLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from server.engine import Sampling
    from server.speech import SpeechService, Utterance
    from server.voices import Voices

State = Literal["loading", "ready", "draining", "failed"]

_LOG = logging.getLogger("server.requests")
_REASONS: dict[State, str] = {
    "loading": "the model is loading and warming up",
    "ready": "ready",
    "draining": "the server is ending; it finishes what it has begun",
    "failed": "the engine has died; the server is ending",
}
_SERVER_ERROR = "server_error"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may take before it is told no or cut off."""

    stall_s: float = 60.0  # Without a byte taken from a stream's socket.
    body_bytes: int = 1 << 20
    body_s: float = 20.0  # For the whole body to come.
    config_s: float = 10.0  # From a socket's opening to its configuration.
    idle_s: float = 300.0  # Without a message or speech; a call has long silences.
    message_characters: int = 128 * 1024
    waiting_characters: int = 128 * 1024  # Of a socket's text that is not spoken yet.
    waiting_utterances: int = 64  # Of a socket, the one that is spoken included.


@dataclass(frozen=True, slots=True)
class Model:
    """What is served, once it is loaded."""

    service: SpeechService
    names: tuple[str, ...]  # The preset, then its aliases.
    voices: Voices
    sampling: Sampling
    config: dict[str, Any]  # As `/config` and `--print-config` show it.


@dataclass(slots=True)
class Delivery:
    """One utterance on its way to one client; leaving it as a context ends the utterance."""

    _serving: Serving
    request: SpeechRequest
    label: str  # The x-request-id.
    transport: Transport
    started_s: float
    _utterance: Utterance
    _chunks: AsyncIterator[bytes] = field(init=False)
    _clock: PlaybackClock = field(default_factory=PlaybackClock, init=False)
    sent_bytes: int = field(default=0, init=False)
    outcome: Outcome | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._chunks = aiter(self._utterance)
        self._serving.open_deliveries += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.open_deliveries -= 1
        self._close()

    async def next(self) -> bytes | None:
        """The next chunk of PCM; None after the last."""
        return await anext(self._chunks, None)

    def sent(self, chunk: bytes) -> None:
        """Note that a chunk has been handed to the socket."""
        self.sent_bytes += len(chunk)
        samples = len(chunk) // BYTES_PER_SAMPLE
        self._serving.metrics.sent(samples, self._clock.sent(samples, time.monotonic()))

    def cancel(self) -> None:
        """Stop the utterance at once."""
        self._utterance.cancel()

    @property
    def report(self) -> UtteranceReport | None:
        """How the utterance went; None until it has ended."""
        return self._utterance.report

    def failure(self) -> RequestError | None:
        """Why nothing (more) comes, when that is no proper end."""
        report = self.report
        if report is None or report.finish_reason == "error":
            why = report.error if report else None
            return RequestError(
                f"speech failed: {why or 'the engine gave no reason'}; try again",
                status=500,
                type=_SERVER_ERROR,
                code="engine_error",
            )
        if report.finish_reason == "cancelled":
            return RequestError(
                "the server ended this utterance before it was spoken; try again",
                status=503,
                type=_SERVER_ERROR,
                code="cancelled",
                retry_after_s=1,
            )
        if self.sent_bytes == 0 and report.samples == 0:
            return RequestError(
                "the model gave no audio for this text; try another seed, or other words",
                status=500,
                type=_SERVER_ERROR,
                code="no_audio",
            )
        return None

    def _close(self) -> None:
        """Cancel what still runs, count and log the end."""
        report = self.report
        if report is None:
            self.cancel()
        outcome = self.outcome or (report.finish_reason if report else "cancelled")
        self._serving.metrics.ended(
            self.transport,
            outcome,
            ttfa_ms=report.ttfa_ms if report else None,
            ttfs_ms=report.ttfs_ms if report else None,
            rtf=report.rtf if report and outcome == report.finish_reason else None,
            misaligned_tokens=report.misaligned_tokens if report else 0,
        )
        line: dict[str, Any] = {
            "request": self.label,
            "transport": self.transport,
            "outcome": outcome,
            "voice": self.request.voice,
            "characters": len(self.request.text),
            "sent_bytes": self.sent_bytes,
            "open_ms": round((time.monotonic() - self.started_s) * 1_000, 1),
        }
        if report is not None:
            line |= timings_of(report)
            line |= {"error": report.error} if report.error else {}
        _LOG.info("%s", json.dumps(line))


class Session(Protocol):
    """An open socket."""

    def drain(self) -> None:
        """Take no more utterances; close as soon as those that are complete are spoken."""
        ...


@dataclass(slots=True)
class Serving:
    """State of the process: the model when it is there, and who is being served."""

    limits: Limits
    metrics: Metrics
    allowed_origins: tuple[str, ...] = ()
    state: State = "loading"
    model: Model | None = None
    failure: str = ""
    started_at: int = field(default_factory=lambda: int(time.time()))
    open_deliveries: int = field(default=0, init=False)
    beginning: int = field(default=0, init=False)  # Requests that wait for their utterance.
    sessions: set[Session] = field(default_factory=set[Session], init=False)

    def loaded(self, model: Model) -> None:
        """The model is there and warm: from now on speech is made."""
        self.model = model
        if self.state == "loading":
            self.state = "ready"

    @property
    def reason(self) -> str:
        """Why the server is in its state, in words."""
        return self.failure or _REASONS[self.state]

    def ready_model(self) -> Model:
        """The model, if it may be asked for speech now.

        Raises:
            RequestError: 503, because it is loading, ending or dead.
        """
        if self.state != "ready" or self.model is None:
            raise RequestError(
                f"not ready: {self.reason}; try again",
                status=503,
                type=_SERVER_ERROR,
                code="not_ready",
                retry_after_s=1,
            )
        return self.model

    async def begin(
        self,
        text: str,
        options: SpeechOptions,
        transport: Transport,
        label: str,
        *,
        whole: bool = False,
    ) -> Delivery:
        """Begin to speak `text`; to be used as a context, which ends the utterance with itself.

        `whole` is of an answer that nobody plays while it is made.

        Raises:
            RequestError: it cannot be spoken, or not now.
        """
        started_s = time.monotonic()
        try:
            model = self.ready_model()
            check_model(options.model, model.names)
            # Without a seed every rendition is another; the one drawn is told, to have it again.
            given = {"seed": secrets.randbits(31), **options.sampling}
            request = SpeechRequest(
                id=uuid.uuid4().hex,
                text=text,
                voice=model.voices.resolve(options.voice),
                sampling=replace(model.sampling, **given),
                lead_in=options.lead_in or "trim",
                whole=whole,
            )
            # Counted at once: a drain waits for what is in the queue as for what is spoken.
            self.beginning += 1
            try:
                utterance = await self._ask(model.service, request)
            finally:
                self.beginning -= 1
        except RequestError as error:
            self.refused(transport, error)
            raise
        return Delivery(self, request, label, transport, started_s, utterance)

    def refused(self, transport: Transport, error: RequestError) -> None:
        """Count a request that never became speech."""
        self.metrics.ended(transport, "overloaded" if error.status == 429 else "refused")

    async def _ask(self, service: SpeechService, request: SpeechRequest) -> Utterance:
        try:
            return await service.speak(request)
        except OverloadedError as error:
            raise RequestError(
                str(error),
                status=429,
                type="rate_limit_error",
                code="overloaded",
                retry_after_s=error.retry_after_s,
            ) from error
        except BadRequestError as error:
            raise RequestError(str(error), param=error.param, code="invalid_value") from error


def timings_of(report: UtteranceReport) -> dict[str, float | None]:
    """Timings of an utterance as clients get them: ms to a tenth, rtf to a thousandth."""
    times = {"ttfa_ms": report.ttfa_ms, "ttfs_ms": report.ttfs_ms, "total_ms": report.total_ms}
    rounded = {name: None if ms is None else round(ms, 1) for name, ms in times.items()}
    return {**rounded, "rtf": None if report.rtf is None else round(report.rtf, 3)}
