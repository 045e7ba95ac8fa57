"""What `make demo` does after the corpus, what it says in the end, and how long it says it took."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from report.filled import put_wer, scores

from resources.store import Store
from speech_assets.demo_quality import quality_lines, quality_steps
from speech_assets.demo_time import MADE, demo_result, demo_table, is_new
from speech_assets.errors import ConfigError
from speech_assets.quality.noise import judged
from speech_assets.results.result import Figure, parse_result

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "embedded-bf16", "embedded-w4a16", "embedded-fp8"


def test_presets_speak_and_are_judged_then_load_comparison_and_report() -> None:
    steps = [(step.job, step.partition) for step in quality_steps([A, B, C])]
    assert steps == [
        *(("judge_samples", name) for name in (A, B, C)),
        *(("load_test", A), ("compare_presets", B), ("write_report", None)),
    ]
    assert all(step.is_served for step in quality_steps([A, B, C])[:-1])
    assert quality_steps([]) == []  # A profile of a corpus alone.


def test_what_was_heard_is_said_of_each_preset_that_has_a_result(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert quality_lines(store, [A, B]) == []
    base = scores((0, 1, 0, 0, 0, 0))
    put_wer(store, A, base)
    made = put_wer(store, B, scores((9, 8, 9, 8, 9, 8)), base)
    first, of_a, of_b = quality_lines(store, [A, B, C])
    assert first.startswith("Heard by Whisper")
    assert of_a.startswith(f"  {A}: 2% (0% to ")
    assert "of 6 clips" in of_a
    assert of_b.startswith(f"  {B}: 85% (85% to 85%)")
    assert of_b.endswith(judged(made).detail)


def test_a_demo_is_timed_where_nothing_of_one_was_there(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert is_new(store)
    for prefix in MADE:
        store.write_bytes(f"{prefix}/x/y", b"")
        assert not is_new(store)
        store.delete(f"{prefix}/x/y")


def test_its_time_is_a_result_with_a_row_a_step() -> None:
    made = demo_result("p", "2026-11-30T10:00:00Z", [("a", 30.0), ("b | c", 90.0)], full=False)
    assert made.figures == {"total_s": Figure(120.0, "s", 2)}
    value = parse_result(json.dumps(made.as_json()).encode(), "here")
    line = demo_table([value]).splitlines()[-1]
    assert line.startswith("| `make demo` | ")
    assert " | 2 | 2.0 | b \\| c, 1.5 | 2026-11-30 |" in line
    full = demo_result("p", "2026-11-30T10:00:00Z", [("a", 1.0)], full=True)
    assert (full.name, full.command) == ("p-full", "make demo-full")
    broken = {**value, "rows": []}
    del broken["content_sha256"]
    with pytest.raises(ConfigError, match="rows"):
        parse_result(json.dumps(broken).encode(), "here")
