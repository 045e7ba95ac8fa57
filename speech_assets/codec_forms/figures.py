"""Figures of a form: its error, the health of its audio, its time and memory beside its parent's.

`reference_<name>` is of arm A, the parent in float32; `<name>` of arm B, the form.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.bench.figures import percentiles
from speech_assets.codec_forms.comparison import ClipComparison, decibels, pooled_error
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND = "codec_checkpoint"
FULL_CLIPS = 24
FULL_CALLS = 60
"""Enough for a p95 of the decode time."""


@dataclass(frozen=True, slots=True)
class ArmCosts:
    """What one codec costs.

    Attributes:
        file_bytes: of its weights file; 0 for random weights, which have none.
        weights_bytes: of its tensors as loaded, in float32, before the decoder is made of them.
        resident_mib: memory of a process (on a GPU: device memory) that it and its decoder took,
            after a call of the decoder; the loaded codec is let go of, as the server does.
        peak_mib: the same at its highest.
        load_ms: of each loading, file in the page cache.
        decode_ms_per_audio_s: by rows of a call, of each call: time for a second of audio.
    """

    file_bytes: int
    weights_bytes: int
    resident_mib: float
    peak_mib: float
    load_ms: tuple[float, ...]
    decode_ms_per_audio_s: Mapping[int, tuple[float, ...]]


def codec_figures(
    clips: Sequence[ClipComparison],
    exact_clips: Sequence[ClipComparison],
    form: ArmCosts,
    reference: ArmCosts,
) -> dict[str, Figure]:
    """Figures of the comparison `clips` and of both arms' costs.

    Args:
        clips: arm B decoded in the dtype that it is served in.
        exact_clips: arm B decoded in float32: the error that is the form's alone.
    """
    return {
        **_errors(clips, ""),
        **_errors(exact_clips, "form_"),
        **_health(clips),
        **_costs(form, ""),
        **_costs(reference, "reference_"),
        **_ratios(form, reference),
    }


def _errors(clips: Sequence[ClipComparison], prefix: str) -> dict[str, Figure]:
    n, error = len(clips), pooled_error(clips)
    worst = max(clip.relative_error for clip in clips)
    samples = sum(clip.samples for clip in clips)
    steps = sum(clip.pcm_mean_difference * clip.samples for clip in clips)
    figures = {
        "relative_error": Figure(error, "ratio", n),
        "worst_relative_error": Figure(worst, "ratio", n),
        "pcm_mean_difference": Figure(steps / samples if samples else 0.0, "pcm steps", n),
        "pcm_max_difference": Figure(
            max(clip.pcm_max_difference for clip in clips), "pcm steps", n
        ),
    }
    if error > 0:  # The same waveform has no decibels.
        figures["relative_error_db"] = Figure(decibels(error), "dB", n)
        figures["worst_relative_error_db"] = Figure(decibels(worst), "dB", n)
    return {prefix + name: figure for name, figure in figures.items()}


def _health(clips: Sequence[ClipComparison]) -> dict[str, Figure]:
    n = len(clips)
    figures = {
        "sample_count_mismatches": Figure(
            sum(clip.samples != clip.reference_samples for clip in clips), "clips", n
        ),
        "flagged_clips": Figure(sum(bool(clip.flags) for clip in clips), "clips", n),
        "clicks": Figure(sum(clip.health.clicks or 0 for clip in clips), "", n),
    }
    arms = {
        "": [clip.health for clip in clips],
        "reference_": [clip.reference_health for clip in clips],
    }
    for prefix, healths in arms.items():
        samples = max(sum(health.samples for health in healths), 1)
        figures |= {
            f"{prefix}non_finite": Figure(sum(h.non_finite for h in healths), "samples", n),
            f"{prefix}clipped_share": Figure(
                sum(h.clipped_share * h.samples for h in healths) / samples, "share", n
            ),
            f"{prefix}silence_share": Figure(
                sum(h.silence_share * h.samples for h in healths) / samples, "share", n
            ),
            f"{prefix}largest_dc_offset": Figure(
                max(abs(h.dc_offset) for h in healths), "full scale", n
            ),
        }
    return figures


def _costs(arm: ArmCosts, prefix: str) -> dict[str, Figure]:
    figures = {
        "file_bytes": Figure(arm.file_bytes, "B"),
        "weights_bytes": Figure(arm.weights_bytes, "B"),
        "resident_mib": Figure(arm.resident_mib, "MiB"),
        "peak_mib": Figure(arm.peak_mib, "MiB"),
        **percentiles("load_ms", arm.load_ms, (50, 95), "ms"),
    }
    for rows, values in arm.decode_ms_per_audio_s.items():
        figures |= percentiles(decode_name(rows), values, (50, 95), "ms/s")
    return {prefix + name: figure for name, figure in figures.items()}


def _ratios(form: ArmCosts, reference: ArmCosts) -> dict[str, Figure]:
    """Median over pairs of calls made one after the other: what disturbs one disturbs both."""
    figures: dict[str, Figure] = {}
    for rows, values in form.decode_ms_per_audio_s.items():
        pairs = zip(values, reference.decode_ms_per_audio_s[rows], strict=True)
        ratios = [b / a for b, a in pairs]
        figures[f"decode_time_ratio_rows{rows}"] = Figure(
            statistics.median(ratios), "ratio", len(ratios)
        )
    return figures


def decode_name(rows: int) -> str:
    """Name of the decode time of calls of `rows` rows: ms for a second of their audio."""
    return f"decode_ms_per_audio_s_rows{rows}"
