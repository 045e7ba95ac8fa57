"""What one client process is told to do: its share of one level's load."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from speech_assets.bench.schedule import arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Part:
    """A load that begins at `start_s` of the monotonic clock, which all processes share.

    Requests that begin in `warmup_s` are warm-up, those in the `duration_s` after it are measured.
    Load goes on until all of these, of all processes, have ended: none of them ends its life in a
    server that has less to do, and one that hangs is not forgotten. What is then in flight began
    later; it is cancelled and not recorded.

    `closed`: `streams` requests in flight. `open`: every `processes`-th arrival of one schedule,
    from the `process`-th on. `least` requests are measured even if they begin later than that: a
    request may be longer than the window.
    """

    load: Literal["closed", "open"]
    start_s: float
    warmup_s: float
    duration_s: float
    process: int
    processes: int
    first_request: int
    seed: int
    texts: int
    cancel_share: float
    streams: int = 0
    least: int = 0
    rate: float = 0.0
    arrivals: str = "poisson"
    until_s: float = 0.0
    in_flight_cap: int = 0

    @property
    def measure_s(self) -> float:
        """When measuring begins, on the monotonic clock."""
        return self.start_s + self.warmup_s

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.measure_s + self.duration_s

    def due(self) -> Iterator[tuple[int, float]]:
        """Request and time (monotonic) of each arrival of this process' share of an open load."""
        all_of_them = enumerate(arrivals(self.arrivals, self.rate, self.seed, self.until_s))
        for n, at_s in itertools.islice(all_of_them, self.process, None, self.processes):
            yield self.first_request + n, self.start_s + at_s

    def offered(self) -> int:
        """How many arrivals of all processes an open load has while it is measured."""
        whole = arrivals(self.arrivals, self.rate, self.seed, self.warmup_s + self.duration_s)
        return sum(at_s >= self.warmup_s for at_s in whole)

    def stagger_s(self, stream: int) -> float:
        """When a stream of a closed loop begins: not all at once, if there is a warm-up."""
        within_s = min(2.0, self.warmup_s / 2)
        count = self.streams * self.processes
        return within_s * (self.process + stream * self.processes) / count

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start_s
