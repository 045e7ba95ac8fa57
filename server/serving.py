"""The one model of this process as clients meet it: ready or not, and what it is asked for."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from server.bearer import BearerTokens
from server.delivery import Delivery
from server.errors import BadRequestError, OverloadedError, RequestError
from server.protocol import check_model
from server.rendition import held_back_s
from server.request_log import RequestLine
from server.speech import SpeechRequest
from server.timings import ms_since

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from server.engine import Sampling
    from server.limits import Limits
    from server.metrics import Metrics, Outcome, Transport
    from server.speech import SpeechService, Utterance
    from server.speech_options import SpeechOptions
    from server.voices import Voices

State = Literal["loading", "ready", "draining", "failed"]

_REASONS: dict[State, str] = {
    "loading": "the model is loading and warming up",
    "ready": "ready",
    "draining": "the server is ending; it finishes what it has begun",
    "failed": "the engine has died; the server is ending",
}


@dataclass(frozen=True, slots=True)
class Model:
    """What is served, once it is loaded."""

    service: SpeechService
    names: tuple[str, ...]  # The preset, then its aliases.
    voices: Voices
    sampling: Sampling
    config: dict[str, Any]  # As `/config` and `--print-config` show it.


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
    tokens: BearerTokens = field(default_factory=BearerTokens)
    state: State = "loading"
    model: Model | None = None
    failure: str = ""
    started_at: int = field(default_factory=lambda: int(time.time()))
    # The metrics of all processes, where this is one of several; None: of this one.
    scrape: Callable[[], Awaitable[bytes]] | None = None
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

    def ready_model(self, *, was_promised: bool = False) -> Model:
        """The model, if it may be asked for speech now.

        What was promised before the server began to end is spoken while it ends.

        Raises:
            RequestError: 503, because it is loading, ending or dead.
        """
        is_promise = was_promised and self.state == "draining"
        if self.model is None or not (self.state == "ready" or is_promise):
            raise self._not_ready()
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
            # A socket that drains takes no more text: what it asks for now it took before.
            model = self.ready_model(was_promised=transport == "websocket")
            check_model(options.model, model.names)
            self.limits.check_input(text, whole=whole, speed=options.played_speed)
            # Without a seed every rendition is another; the one drawn is told, to have it again.
            given = {"seed": secrets.randbits(31), **options.sampling}
            request = SpeechRequest(
                id=uuid.uuid4().hex,
                text=text,
                voice=model.voices.resolve(options.voice),
                sampling=replace(model.sampling, **given),
                lead_in=options.lead_in or "trim",
                whole=whole,
                speed=options.played_speed,
                held_s=held_back_s(options.available_format(), options.played_speed),
                normalize=options.normalize is not False,
            )
            # Counted at once: a drain waits for what is in the queue as for what is spoken.
            self.beginning += 1
            try:
                utterance = await self._ask(model.service, request)
            finally:
                self.beginning -= 1
        except RequestError as error:
            self.refused(transport, error, label, characters=len(text), started_s=started_s)
            raise
        except BaseException as error:
            why = None if isinstance(error, asyncio.CancelledError) else type(error).__name__
            self.broken_off(transport, label, characters=len(text), started_s=started_s, error=why)
            raise
        return Delivery(
            *(self, request, label, transport, started_s, utterance), options.available_format()
        )

    def refused(
        self,
        transport: Transport,
        error: RequestError,
        label: str,
        *,
        characters: int | None = None,
        started_s: float | None = None,
    ) -> None:
        """Count and log a request that never became speech. `label` is its x-request-id."""
        outcome: Outcome = "overloaded" if error.status == 429 else "refused"
        self.metrics.ended(transport, outcome)
        RequestLine(
            *(label, transport, error.status, outcome),
            code=error.code,
            characters=characters,
            total_ms=None if started_s is None else ms_since(started_s),
        ).write()

    def broken_off(
        self,
        transport: Transport,
        label: str,
        *,
        characters: int | None = None,
        started_s: float | None = None,
        error: str | None = None,
    ) -> None:
        """Count and log a request of which nothing was delivered, and nobody was told why.

        Its client left within the body, the queue or the text's phonemes, or dropped it before, or
        the server failed: `error` is that failure's name, not its words, which may be a client's.
        """
        outcome: Outcome = "cancelled" if error is None else "error"
        self.metrics.ended(transport, outcome)
        RequestLine(
            *(label, transport, 499 if error is None else 500, outcome),
            characters=characters,
            total_ms=None if started_s is None else ms_since(started_s),
            error=error,
        ).write()

    def show_state(self) -> None:
        """Bring the gauges of what is now up to date, for a scrape."""
        if self.model is not None:
            now = self.model.service.health()
            self.metrics.active_streams.set(now.active_streams)
            self.metrics.queue_depth.set(now.queued)
        self.metrics.now_in(self.state, get_args(State))

    def _not_ready(self) -> RequestError:
        return RequestError.of_server(
            f"not ready: {self.reason}; try again",
            status=503,
            code="not_ready",
            retry_after_s=1,
        )

    async def _ask(self, service: SpeechService, request: SpeechRequest) -> Utterance:
        try:
            return await service.speak(request)
        except OverloadedError as error:
            if self.state == "draining":  # Coming again here would be in vain.
                raise self._not_ready() from error
            raise RequestError(
                str(error),
                status=429,
                type="rate_limit_error",
                code="overloaded",
                retry_after_s=error.retry_after_s,
            ) from error
        except BadRequestError as error:
            raise RequestError(str(error), param=error.param, code=error.code) from error
