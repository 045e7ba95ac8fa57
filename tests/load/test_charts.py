"""Charts and tables: the data that they show is the rows'; same data, same bytes."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, replace

import pytest
from load.rows import level_row

from speech_assets.load.charts import charts_of, levels_csv
from speech_assets.load.summary import load_figures, unbounded
from speech_assets.load.tables import levels_table, load_tests_table

ROWS = [
    level_row(1),
    level_row(2),
    level_row(4, is_passed=False),
    level_row(1, load="listening"),
]


def table(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_a_chart_shows_the_levels_of_each_load() -> None:
    charts = {chart.name: chart for chart in charts_of(ROWS)}
    assert set(charts) == {"latency", "rtf", "faults"}
    rows = table(charts["rtf"].csv())
    assert [row["level"] for row in rows] == ["1", "2", "4"]
    assert [float(row["generating: RTF p95"]) for row in rows] == pytest.approx([0.45, 0.9, 1.8])
    assert [row["listening: RTF p50"] for row in rows] == ["0.4", "", ""]
    assert charts["rtf"].limit == 1.0
    faults = table(charts["faults"].csv())
    assert [float(row["generating: with underrun"]) for row in faults] == [0, 0, 20]


def test_of_several_seeds_the_median_is_drawn() -> None:
    rows = []
    for seed, value in enumerate((100.0, 300.0, 110.0)):
        figures = {"ttfa_ms_p50": {"value": value, "unit": "ms", "n": 50}}
        rows.append(level_row(1, seed=seed, figures=figures))
    [latency, *_] = charts_of(rows)
    assert latency.series[0].points == ((1, 110.0),)


def test_a_picture_is_small_and_the_same_for_the_same_data() -> None:
    for chart in charts_of(ROWS):
        png = chart.draw()
        assert png.startswith(b"\x89PNG")
        assert len(png) < 60_000
        assert png == chart.draw()
        svg = chart.draw("svg")
        assert b"</svg>" in svg
        assert svg == chart.draw("svg")


def test_a_level_that_failed_is_crossed_out() -> None:
    charts = {chart.name: chart for chart in charts_of(ROWS)}
    assert [(s.name, s.failed) for s in charts["rtf"].series] == [
        ("generating: RTF p50", (4,)),
        ("generating: RTF p95", (4,)),
        ("listening: RTF p50", ()),
        ("listening: RTF p95", ()),
    ]
    failed = replace(charts["rtf"], series=charts["rtf"].series[:1])
    passed = replace(failed, series=(replace(failed.series[0], failed=()),))
    assert failed.draw() != passed.draw()


def test_what_no_level_has_is_not_drawn() -> None:
    rows = [level_row(1, figures={})]
    assert [chart.name for chart in charts_of(rows)] == ["faults"]


def test_every_level_is_in_the_csv() -> None:
    rows = table(levels_csv(ROWS))
    assert [(row["load"], row["level"], row["passed"]) for row in rows] == [
        ("generating", "1", "True"),
        ("generating", "2", "True"),
        ("generating", "4", "False"),
        ("listening", "1", "True"),
    ]
    assert rows[1]["ttfa_ms_p50"] == "200.0"
    assert rows[2]["failures"] == "3 underruns in 2 of 50 requests"


def test_figures_are_those_of_the_largest_passing_level() -> None:
    figures = load_figures(ROWS)
    assert figures["max_realtime_streams_generating"].value == 2
    assert figures["max_realtime_streams_generating_with_margin"].value == 1
    assert figures["max_realtime_streams_listening"].value == 1
    assert figures["figures_at_level"].value == 2
    assert figures["rtf_p95"].value == 0.9
    assert figures["rtf_p95"].n == 50
    assert figures["first_level_ttfa_ms_p50"].value == 100
    assert "ttfs_ms_p95" not in figures
    assert unbounded(ROWS) == ["listening"]


def test_where_nothing_passes_there_are_figures_of_the_lowest_level_alone() -> None:
    figures = load_figures([level_row(1, is_passed=False), level_row(2, is_passed=False)])
    assert figures["max_realtime_streams_generating"].value == 0
    assert "figures_at_level" not in figures
    assert "rtf_p95" not in figures
    assert figures["first_level_rtf_p50"].value == 0.4


def test_of_several_seeds_the_figure_is_the_median_with_its_range() -> None:
    rows = []
    for seed, value in enumerate((0.5, 0.9, 0.6)):
        figures = {"rtf_p95": {"value": value, "unit": "", "n": 50}}
        rows.append(level_row(1, seed=seed, figures=figures))
    figure = load_figures(rows)["rtf_p95"]
    assert (figure.value, figure.ci_low, figure.ci_high, figure.n) == (0.6, 0.5, 0.9, 150)


def test_the_table_says_what_a_reader_must_know_first() -> None:
    result = {
        "name": "small",
        "reduced": True,
        "started_at": "2026-11-29T10:00:00Z",
        "device": {"name": "A CPU"},
        "config": {
            "no_level_failed": ["listening"],
            "client_faults": ["generating 2: late"],
            "sweep": {"duration_s": 10.0},
        },
        "figures": {name: asdict(figure) for name, figure in load_figures(ROWS).items()},
    }
    row = load_tests_table([result]).splitlines()[2]
    assert row.startswith("| small (reduced, client late) | A CPU | 2 | 1 | at least 1 | 0 | 100 |")
    assert row.endswith("| 10 | 2026-11-29 |")
    assert load_tests_table([]) == "No result is published yet."
    assert "3 underruns" in levels_table([asdict(row) for row in ROWS])
