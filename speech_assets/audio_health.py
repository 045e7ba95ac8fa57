"""Whether audio is sound as a signal: clipping, clicks, DC offset, silence, values that are none.

It says nothing of how well something is spoken. Where audio has a reference (the same codes decoded
by another codec, the same sentence of another preset), what the reference has is no fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.level import FULL_SCALE, amplitude, block_rms

if TYPE_CHECKING:
    from numpy.typing import NDArray

SILENCE_DBFS = -50.0
"""RMS below which 10 ms are silent: as the server's guards and tail have it."""
CLICK_RATIO = 1.5
"""A jump from one sample to the next is a click when it exceeds the reference's largest so much."""
MAX_CLIPPED_SHARE = 1e-4
MAX_DC_OFFSET = 0.01
MAX_SILENCE_SHARE = 0.9
_LARGEST = FULL_SCALE - 1


@dataclass(frozen=True, slots=True)
class AudioHealth:
    """Facts of one clip.

    Attributes:
        samples: of the clip.
        non_finite: samples that are NaN or infinite; the other facts take them as 0.
        clipped_share: share of the samples at full scale (32,767, -32,767 or beyond).
        dc_offset: mean of the samples; full scale is 1.
        silence_share: share of whole 10 ms blocks whose RMS is below -50 dBFS; 1 where there is
            no whole block.
        largest_jump: largest difference of two neighbouring samples; full scale is 1, so at most 2.
        clicks: jumps of more than 1.5 times the reference's largest; None without a reference.
    """

    samples: int
    non_finite: int
    clipped_share: float
    dc_offset: float
    silence_share: float
    largest_jump: float
    clicks: int | None = None

    def flags(self, reference: AudioHealth | None = None) -> tuple[str, ...]:
        """Names of what is wrong with it, none for healthy audio.

        What `reference` has as much of is not wrong: a quiet recording is quiet in every form.
        """
        allowed = reference or AudioHealth(0, 0, 0.0, 0.0, 0.0, 0.0)
        wrong = {
            "non_finite": self.non_finite > 0,
            "clipping": self.clipped_share > allowed.clipped_share + MAX_CLIPPED_SHARE,
            "clicks": bool(self.clicks),
            "dc_offset": abs(self.dc_offset) > abs(allowed.dc_offset) + MAX_DC_OFFSET,
            "silence": self.silence_share > max(MAX_SILENCE_SHARE, allowed.silence_share),
        }
        return tuple(name for name, is_wrong in wrong.items() if is_wrong)


def audio_health(
    audio: NDArray[np.number], reference: NDArray[np.number] | None = None
) -> AudioHealth:
    """Facts of `audio`, and how it clicks beside `reference`.

    Both are of shape (samples,) at 24 kHz: int16 PCM, or floats with full scale 1.

    Raises:
        ValueError: another dtype or shape.
    """
    pcm = as_pcm(audio)
    quiet = block_rms(pcm) < amplitude(SILENCE_DBFS)
    jumps = sample_jumps(pcm)
    clicks = None
    if reference is not None:
        limit = CLICK_RATIO * _largest(sample_jumps(as_pcm(reference)))
        clicks = int((jumps > limit).sum())
    return AudioHealth(
        samples=len(audio),
        non_finite=int((~np.isfinite(audio)).sum()),
        clipped_share=_mean(np.abs(pcm.astype(np.int32)) >= _LARGEST),
        dc_offset=_mean(pcm) / FULL_SCALE,
        silence_share=_mean(quiet) if len(quiet) else 1.0,
        largest_jump=_largest(jumps) / FULL_SCALE,
        clicks=clicks,
    )


def sample_jumps(pcm: NDArray[np.int16]) -> NDArray[np.int32]:
    """Differences of neighbouring samples without their sign, int32 of shape (samples - 1,)."""
    return np.abs(np.diff(pcm.astype(np.int32)))


def as_pcm(audio: NDArray[np.number]) -> NDArray[np.int16]:
    """int16 of shape (samples,): floats with full scale 1 as the server rounds them (x 32,767).

    Floats beyond full scale become full scale, which counts as clipped; what is no number, 0.

    Raises:
        ValueError: neither int16 nor floats, or not of shape (samples,).
    """
    if audio.ndim != 1 or not (audio.dtype == np.int16 or audio.dtype.kind == "f"):
        raise ValueError(
            f"audio is {audio.dtype} of shape {audio.shape}; give int16 or floats of (samples,)"
        )
    if audio.dtype == np.int16:
        return audio.astype(np.int16, copy=False)
    whole = np.nan_to_num(audio.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return np.clip(np.round(whole * _LARGEST), -_LARGEST, _LARGEST).astype(np.int16)


def _largest(jumps: NDArray[np.int32]) -> float:
    return float(jumps.max()) if len(jumps) else 0.0


def _mean(values: NDArray[np.bool_] | NDArray[np.int16]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
