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
    """The first sample of the first 10 ms above -40 dBFS (RMS), on a grid of 10 ms.

    The mean of all samples is taken off first: a constant is not heard.
    """
    loud = np.flatnonzero(_levels(samples, rate_hz) > AUDIBLE_DBFS)
    return int(loud[0]) * _block(rate_hz) if len(loud) else None


def is_audible(samples: NDArray[np.int16], rate_hz: int) -> bool:
    """Whether any 10 ms are above -40 dBFS without their own mean, or the second detector hears.

    Steps from one constant to another pass `onset`; nobody hears them as speech.
    """
    block = _block(rate_hz)
    count = len(samples) // block
    blocks = samples[: count * block].reshape(count, block)
    is_loud = blocks.std(1, dtype=np.float64) > _FULL_SCALE * 10 ** (AUDIBLE_DBFS / 20)
    return bool(is_loud.any()) or second_onset(samples, rate_hz) is not None


def first_loud(samples: NDArray[np.int16], at: int, window: int, dbfs: float) -> int:
    """The first of `window` samples from `at` on that is as loud as `dbfs`, without their mean.

    `at` where none is.
    """
    part = samples[at : at + window].astype(np.float64)
    loud = np.flatnonzero(np.abs(part - part.mean()) >= _FULL_SCALE * 10 ** (dbfs / 20))
    return at + int(loud[0]) if len(loud) else at


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
    """dBFS (RMS) of each whole 10 ms block, without the mean of all samples."""
    block = _block(rate_hz)
    count = len(samples) // block
    blocks = samples[: count * block].reshape(count, block) - (samples.mean() if count else 0.0)
    with np.errstate(divide="ignore"):
        return 10 * np.log10(np.square(blocks).mean(1) / _FULL_SCALE**2)
