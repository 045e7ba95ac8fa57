"""The table of figures over runs, and their spread."""

from __future__ import annotations

import math
from dataclasses import replace

from history.runs import load_run, rows_of, speed_run

from speech_assets.history.figures import figures_table, spread


def test_a_figure_varies_over_runs_whatever_their_order() -> None:
    runs = [speed_run(day, value) for day, value in ((3, 98.0), (1, 100.0), (2, 102.0))]
    varied = spread(figures_table(runs))["tokens_per_s"]
    assert (varied.runs, varied.mean, varied.lowest, varied.highest) == (3, 100.0, 98.0, 102.0)
    assert varied.deviation == 2.0  # sqrt((0 + 4 + 4) / 2)
    assert (varied.run, varied.last) == ("2026-11-03T10:00:00Z", 98.0)


def test_one_run_has_no_deviation() -> None:
    varied = spread(figures_table([speed_run(1, 5.0)]))["tokens_per_s"]
    assert math.isnan(varied.deviation)


def test_a_levels_figure_is_the_median_over_seeds_with_their_range() -> None:
    rows = [replace(row, seed=seed) for seed in (1, 2, 3) for row in rows_of(100.0 * seed)]
    varied = spread(figures_table([load_run(1, rows)]))["ttfa_ms_p50 at generating 2"]
    assert (varied.last, varied.low, varied.high, varied.n) == (400.0, 200.0, 600.0, 50)


def test_figures_of_no_run_are_an_empty_table() -> None:
    assert spread(figures_table([])) == {}
