"""DNSMOS: Microsoft's estimate of how people would rate noise and distortion of speech, 1 to 5.

The networks are those of the package ``speechmos`` (MIT); what that needs librosa for, one mel
spectrogram, is of `speech_assets.mel`. It judges noise, not whether speech is natural.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from speech_assets.mel import SAMPLE_RATE_HZ, mel_power

if TYPE_CHECKING:
    import onnxruntime

WINDOW_S = 9.01
_WINDOW_SAMPLES = round(WINDOW_S * SAMPLE_RATE_HZ)
# Raw outputs to the scale of listeners, highest power first, as published with the networks.
_SIGNAL = np.poly1d([-0.08397278, 1.22083953, 0.0052439])
_NOISE = np.poly1d([-0.13166888, 1.60915514, -0.39604546])
_OVERALL = np.poly1d([-0.06766283, 1.11546468, 0.04602535])
_FFT, _FFT_HOP, _BANDS = 321, 160, 120  # Of the spectrogram that the P.808 network reads.


@dataclass(frozen=True, slots=True)
class Quality:
    """Ratings of one clip, 1 to 5."""

    overall: float
    signal: float
    noise: float
    p808: float


class Dnsmos:
    """The two networks, loaded; calling it rates a clip.

    Raises:
        ModuleNotFoundError: speechmos or onnxruntime is not installed.
    """

    def __init__(self) -> None:
        found = importlib.util.find_spec("speechmos")
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError("No module named 'speechmos'", name="speechmos")
        folder = Path(found.submodule_search_locations[0]) / "dnsmos_models"
        self._rating = _session(folder / "sig_bak_ovr.onnx")
        self._p808 = _session(folder / "model_v8.onnx")

    def __call__(self, samples: NDArray[np.float32]) -> Quality:
        """Ratings of `samples`, float32 (samples,) at 16 kHz in -1..1.

        A clip shorter than 9 s is repeated; a longer one is rated each second and averaged.

        Raises:
            ValueError: there are no samples.
        """
        if not len(samples):
            raise ValueError("no samples to rate")
        audio = samples
        while len(audio) < _WINDOW_SAMPLES:
            audio = np.concatenate([audio, audio])
        # As published: one window each second, but none that begins in the last begun second.
        count = max(1, len(audio) // SAMPLE_RATE_HZ - int(WINDOW_S))
        starts = range(0, count * SAMPLE_RATE_HZ, SAMPLE_RATE_HZ)
        rows = [self._window(audio[start : start + _WINDOW_SAMPLES]) for start in starts]
        return Quality(*(float(v) for v in np.mean(rows, 0)))

    def _window(self, audio: NDArray[np.float32]) -> tuple[float, float, float, float]:
        rated: Any = self._rating.run(None, {"input_1": audio[None]})
        signal, noise, overall = rated[0][0]
        spectrogram = mel_spectrogram(audio[:-_FFT_HOP])[None]
        opinion: Any = self._p808.run(None, {"input_1": spectrogram})
        return _OVERALL(overall), _SIGNAL(signal), _NOISE(noise), float(opinion[0][0][0])


def mel_spectrogram(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 (steps, 120): power in decibels below the loudest, as (x + 40) / 40, floor -80 dB.

    Equal to librosa's `melspectrogram` and `power_to_db` with their defaults.
    """
    mel = np.maximum(mel_power(audio, _FFT, _FFT_HOP, _BANDS), 1e-10)
    decibels = 10 * np.log10(mel / max(float(mel.max()), 1e-10))
    return ((np.maximum(decibels, decibels.max() - 80) + 40) / 40).astype(np.float32)


def _session(path: Path) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # Two threads on two shared cores wait for each other.
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
