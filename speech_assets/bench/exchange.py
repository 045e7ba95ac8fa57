"""One request as it happened on the wire: what was sent, and every piece that arrived, and when."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from typing import Literal

from speech_assets.bench.plain import plain_words

Outcome = Literal[
    "ok",
    "refused",  # 429, or the WebSocket's `overloaded`
    "http_error",  # any other status that is not 200, or the WebSocket's `error`
    "connect_error",
    "timeout",  # no byte of audio, or no end
    "stalled",  # some bytes, then none
    "truncated",  # fewer bytes than the server or the format says
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
# What this machine has run out of: no server can help it.
_CLIENT_ERRNOS = {
    *(errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC),
}
_ERRNO = re.compile(r"\[Errno (\d+)\]")


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
    content_encoding: str = ""
    arrivals: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])
    cancelled_s: float | None = None
    ended_s: float | None = None  # When the client was done with it, however it went.
    outcome: Outcome = "ok"
    error: str = ""
    finish_reason: str | None = None
    # What the server says it sent: samples, frames decoded, samples cut off.
    reported_samples: int | None = None
    reported_frames: int | None = None
    reported_trimmed: int | None = None
    client_limit: str = ""  # What this machine had not enough of, when that was the fault.

    def failed(self, outcome: Outcome, error: str) -> None:
        """Say how it went wrong. Words may be the server's, and so anything."""
        self.outcome, self.error = outcome, plain_words(error[:LONGEST_ERROR])

    def not_connected(self, error: BaseException, words: str) -> None:
        """There is no connection: the server's fault, or this machine's own limit."""
        # Where a name has several addresses, the error is of all of them, by its words only.
        numbers = {int(number) for number in _ERRNO.findall(str(error))}
        number = getattr(error, "errno", None) or next(iter(numbers), None)
        if number in _CLIENT_ERRNOS and numbers <= _CLIENT_ERRNOS:
            self.client_limit = f"{errno.errorcode[number]}, {os.strerror(number)}"
            words = f"this client's own limit ({self.client_limit}): {words}"
        self.failed("connect_error", words)

    @property
    def received(self) -> int:
        """How many bytes of the body arrived."""
        return sum(len(data) for _, data in self.arrivals)

    @property
    def body(self) -> bytes:
        """All bytes that arrived."""
        return b"".join(data for _, data in self.arrivals)
