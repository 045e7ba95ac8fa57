"""What the protocols ask of the service that makes speech, and what it answers.

The service runs the engine and the codec on a thread of its own; whoever asks lives on the event
loop. `SpeechService` and `Utterance` are all that the HTTP routes and the WebSocket know of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from server.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from server.engine import Sampling

LeadIn = Literal["trim", "keep"]
FinishReason = Literal["stop", "length", "silence", "loop", "cancelled", "error"]


class OverloadedError(ServerError):
    """No place is free and the queue is full; try again after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequestError(ServerError):
    """The request cannot be spoken; `param` names the field at fault, if one is."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One utterance to speak. `id` is unique in this process, whatever clients call it."""

    id: str
    text: str
    voice: str
    sampling: Sampling
    lead_in: LeadIn = "trim"
    # Asked for as one file: nobody plays it while it is made, and a seed gives the same bytes.
    whole: bool = False


@dataclass(frozen=True, slots=True)
class UtteranceReport:
    """How an utterance went. Times are from the request to the service, in ms; None: never."""

    finish_reason: FinishReason
    frames: int
    samples: int  # Given out, after trims.
    trimmed_samples: int
    misaligned_tokens: int
    input_tokens: int
    output_tokens: int
    ttfa_ms: float | None
    ttfs_ms: float | None
    total_ms: float
    rtf: float | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How the service is: degraded still serves, failed never will again."""

    status: Literal["ok", "degraded", "failed"]
    active_streams: int
    queued: int


class Utterance(Protocol):
    """Audio that is being made. Iterating gives chunks, bytes of s16le at 24 kHz, mono."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks as they are made; ends early after `cancel`."""
        ...

    def cancel(self) -> None:
        """Stop making it at once and free its place; harmless when it has ended."""
        ...

    @property
    def report(self) -> UtteranceReport | None:
        """How it went; None until it has ended."""
        ...


class SpeechService(Protocol):
    """Makes speech. All of it is called from the event loop."""

    async def speak(self, request: SpeechRequest) -> Utterance:
        """Begin an utterance, waiting for a place in the bounded queue if need be.

        Raises:
            OverloadedError: the queue is full.
            BadRequestError: the text cannot be spoken.
        """
        ...

    def health(self) -> Health:
        """How the service is, now."""
        ...

    def abandon(self) -> None:
        """End every utterance and refuse what waits, now."""
        ...

    def close(self) -> None:
        """End every utterance, the engine and the thread; blocks until they have ended."""
        ...
