"""What FFmpeg hears in the bytes of a format, and how like two pieces of speech are."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import av
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEMUXERS = {"opus": "ogg", "mulaw": "mulaw"}
RATE_HZ = 24_000
# Samples that decoders give before the first one, where nothing tells them to drop these.
CODEC_DELAY = {"mp3": 1_105, "aac": 1_024}


def decode(name: str, data: bytes) -> NDArray[np.int16]:
    """All samples of a stream or file, int16, brought to 24 kHz; pcm as it is."""
    if name == "pcm":
        return np.frombuffer(data, "<i2").astype(np.int16)
    options = {"sample_rate": "8000", "ch_layout": "mono"} if name == "mulaw" else {}
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
    blocks: list[NDArray[np.int16]] = []
    with av.open(io.BytesIO(data), format=_DEMUXERS.get(name, name), options=options) as container:
        for frame in [*container.decode(audio=0), None]:
            each = resampler.resample(frame)
            blocks += [np.asarray(one.to_ndarray(), np.int16).reshape(-1) for one in each]
    return np.concatenate(blocks)


def snr_db(heard: NDArray[np.int16], meant: NDArray[np.int16], delay: int = 0) -> float:
    """Signal over difference, in dB, of the samples that both have; `heard` comes `delay` later."""
    count = min(len(heard) - delay, len(meant))
    signal = meant[:count].astype(np.float64)
    noise = heard[delay : delay + count] - signal
    return float(10 * np.log10((signal**2).sum() / max(1e-9, (noise**2).sum())))
