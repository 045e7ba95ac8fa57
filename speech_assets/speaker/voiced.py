"""The voiced part of a clip as the speaker encoder was trained on it: of one loudness, no pauses.

After `preprocess_wav` of Resemblyzer 0.1.4 (resemblyzer/audio.py), with its settings, but for the
loudness. The original makes quiet clips louder, pauses counted in, and its network hears how loud
speech is: 6 dB less took the cosine of a clip with itself to 0.91. Here all speech is alike loud.
"""

from __future__ import annotations

import numpy as np
import webrtcvad
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
LOUDNESS_DBFS = -30.0  # Root mean square.
SILENT_DBFS = -60.0  # What is not louder would be noise, made loud enough to be taken for speech.
_MODE = 3  # WebRTC's strictest.
_WINDOW = 30 * SAMPLE_RATE_HZ // 1000
_AVERAGED = 8  # Windows, whose majority says voiced or not.
_WIDENED = 7  # A voiced window makes those up to 3 before and after it voiced.
_FULL_SCALE = 32_767


def voiced_part(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The voiced windows of 30 ms of `samples`, joined; both float32 (samples,) at 16 kHz.

    Empty where nothing is voiced; else of `LOUDNESS_DBFS`.
    """
    whole = samples[: len(samples) // _WINDOW * _WINDOW]
    if not len(whole) or _loudness(samples) <= 10 ** (SILENT_DBFS / 20):
        return whole[:0]
    scaled = whole * _gain(samples)
    pcm = np.round(np.clip(scaled, -1, 1) * _FULL_SCALE).astype("<i2").reshape(-1, _WINDOW)
    vad = webrtcvad.Vad(_MODE)
    is_voiced = [vad.is_speech(window.tobytes(), SAMPLE_RATE_HZ) for window in pcm]
    voiced = scaled[np.repeat(_smoothed(np.array(is_voiced, np.float64)), _WINDOW)]
    return voiced * _gain(voiced) if len(voiced) else voiced


def _loudness(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def _gain(samples: NDArray[np.float32]) -> np.float32:
    return np.float32(10 ** (LOUDNESS_DBFS / 20) / _loudness(samples))


def _smoothed(voiced: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each window counts as voiced: more than half of the 8 around it are, or those of a
    window up to 3 away."""
    padded = np.pad(voiced, ((_AVERAGED - 1) // 2, _AVERAGED // 2))
    around = np.convolve(padded, np.ones(_AVERAGED), "valid")
    most = np.pad(around > _AVERAGED / 2, _WIDENED // 2)
    return np.lib.stride_tricks.sliding_window_view(most, _WIDENED).max(1)
