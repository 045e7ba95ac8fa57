"""One request as it happened on the wire: what was sent, and every piece that arrived, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal[
    "ok",
    "refused",  # 429, or the WebSocket's `overloaded`
    "http_error",  # any other status that is not 200, or the WebSocket's `error`
    "connect_error",
    "timeout",  # no byte, or no end
    "stalled",  # some bytes, then none
    "truncated",  # fewer bytes than the server said
    "garbage",  # not the audio that was asked for
    "header_per_chunk",  # WAV headers within the audio
    "silent",  # no audio, or none that can be heard
    "disconnected",
    "cancelled",  # by this client, on purpose
    "dropped",  # never sent: too many were in flight
]
# What did not fail.
FINE: frozenset[Outcome] = frozenset({"ok", "cancelled"})
LONGEST_ERROR = 500


@dataclass(slots=True)
class Exchange:
    """A request and its answer. Times are seconds of the machine's monotonic clock.

    `sent_s` is clock zero: just before the first byte of the body (HTTP) or the first `input.text`
    (WebSocket). `connect_ms` is None when the connection was there before.
    """

    request: int
    text: int
    seed: int
    planned_s: float | None
    due_s: float
    dispatched_s: float | None = None
    sent_s: float | None = None
    connect_ms: float | None = None
    status: int | None = None
    content_type: str = ""
    arrivals: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])
    cancelled_s: float | None = None
    outcome: Outcome = "ok"
    error: str = ""
    finish_reason: str | None = None
    # What the server says it sent: samples, frames decoded, samples cut off.
    reported_samples: int | None = None
    reported_frames: int | None = None
    reported_trimmed: int | None = None

    def failed(self, outcome: Outcome, error: str) -> None:
        """Say how it went wrong."""
        self.outcome, self.error = outcome, error[:LONGEST_ERROR]

    @property
    def body(self) -> bytes:
        """All bytes that arrived."""
        return b"".join(data for _, data in self.arrivals)
