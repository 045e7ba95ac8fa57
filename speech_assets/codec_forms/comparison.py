"""One clip decoded twice from the same codes: by the parent, arm A, and by a form of it, arm B."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from speech_assets.audio_health import AudioHealth, as_pcm, audio_health

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ClipComparison:
    """What of a clip differs. Differences are over the samples that both arms have.

    Attributes:
        id: of the clip.
        samples, reference_samples: of arm B and arm A: 2,048 a frame, or an arm is broken.
        error_energy: sum of (B - A) squared, of waveforms with full scale 1.
        reference_energy: sum of A squared.
        pcm_mean_difference, pcm_max_difference: of 16-bit PCM, without sign, in steps of it.
        health, reference_health: of each arm's audio.
        flags: what is wrong with arm B and not with arm A.
    """

    id: str
    samples: int
    reference_samples: int
    error_energy: float
    reference_energy: float
    pcm_mean_difference: float
    pcm_max_difference: int
    health: AudioHealth
    reference_health: AudioHealth
    flags: tuple[str, ...]

    @property
    def relative_error(self) -> float:
        """|B - A| / |A|, Euclidean norms; see `pooled_error`."""
        return pooled_error([self])

    def as_row(self) -> dict[str, Any]:
        """JSON value, with the relative error."""
        return {**asdict(self), "relative_error": self.relative_error}


def compare_clip(
    name: str, audio: NDArray[np.floating], reference: NDArray[np.floating]
) -> ClipComparison:
    """What `audio`, arm B, differs in from `reference`, arm A.

    Both are waveforms of shape (samples,) at 24 kHz with full scale 1. A value that is no number
    counts as 0 here and is counted in `health`.
    """
    health = audio_health(audio, reference)
    reference_health = audio_health(reference)
    shared = min(len(audio), len(reference))
    a, b = _finite(reference[:shared]), _finite(audio[:shared])
    steps = np.abs(as_pcm(b).astype(np.int32) - as_pcm(a))
    return ClipComparison(
        id=name,
        samples=len(audio),
        reference_samples=len(reference),
        error_energy=float(np.square(b - a).sum()),
        reference_energy=float(np.square(a).sum()),
        pcm_mean_difference=float(steps.mean()) if shared else 0.0,
        pcm_max_difference=int(steps.max()) if shared else 0,
        health=health,
        reference_health=reference_health,
        flags=health.flags(reference_health),
    )


def pooled_error(clips: Sequence[ClipComparison]) -> float:
    """|B - A| / |A| over all samples of `clips`: 0 is the same waveform, 1 as wrong as silence.

    Of references that are silent throughout it is 0 where B is silent, too, else infinite.
    """
    error = sum(clip.error_energy for clip in clips)
    reference = sum(clip.reference_energy for clip in clips)
    if reference == 0:
        return math.inf if error else 0.0
    return math.sqrt(error / reference)


def decibels(relative_error: float) -> float:
    """A relative error (above 0) as 20 log10 of it: 0.01 is -40 dB."""
    return 20 * math.log10(relative_error)


def _finite(audio: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.nan_to_num(audio.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
