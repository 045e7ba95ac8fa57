"""What streams cost, as rows, figures and tables of measured levels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from server.speech import UtteranceReport
from speech_assets.load.cost_curve import LevelCost, context_tokens, figures
from speech_assets.load.cost_tables import cost_curve_table

LEVEL = LevelCost(
    streams=4,
    window_s=2.0,
    steps_s=[0.005] * 99 + [0.010],
    busy_s=0.705,
    decodes_s=[0.002, 0.004],
    decode_rows=[1, 3],
    samples=4 * 24_000 * 4,
    late_chunks=0,
    reports=[UtteranceReport("stop", ttfa_ms=40.0), UtteranceReport("stop")],
    thread_cores={"engine": 0.5, "event_loop": 0.25, "others": 0.0},
    waited_share=0.01,
    host_memory_bytes=3 << 20,
)


def test_a_levels_parts_add_up_to_the_time_from_step_to_step() -> None:
    row = LEVEL.row()
    assert row["steps"] == 100
    assert row["step_ms_p50"] == pytest.approx(5.0)
    assert row["step_ms_mean"] == pytest.approx(5.05)
    assert row["beside_ms_mean"] == pytest.approx(7.05 - 5.05)
    assert row["interval_ms_mean"] == pytest.approx(20.0)
    parts = ("step_ms_mean", "beside_ms_mean", "between_ms_mean")
    assert sum(row[name] for name in parts) == pytest.approx(row["interval_ms_mean"])
    assert row["decode_ms_mean"] == pytest.approx(3.0)
    assert row["decode_rows_mean"] == pytest.approx(2.0)
    assert row["ttfa_ms_p50"] == 40.0
    assert row["host_memory_mib"] == 3.0


def test_rtf_is_of_all_streams_together() -> None:
    assert LEVEL.row()["rtf"] == pytest.approx(0.5)
    assert replace(LEVEL, samples=0).row()["rtf"] is None


def test_percentiles_are_of_as_many_steps_as_they_need() -> None:
    assert "step_ms_p99" not in LEVEL.row()
    assert LEVEL.row()["step_ms_p95"] == pytest.approx(5.0)
    few = replace(LEVEL, steps_s=[0.005]).row()
    assert "step_ms_p95" not in few


def test_a_level_without_a_step_has_no_times() -> None:
    row = replace(LEVEL, steps_s=[], busy_s=0.0).row()
    assert row["steps"] == 0
    assert row["step_ms_mean"] is row["interval_ms_mean"] is row["beside_ms_mean"] is None


def test_streams_are_held_up_to_the_first_level_with_a_late_chunk() -> None:
    levels = [
        replace(LEVEL, streams=streams, late_chunks=late)
        for streams, late in ((8, 0), (1, 0), (2, 0), (4, 3))
    ]
    found = figures([level.row() for level in levels])
    assert found["streams_without_late_chunk"].value == 2
    assert found["step_ms_p50_8"].value == pytest.approx(5.0)
    assert figures([levels[3].row()])["streams_without_late_chunk"].value == 0


def test_the_mean_context_counts_each_length_for_as_long_as_it_lasts() -> None:
    def report(tokens: int) -> UtteranceReport:
        return UtteranceReport("stop", input_tokens=10, output_tokens=tokens)

    assert context_tokens([report(100)]) == pytest.approx(10 + 50)
    # Of 100 and 300 tokens: three quarters of the time in the longer, at 150 in the mean.
    assert context_tokens([report(100), report(300)]) == pytest.approx(10 + 0.25 * 50 + 0.75 * 150)
    assert context_tokens([UtteranceReport("cancelled")]) is None


def test_the_table_has_a_line_a_level_and_says_what_was_not_traced() -> None:
    traced = replace(LEVEL, trace={"lm_ms": 3.0, "codec_ms": 1.0, "overlap_ms": 0.5, "idle_ms": 1})
    result = {
        "name": "small",
        "reduced": True,
        "started_at": "2026-11-29T10:00:00Z",
        "device": {"name": "A GPU"},
        "config": {"weights": "random"},
        "rows": [LEVEL.row(), traced.row()],
    }
    title, _, _, _, plain, with_trace, _, legend = cost_curve_table([result]).splitlines()
    assert title == "small (reduced), random weights, on A GPU, 2026-11-29:"
    assert plain.startswith("| 4 | 5 | 2 | 12.9 | 20 |")
    assert plain.count("| - ") == 5  # Model, codec, no kernel; TTFS; a GPU's memory.
    assert "| 3 | 1 | 1 |" in with_trace
    assert "*between rounds* come new prompts" in legend
    assert cost_curve_table([]) == "No result is published yet."
