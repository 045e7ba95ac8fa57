"""How close a decoded clip is to its original: log-mel distance and envelope correlation.

Both are plain numbers that a person can place: the distance is the mean absolute difference in dB
of 80 log-mel bands, over the cells in which the original is audible; the correlation is Pearson's,
of loudness envelopes in dB at 100 Hz.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from server.frames import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from numpy.typing import NDArray

FFT_SAMPLES = 1_024
HOP_SAMPLES = SAMPLE_RATE_HZ // 100
MEL_BANDS = 80
# A codec trained on other voices keeps within these on telephone speech; codes of another clip, or
# a frame late, do not (tests/work/test_tokens.py).
MAX_LOG_MEL_DISTANCE_DB = 12.0
MIN_ENVELOPE_CORRELATION = 0.8
_AUDIBLE_DB = 60.0  # Below the clip's loudest cell by more than this is not heard.


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Of one clip, or the means of several."""

    log_mel_distance_db: float
    envelope_correlation: float


def compare(original: NDArray[np.float32], decoded: NDArray[np.float32]) -> Fidelity:
    """Fidelity of `decoded` to `original`, float32 samples at 24 kHz; the longer one is cut."""
    length = min(len(original), len(decoded))
    original_db, decoded_db = _log_mel(original[:length]), _log_mel(decoded[:length])
    floor = float(original_db.max()) - _AUDIBLE_DB
    audible = original_db >= floor
    difference = np.abs(original_db - np.maximum(decoded_db, floor))
    distance = float(difference[audible].mean())
    envelopes = [_envelope_db(samples[:length]) for samples in (original, decoded)]
    if min(float(envelope.std()) for envelope in envelopes) < 1e-6:
        return Fidelity(distance, 0.0)
    return Fidelity(distance, float(np.corrcoef(envelopes[0], envelopes[1])[0, 1]))


def faults(mean: Fidelity) -> list[str]:
    """What is wrong with a shard's mean fidelity, one line a fault."""
    found: list[str] = []
    if not mean.log_mel_distance_db <= MAX_LOG_MEL_DISTANCE_DB:
        found.append(
            f"log-mel distance {mean.log_mel_distance_db:.2f} dB, at most"
            f" {MAX_LOG_MEL_DISTANCE_DB:g}"
        )
    if not mean.envelope_correlation >= MIN_ENVELOPE_CORRELATION:
        found.append(
            f"envelope correlation {mean.envelope_correlation:.3f}, at least"
            f" {MIN_ENVELOPE_CORRELATION:g}"
        )
    return found


def _frames(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    padded = np.pad(samples.astype(np.float64), FFT_SAMPLES // 2)
    return np.lib.stride_tricks.sliding_window_view(padded, FFT_SAMPLES)[::HOP_SAMPLES]


def _log_mel(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log-mel power in dB, float64 of shape (frames, 80)."""
    spectrum = np.fft.rfft(_frames(samples) * np.hanning(FFT_SAMPLES))
    return 10 * np.log10((np.abs(spectrum) ** 2) @ _mel_filters().T + 1e-10)


def _envelope_db(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    level = 10 * np.log10(np.square(_frames(samples)).mean(axis=1) + 1e-10)
    return np.maximum(level, level.max() - _AUDIBLE_DB)


@lru_cache(maxsize=1)
def _mel_filters() -> NDArray[np.float64]:
    """Triangular filters on the HTK mel scale, float64 of shape (80, 513)."""
    top_mel = 2595 * np.log10(1 + SAMPLE_RATE_HZ / 2 / 700)
    edges_hz = 700 * (10 ** (np.linspace(0, top_mel, MEL_BANDS + 2) / 2595) - 1)
    bins_hz = np.fft.rfftfreq(FFT_SAMPLES, 1 / SAMPLE_RATE_HZ)
    low, centre, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising, falling = (bins_hz - low) / (centre - low), (high - bins_hz) / (high - centre)
    return np.maximum(0.0, np.minimum(rising, falling))
