"""Levels of PCM: full scale, decibels, and the root mean square of short blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from server import frames

if TYPE_CHECKING:
    from numpy.typing import NDArray

FULL_SCALE = 32_768
BLOCK_SAMPLES = frames.SAMPLE_RATE_HZ // 100  # 10 ms


def amplitude(dbfs: float) -> float:
    """The int16 amplitude (RMS) of a level in dB relative to full scale."""
    return FULL_SCALE * 10 ** (dbfs / 20)


def block_rms(samples: NDArray[np.int16]) -> NDArray[np.float64]:
    """RMS of each whole 10 ms block, float64 of shape (samples // 240,); a rest is left out."""
    count = len(samples) // BLOCK_SAMPLES
    blocks = samples[: count * BLOCK_SAMPLES].reshape(count, BLOCK_SAMPLES)
    return np.sqrt(np.square(blocks, dtype=np.float64).mean(1))


class BlockReader:
    """Cuts a stream of chunks into whole 10 ms blocks on one grid, however it is chunked."""

    def __init__(self) -> None:
        self._rest = np.zeros(0, np.int16)

    @property
    def carried(self) -> int:
        """Samples of earlier chunks in the block that the next chunk completes."""
        return len(self._rest)

    def read(self, samples: NDArray[np.int16]) -> NDArray[np.float64]:
        """RMS of the blocks that `samples` complete."""
        joined = np.concatenate([self._rest, samples])
        rms = block_rms(joined)
        self._rest = joined[len(rms) * BLOCK_SAMPLES :]
        return rms
