"""Decoded samples, and which arrival made which of them playable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from speech_assets.bench.exchange import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PCM_RATE_HZ = 24_000  # OpenAI's pcm, which says nothing of itself.
LEAST_RATE_HZ = 1_000  # Below it 10 ms are hardly a sample; no codec of speech goes there.
Problem = tuple[Outcome, str]


@dataclass(frozen=True, slots=True)
class Audio:
    """Decoded samples (int16, mono), and how many of them each arrival made playable."""

    samples: NDArray[np.int16]
    rate_hz: int
    playable: tuple[int, ...]
    problem: Problem | None = None

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.samples) / self.rate_hz


def nothing(ends: Sequence[int], problem: Problem) -> Audio:
    """No audio, and why; `ends` are where each arrival ended."""
    return Audio(np.zeros(0, np.int16), PCM_RATE_HZ, (0,) * len(ends), problem)


def of_bytes(
    samples: NDArray[np.int16],
    rate_hz: int,
    ends: Sequence[int],
    headers: Sequence[tuple[int, int]],
    frame_bytes: int,
    problem: Problem | None,
) -> Audio:
    """Audio of fixed size: byte `end` of the stream tells which samples are there."""
    playable: list[int] = []
    before = 0
    for end in ends:
        skipped = sum(min(stop, end) - start for start, stop in headers if start < end)
        whole = min((end - skipped) // frame_bytes, len(samples))
        playable.append(whole - before)
        before = whole
    return Audio(samples, rate_hz, tuple(playable), problem)
