"""What the protocols ask of the service that makes speech, and what it answers.

The service runs the engine and the codec on a thread of its own; whoever asks lives on the event
loop. `SpeechService` and `Utterance` are all that the HTTP routes and the WebSocket know of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from server.engine import Sampling  # Not for types alone: `wire` reads those of the fields.

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LeadIn = Literal["trim", "keep"]
FinishReason = Literal["stop", "length", "silence", "loop", "cancelled", "error"]


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
    # How its player uses it up: so much faster than it is spoken, and never the last `held_s`
    # seconds (as played) of what it was sent, which an encoder still holds.
    speed: float = 1.0
    held_s: float = 0.0
    normalize: bool = True  # Put written forms into words.
    tail_s: float | None = None  # Of silence kept at the end; None is the usual.


@dataclass(frozen=True, slots=True)
class UtteranceReport:
    """How an utterance went: without more, one that never began.

    Times are from the request to the service, in ms; None: never.
    """

    finish_reason: FinishReason
    frames: int = 0
    samples: int = 0  # Given out, after trims.
    trimmed_samples: int = 0
    misaligned_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    ttfa_ms: float | None = None
    first_made_ms: float | None = None  # First audio that the model made, not given to it.
    ttfs_ms: float | None = None
    total_ms: float = 0.0
    rtf: float | None = None
    error: str | None = None
    inserted_samples: int = 0  # Silence between the pieces of a text; within `samples`.


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
