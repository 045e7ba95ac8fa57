"""Streams that another GPU would hold: kernels scaled by bandwidth, the rest as it is."""

from __future__ import annotations

import pytest

from speech_assets.scaling.assumptions_file import load_assumptions
from speech_assets.scaling.streams_elsewhere import (
    elsewhere_table,
    step_to_step_ms,
    streams_held,
)

ROW = {"streams": 1, "interval_ms_mean": 4.0, "lm_ms": 2.0, "codec_ms": 1.0, "overlap_ms": 0.5}


def test_kernels_last_longer_and_python_does_not() -> None:
    assert step_to_step_ms(ROW, 1.0) == pytest.approx(4.0)
    assert step_to_step_ms(ROW, 16.0) == pytest.approx(2.5 * 16 + 1.5)
    # Under the profiler kernels may add up to more than the steps took.
    assert step_to_step_ms({**ROW, "interval_ms_mean": 2.0}, 1.0) == pytest.approx(2.5)


def test_streams_lie_on_the_line_between_two_levels() -> None:
    curve = [(128, 14.0), (1, 3.0), (64, 10.0)]
    assert streams_held(curve, budget_ms=12.0) == 96
    assert streams_held(curve, budget_ms=20.0) == 128
    assert streams_held(curve, budget_ms=2.0) == 0
    assert streams_held([], budget_ms=2.0) == 0


def test_a_curve_is_told_for_each_gpu_of_the_assumptions_but_not_without_a_trace() -> None:
    result = {
        "name": "untrained-bf16",
        "device": {"name": "NVIDIA H200"},
        "rows": [ROW, {**ROW, "streams": 64, "lm_ms": 4.0, "interval_ms_mean": 6.0}],
    }
    assumptions = load_assumptions()
    lines = elsewhere_table([result], assumptions).splitlines()[2:]
    assert len(lines) == len(assumptions.devices)
    assert "| L4 | 16 | 41.5 (1) | 0 |" in lines[0]
    assert "| H200 | 1 | 4 (1) | at least 64 |" in lines[-1]
    untraced = {**result, "rows": [{"streams": 1, "interval_ms_mean": 4.0}]}
    assert elsewhere_table([untraced], assumptions) == "No result is published yet."
    cpu = {**result, "device": {"name": "AMD EPYC"}}
    assert elsewhere_table([cpu], assumptions) == "No result is published yet."
