"""One clip in the many forms in which clips come, as libsndfile and FFmpeg write them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import soundfile
import soxr

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE_HZ = 24_000


def written(
    samples: NDArray[Any], rate_hz: int = RATE_HZ, form: str = "WAV", subtype: str | None = None
) -> bytes:
    """`samples`, which are at `rate_hz`, as libsndfile writes them."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=form, subtype=subtype)
    return file.getvalue()


def encoded(
    samples: NDArray[Any],
    container: str,
    codec: str,
    rate_hz: int = RATE_HZ,
    *,
    streamed: bool = False,
    **options: str,
) -> bytes:
    """Mono 24 kHz `samples` as FFmpeg encodes them; `streamed`: its writer cannot go back."""
    pcm = np.rint(np.clip(soxr.resample(samples, RATE_HZ, rate_hz), -1, 1) * 32767)
    whole = av.AudioFrame.from_ndarray(pcm.astype(np.int16)[None], format="s16", layout="mono")
    whole.sample_rate, whole.pts = rate_hz, 0
    file = io.BytesIO()
    target: Any = _OneWay(file) if streamed else file
    with av.open(target, "w", format=container, options=options) as output:
        stream: Any = output.add_stream(codec, rate=rate_hz)
        stream.layout = "mono"
        stream.codec_context.open()
        resampler = av.AudioResampler(
            format=stream.codec_context.format,
            layout="mono",
            rate=rate_hz,
            frame_size=stream.codec_context.frame_size or None,
        )
        for frame in [*resampler.resample(whole), *resampler.resample(None), None]:
            output.mux(stream.encode(frame))
    return file.getvalue()


def likeness(heard: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Peak of the normalised cross-correlation: 1.0 for one content at any delay and gain."""
    size = 1 << (len(heard) + len(reference)).bit_length()
    product = np.fft.rfft(heard, size) * np.conj(np.fft.rfft(reference, size))
    peak = np.fft.irfft(product, size).max()
    return float(peak / (np.linalg.norm(heard) * np.linalg.norm(reference)))


class _OneWay:
    """A file that can only be appended to."""

    def __init__(self, file: io.BytesIO) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        return self._file.write(data)
