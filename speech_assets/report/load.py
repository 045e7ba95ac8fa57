"""Load tests: what each level gave, by preset. The two loads are never in one chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.load.charts import medians
from speech_assets.load.levels import LOADS, LevelRow, Load, row_from
from speech_assets.report.cells import MISSING, Cell, figure, number, table
from speech_assets.report.charts import Chart, Line, charts_with_data
from speech_assets.report.headline import streams
from speech_assets.report.section import Section, named, not_measured, run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.report.cells import Table
    from speech_assets.report.evidence import Evidence, Found

_X_LABEL = {"generating": "streams generating", "listening": "listeners"}
_LEVEL_FIGURES = {
    "ttfa_ms_p50": "TTFA p50, ms",
    "ttfa_ms_p95": "TTFA p95, ms",
    "ttfs_ms_p50": "TTFS p50, ms",
    "rtf_p50": "RTF p50",
    "rtf_p95": "RTF p95",
    "audio_s_per_s": "audio, s/s",
    "device_busy_share": "device busy",
}


def load_section(evidence: Evidence) -> Section:
    """Streams in realtime, and charts of levels against latency, RTF and throughput."""
    return Section(
        "load",
        "Load",
        paragraphs=(
            (
                "*Generating N* keeps N requests always in flight; *listening N* lets requests "
                "arrive at random, as many as N people listen to. A level passes only if every "
                "request was sent, complete and audible, no player without a buffer ran dry, and "
                "under the generating load the 95th percentile of RTF is below 1. p95 is shown "
                "from 40 requests on."
            ),
        ),
        charts=charts_with_data([chart for load in LOADS for chart in _charts(evidence, load)]),
        tables=_summary(evidence) + _levels(evidence),
        missing=not_measured(
            evidence.without("load_tests"),
            "load test",
            "load_tests",
            "python -m speech_assets.work.load_test --preset NAME",
        ),
    )


def _summary(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "streams generating", "one level less", "streams listening", "one level less",
        "at level", "TTFA p50, ms", "TTFS p95, ms", "RTF p95", "audio, s/s", "s a level", "seeds",
        "from",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for found in evidence.all_of("load_tests"):
        duration_s = float(found.value["config"]["sweep"]["duration_s"])
        rows.append(
            [
                Cell(found.value["name"]),
                streams(found, "generating"),
                streams(found, "generating", "_with_margin"),
                streams(found, "listening"),
                streams(found, "listening", "_with_margin"),
                figure(found, "figures_at_level"),
                figure(found, "ttfa_ms_p50"),
                figure(found, "ttfs_ms_p95"),
                figure(found, "rtf_p95"),
                figure(found, "audio_s_per_s"),
                Cell(f"{duration_s:g}", duration_s, found.id, "config.sweep.duration_s"),
                Cell(", ".join(map(str, found.value["seeds"]))),
                named(found, evidence),
            ]
        )
    caption = "The largest level that each preset holds, and its figures there"
    return table(caption, heads, rows)


def _levels(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset",
        "load",
        "level",
        "seed",
        "passed",
        *_LEVEL_FIGURES.values(),
        "why not",
        "from",
    )
    rows: list[list[Cell]] = []
    for found in evidence.all_of("load_tests"):
        for index, value in enumerate(found.value["rows"]):
            row = row_from(value)
            rows.append(
                [
                    Cell(found.value["name"]),
                    Cell(row.load),
                    Cell(f"{row.level:g}", row.level, found.id, f"rows.{index}.level"),
                    Cell(str(row.seed)),
                    Cell("yes" if row.passed else "no"),
                    *(_level_figure(found, index, row, name) for name in _LEVEL_FIGURES),
                    Cell("; ".join(row.failures)),
                    run_of(found),
                ]
            )
    return table("Every level of every load test", heads, rows)


def _level_figure(found: Found, index: int, row: LevelRow, name: str) -> Cell:
    value = row.value(name)
    if value is None:
        return Cell(MISSING)
    return Cell(number(value), value, found.id, f"rows.{index}.figures.{name}")


def _charts(evidence: Evidence, load: Load) -> list[Chart]:
    label = _X_LABEL[load]
    return [
        Chart(
            f"load-{load}-ttfa",
            f"Time to first audio, {load}",
            label,
            "ms",
            _lines(evidence, load, ("ttfa_ms_p50", "ttfa_ms_p95")),
        ),
        Chart(
            f"load-{load}-rtf",
            f"Real-time factor, {load}",
            label,
            "RTF",
            _lines(evidence, load, ("rtf_p50", "rtf_p95")),
            limit=1.0,
            limit_name="as fast as it plays",
        ),
        Chart(
            f"load-{load}-throughput",
            f"Audio made, {load}",
            label,
            "seconds of audio a second",
            _lines(evidence, load, ("audio_s_per_s",)),
        ),
    ]


def _lines(evidence: Evidence, load: Load, names: Sequence[str]) -> tuple[Line, ...]:
    """A line of each preset and figure, the median of the seeds at each level; p95 is dashed."""
    lines: list[Line] = []
    for found in evidence.all_of("load_tests"):
        preset = str(found.value["name"])
        rows = [row_from(value) for value in found.value["rows"]]
        for name in names:
            if points := medians(rows, load, lambda row, name=name: row.value(name)):
                percentile = name.rpartition("_")[2]
                label = f"{preset} {percentile}" if len(names) > 1 else preset
                is_dashed = percentile == "p95"
                lines.append(Line(label, points, evidence.presets.index(preset), is_dashed))
    return tuple(lines)
