"""A server's memory and what it has open, looked at again and again while it is under load."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import httpx

from speech_assets.bench.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_TIMEOUT_S = 30.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One look: seconds since the first one, resident memory of all the server's processes."""

    at_s: float
    rss_mib: float
    active_streams: int
    queued: int
    open_connections: int


class MemorySamples:
    """Looks at `/metrics` every `every_s` until the context ends; `each` is called after each."""

    def __init__(self, url: str, every_s: float, each: Callable[[MemorySample], None]) -> None:
        self._url, self._every_s, self._each = url, every_s, each
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory", daemon=True)
        self.samples: list[MemorySample] = []
        self.missed = 0  # Looks that the server did not answer.
        self._error: Exception | None = None  # Of a look that failed otherwise.

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(2 * _TIMEOUT_S)
        if self._error is not None and _error is None:
            raise self._error

    def _look(self) -> None:
        try:
            self._look_on()
        except Exception as error:  # Whatever it is, it is told where the samples are wanted.
            self._error = error

    def _look_on(self) -> None:
        began_s = time.monotonic()
        with httpx.Client(base_url=self._url, timeout=_TIMEOUT_S, trust_env=False) as client:
            while True:
                at_s = time.monotonic() - began_s
                try:
                    values = Metrics.parse(client.get("/metrics").raise_for_status().text).values
                except httpx.HTTPError:
                    self.missed += 1
                else:
                    sample = MemorySample(
                        at_s,
                        values["process_resident_memory_bytes"] / _MIB,
                        int(values["speech_active_streams"]),
                        int(values["speech_queue_depth"]),
                        int(values["speech_open_connections"]),
                    )
                    self.samples.append(sample)
                    self._each(sample)
                due_s = began_s + (len(self.samples) + self.missed) * self._every_s
                if self._ended.wait(max(0.0, due_s - time.monotonic())):
                    return


def rss_growth_mib(samples: Sequence[MemorySample]) -> float:
    """Median of the last quarter of the samples less that of the first; at least one of each."""
    count = max(1, len(samples) // 4)
    first, last = samples[:count], samples[-count:]
    return statistics.median(each.rss_mib for each in last) - statistics.median(
        each.rss_mib for each in first
    )
