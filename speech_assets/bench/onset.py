"""Where speech begins and where its first sentence ends, in samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

AUDIBLE_DBFS = -40.0
BLOCK_S = 0.010
# The second detector, that of Nari Labs' benchmark: two windows in a row, free of DC.
SECOND_DBFS = -45.0
SECOND_WINDOW_S = 0.020
PAUSE_S = 0.150
_FULL_SCALE = 32_768.0


def onset(samples: NDArray[np.int16], rate_hz: int) -> int | None:
    """The first sample of the first 10 ms above -40 dBFS (RMS), on a grid of 10 ms."""
    loud = np.flatnonzero(_levels(samples, rate_hz) > AUDIBLE_DBFS)
    return int(loud[0]) * _block(rate_hz) if len(loud) else None


def second_onset(samples: NDArray[np.int16], rate_hz: int) -> int | None:
    """The first sample of the first two 20 ms windows in a row (10 ms apart) above -45 dBFS.

    A window's mean is taken off first.
    """
    hop = _block(rate_hz)
    window = 2 * hop
    if len(samples) < window + hop:
        return None
    count = (len(samples) - window) // hop + 1
    views = np.lib.stride_tricks.sliding_window_view(samples, window)[::hop][:count]
    with np.errstate(divide="ignore"):
        levels = 20 * np.log10(views.std(1, dtype=np.float64) / _FULL_SCALE)
    loud = levels > SECOND_DBFS
    both = np.flatnonzero(loud[:-1] & loud[1:])
    return int(both[0]) * hop if len(both) else None


def first_sentence_end(samples: NDArray[np.int16], rate_hz: int) -> int:
    """Samples up to the first pause after speech: at least 150 ms below -40 dBFS.

    All of them where there is no such pause.
    """
    loud = _levels(samples, rate_hz) > AUDIBLE_DBFS
    quiet = 0
    spoken = False
    for index, is_loud in enumerate(loud):
        quiet = 0 if is_loud else quiet + 1
        spoken = spoken or bool(is_loud)
        if spoken and quiet * BLOCK_S >= PAUSE_S - 1e-9:
            return (index + 1 - quiet) * _block(rate_hz)
    return len(samples)


def _block(rate_hz: int) -> int:
    return round(rate_hz * BLOCK_S)


def _levels(samples: NDArray[np.int16], rate_hz: int) -> NDArray[np.float64]:
    """dBFS (RMS) of each whole 10 ms block."""
    block = _block(rate_hz)
    count = len(samples) // block
    blocks = samples[: count * block].reshape(count, block)
    with np.errstate(divide="ignore"):
        return 10 * np.log10(np.square(blocks, dtype=np.float64).mean(1) / _FULL_SCALE**2)
