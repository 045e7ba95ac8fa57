"""Load in the report: levels that failed, of how many requests a percentile is, shares."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest
from load.rows import level_row
from report.filled import A, evidence_in, put

from resources.store import Store
from speech_assets.load.server_figures import BUSY
from speech_assets.load.summary import load_figures
from speech_assets.report.load import load_section

if TYPE_CHECKING:
    from pathlib import Path

    from speech_assets.report.section import Section


def section(root: Path, busy_name: str = BUSY) -> Section:
    """Of levels 1, 2 and 4, the last of which failed; 50 requests each, the thread busy at 87 %."""
    rows = [level_row(level, is_passed=level < 4) for level in (1, 2, 4)]
    busy = {busy_name: {"value": 0.8712, "unit": "share", "n": 1}}
    rows = [replace(row, figures={**row.figures, **busy}) for row in rows]
    store = Store(str(root))
    put(
        store,
        kind="load_tests",
        name=A,
        config={
            "client_faults": [],
            "sweep": {"levels": [1.0, 2.0, 4.0], "duration_s": 60.0, "loads": ["generating"]},
        },
        rows=[asdict(row) for row in rows],
        figures=load_figures(rows),
        seeds=[1],
    )
    return load_section(evidence_in(store))


def test_levels_that_failed_are_marked_in_each_chart(tmp_path: Path) -> None:
    charts = section(tmp_path).charts
    assert charts
    for chart in charts:
        assert all(line.failed == (4,) for line in chart.lines)
        assert "failed at 4" in chart.description


def test_a_p95_says_of_how_many_requests_it_is(tmp_path: Path) -> None:
    shown = section(tmp_path)
    [rtf] = [chart for chart in shown.charts if chart.name == "load-generating-rtf"]
    assert [line.name for line in rtf.lines] == [f"{A} p50", f"{A} p95 (n = 50)"]
    summary, levels = shown.tables
    for table in (summary, levels):
        place = table.heads.index("RTF p95")
        assert all(row[place].text.endswith(" (n = 50)") for row in table.rows)
    assert [row[levels.heads.index("requests")].text for row in levels.rows] == ["50"] * 3


@pytest.mark.parametrize("name", [BUSY, "device_busy_share"])
def test_the_engines_thread_is_busy_in_percent_whatever_the_figure_was_called(
    tmp_path: Path, name: str
) -> None:
    _, levels = section(tmp_path, name).tables
    cells = [row[levels.heads.index("engine thread busy")] for row in levels.rows]
    assert [(cell.text, cell.value) for cell in cells] == [("87.1 %", 0.8712)] * 3
