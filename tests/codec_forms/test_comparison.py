"""Errors and figures of two arms, by hand, and the table of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from speech_assets.codec_forms.comparison import (
    ClipComparison,
    compare_clip,
    decibels,
    pooled_error,
)
from speech_assets.codec_forms.figures import ArmCosts, codec_figures
from speech_assets.codec_forms.tables import codec_forms_table

REFERENCE = np.array([0.3, -0.4, 0.0, 0.0])
AUDIO = np.array([0.3, -0.4, 0.03, -0.04])
COSTS = ArmCosts(4 << 20, 8 << 20, 90.0, 100.0, (10.0, 30.0, 20.0), {1: (3.0, 1.0), 8: (4.0, 9.0)})
REFERENCE_COSTS = ArmCosts(10 << 20, 20 << 20, 95.0, 120.0, (50.0,), {1: (2.0, 2.0), 8: (8.0, 9.0)})


def clip(error: float, reference: float, **changes: object) -> ClipComparison:
    made = compare_clip("a", AUDIO, REFERENCE)
    return replace(made, error_energy=error, reference_energy=reference, **changes)


def test_the_difference_of_two_waveforms_is_that_worked_out_by_hand() -> None:
    found = compare_clip("a", AUDIO, REFERENCE)
    # |B - A| = sqrt(0.0009 + 0.0016) = 0.05, |A| = 0.5. In PCM 0.03 is 983 and -0.04 is -1311.
    assert found.relative_error == pytest.approx(0.1)
    assert decibels(found.relative_error) == pytest.approx(-20)
    assert found.pcm_max_difference == 1_311
    assert found.pcm_mean_difference == (983 + 1_311) / 4
    assert (found.samples, found.reference_samples) == (4, 4)
    assert found.as_row()["relative_error"] == found.relative_error


def test_the_same_waveform_has_no_error_and_no_flag() -> None:
    found = compare_clip("a", REFERENCE, REFERENCE)
    assert found.relative_error == 0
    assert found.pcm_max_difference == 0
    assert found.flags == ()


def test_a_shorter_arm_is_told_and_compared_over_what_both_have() -> None:
    found = compare_clip("a", AUDIO[:2], REFERENCE)
    assert (found.samples, found.reference_samples) == (2, 4)
    assert found.relative_error == 0
    assert compare_clip("a", AUDIO[:0], REFERENCE).pcm_max_difference == 0


def test_a_value_that_is_no_number_is_flagged_and_leaves_errors_finite() -> None:
    broken = AUDIO.copy()
    broken[0] = np.nan
    found = compare_clip("a", broken, REFERENCE)
    assert "non_finite" in found.flags
    assert math.isfinite(found.relative_error)


def test_errors_are_pooled_by_energy_not_averaged() -> None:
    # sqrt((1 + 0) / (100 + 300)), where the mean of both errors would be 0.05.
    assert pooled_error([clip(1.0, 100.0), clip(0.0, 300.0)]) == pytest.approx(0.05)
    assert pooled_error([clip(1.0, 100.0), clip(9.0, 300.0)]) == pytest.approx(math.sqrt(0.025))
    assert pooled_error([clip(0.0, 0.0)]) == 0
    assert pooled_error([clip(1.0, 0.0)]) == math.inf


def test_figures_are_those_worked_out_by_hand() -> None:
    served = [clip(1.0, 100.0), clip(9.0, 300.0, flags=("clicks",), samples=12)]
    figures = codec_figures(served, [clip(0.0, 100.0)], COSTS, REFERENCE_COSTS)
    values = {name: figure.value for name, figure in figures.items()}
    assert values["relative_error_db"] == pytest.approx(10 * math.log10(0.025))
    assert values["worst_relative_error"] == pytest.approx(math.sqrt(0.03))
    assert values["pcm_mean_difference"] == pytest.approx(2_294 / 4)
    assert values["form_relative_error"] == 0
    assert "form_relative_error_db" not in values
    assert values["sample_count_mismatches"] == 1
    assert values["flagged_clips"] == 1
    assert values["file_bytes"] == 4 << 20
    assert values["reference_weights_bytes"] == 20 << 20
    assert values["load_ms_p50"] == 20
    # Of pairs (3 / 2, 1 / 2) and (4 / 8, 9 / 9): not of the medians.
    assert values["decode_time_ratio_rows1"] == 1.0
    assert values["decode_time_ratio_rows8"] == 0.75
    assert "decode_ms_per_audio_s_rows1_p95" not in values  # Of 40 values or more.
    assert all(math.isfinite(value) for value in values.values())


def test_health_of_both_arms_is_weighed_by_samples() -> None:
    loud = np.concatenate([np.full(240, 0.5), np.zeros(240)])
    quiet = np.zeros(240)
    clips = [compare_clip("a", loud, loud), compare_clip("b", quiet, quiet)]
    figures = codec_figures(clips, clips, COSTS, REFERENCE_COSTS)
    # Half of 480 samples and all of 240.
    assert figures["silence_share"].value == pytest.approx(480 / 720)
    assert figures["reference_silence_share"].value == figures["silence_share"].value
    assert figures["flagged_clips"].value == 0


def test_the_table_shows_both_arms_and_what_is_wrong() -> None:
    served = [clip(1.0, 100.0, flags=("clicks",))]
    figures = codec_figures(served, [clip(0.0, 100.0)], COSTS, REFERENCE_COSTS)
    result = {
        "config": {"form": "int8", "dtype": "bfloat16", "parent": {"name": "snac-5.1M-abc"}},
        "device": {"name": "Chip"},
        "reduced": True,
        "started_at": "2026-11-30T00:00:00Z",
        "rows": [row.as_row() for row in served],
        "figures": {name: figure.as_json() for name, figure in figures.items()},
    }
    heads, _, row = codec_forms_table([result]).splitlines()
    cells = dict(zip(heads.split(" | "), row.split(" | "), strict=True))
    assert cells["| form"] == "| int8 (reduced)"
    assert cells["file, MiB"] == "10 -> 4"
    assert cells["load p50, ms"] == "50 -> 20"
    assert cells["decode, ms a second of audio, 1 row"] == "2 -> 1"
    assert cells["error, dB"] == "-20.0"
    assert cells["of the form alone, dB"] == "none"
    assert cells["audio"] == "clicks"
