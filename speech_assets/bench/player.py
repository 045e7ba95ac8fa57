"""A player without a buffer: what its listener hears of chunks that arrive when they do."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A float's rounding is no gap: 1 ns, in ms.
_ROUNDING_MS = 1e-6


@dataclass(frozen=True, slots=True)
class Playback:
    """How the chunks of one utterance played. Times are ms on the arrivals' clock."""

    starts_ms: tuple[float, ...]  # When each chunk's first sample sounds.
    first_samples: tuple[int, ...]  # Which sample that is.
    rate_hz: int
    underruns_ms: tuple[float, ...]  # Each silence between chunks,
    underrun_samples: tuple[int, ...]  # and the first sample after it.
    least_margin_ms: float | None  # Of the chunks after the first; negative when one came late.

    def heard_ms(self, sample: int) -> float:
        """When sample number `sample` sounds."""
        chunk = bisect_right(self.first_samples, sample) - 1
        return self.starts_ms[chunk] + (sample - self.first_samples[chunk]) / self.rate_hz * 1e3

    def audible_ms(self, sample: int, loud: int) -> float:
        """When sound that begins at `sample` is heard, if sample number `loud` is what is heard.

        That is not before the chunk that `loud` came with: a window of silence that ends in speech
        may begin in the chunk before.
        """
        chunk = bisect_right(self.first_samples, loud) - 1
        return max(self.heard_ms(sample), self.starts_ms[chunk])

    def underruns_above(self, limit_ms: float) -> int:
        """Silences longer than `limit_ms`."""
        return sum(silence > limit_ms for silence in self.underruns_ms)

    def underruns_after(self, sample: int) -> int:
        """Silences later than sample number `sample`: with the onset, those that break speech."""
        return sum(at > sample for at in self.underrun_samples)


def play(at_ms: Sequence[float], samples: Sequence[int], rate_hz: int) -> Playback:
    """Play chunks of `samples` that arrived `at_ms` (ascending), from the first one's arrival on.

    Each chunk is due when the one before has been played. One that comes later is an underrun as
    long as it is late, and what follows is due that much later. Chunks must not be empty.
    """
    starts: list[float] = []
    firsts: list[int] = []
    underruns: list[tuple[float, int]] = []
    margins: list[float] = []
    due_ms = at_ms[0] if at_ms else 0.0
    first = 0
    for arrived_ms, count in zip(at_ms, samples, strict=True):
        margin_ms = due_ms - arrived_ms
        if starts:
            margins.append(margin_ms)
        if margin_ms < -_ROUNDING_MS:
            underruns.append((-margin_ms, first))
            due_ms = arrived_ms
        starts.append(due_ms)
        firsts.append(first)
        due_ms += count / rate_hz * 1e3
        first += count
    return Playback(
        tuple(starts),
        tuple(firsts),
        rate_hz,
        tuple(silence_ms for silence_ms, _ in underruns),
        tuple(sample for _, sample in underruns),
        min(margins) if margins else None,
    )
