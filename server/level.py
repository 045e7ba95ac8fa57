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
    return rms(_blocks(samples))


def rms(blocks: NDArray[np.int16]) -> NDArray[np.float64]:
    """RMS of each of `blocks`, int16 of shape (blocks, 240): float64 of shape (blocks,)."""
    values = blocks.astype(np.float64)  # Squares and their sums are whole numbers: exact in it.
    return np.sqrt(np.einsum("ij,ij->i", values, values) / BLOCK_SAMPLES)


def _blocks(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    count = len(samples) // BLOCK_SAMPLES
    return samples[: count * BLOCK_SAMPLES].reshape(count, BLOCK_SAMPLES)


class BlockReader:
    """Cuts a stream of chunks into whole 10 ms blocks on one grid, however it is chunked."""

    def __init__(self) -> None:
        self._rest = np.zeros(0, np.int16)

    @property
    def carried(self) -> int:
        """Samples of earlier chunks in the block that the next chunk completes."""
        return len(self._rest)

    def take(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        """The blocks that `samples` complete, int16 of shape (blocks, 240)."""
        joined = np.concatenate([self._rest, samples]) if len(self._rest) else samples
        blocks = _blocks(joined)
        self._rest = joined[blocks.size :]
        return blocks

    def read(self, samples: NDArray[np.int16]) -> NDArray[np.float64]:
        """RMS of the blocks that `samples` complete."""
        return rms(self.take(samples))
