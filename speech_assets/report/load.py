"""Load tests: what each level gave, by preset. The two loads are never in one chart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from speech_assets.bench.figures import LEAST_FOR
from speech_assets.load.charts import medians
from speech_assets.load.levels import LOADS, LevelRow, Load, failed_levels, row_from
from speech_assets.load.server_figures import BUSY, busy_name
from speech_assets.report.cells import MISSING, Cell, figure, number, percent, table
from speech_assets.report.charts import LEAST_OF_A_LINE, Chart, Line, charts_with_data
from speech_assets.report.commands import work_command
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
    BUSY: "engine thread busy",
}
_FORMS = {BUSY: percent}


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
                "under the generating load the 95th percentile of RTF is below 1. In the charts a "
                f"level that failed is crossed out, and fewer than {LEAST_OF_A_LINE} levels are "
                "points without a line. Behind a p95 stands of how many requests it is: it is "
                f"shown from {LEAST_FOR[95]} on, though a level is judged by that of fewer, which "
                "is then the slowest."
            ),
        ),
        charts=charts_with_data([chart for load in LOADS for chart in _charts(evidence, load)]),
        tables=_summary(evidence) + _levels(evidence),
        missing=not_measured(
            evidence.without("load_tests"),
            "load test",
            "load_tests",
            work_command("load_test", "--preset", "NAME"),
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
                _with_n(found, "ttfs_ms_p95"),
                _with_n(found, "rtf_p95"),
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
        "requests",
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
                    Cell(str(row.completed), row.completed, found.id, f"rows.{index}.completed"),
                    *(_level_figure(found, index, row, name) for name in _LEVEL_FIGURES),
                    Cell("; ".join(row.failures)),
                    run_of(found),
                ]
            )
    return table("Every level of every load test", heads, rows)


def _level_figure(found: Found, index: int, row: LevelRow, name: str) -> Cell:
    form = _FORMS.get(name, number)
    if name == BUSY:
        name = busy_name(row.figures)
    value = row.value(name)
    if value is None:
        return Cell(MISSING)
    text = form(value)
    if name.endswith("_p95"):
        text += _of(row.figures[name]["n"])
    return Cell(text, value, found.id, f"rows.{index}.figures.{name}")


def _with_n(found: Found, name: str) -> Cell:
    """A percentile with how many requests it is of."""
    shown, known = figure(found, name), found.value["figures"].get(name)
    return shown if known is None else replace(shown, text=shown.text + _of(known["n"]))


def _of(requests: int) -> str:
    return f" (n = {requests})"


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
    """A line of each preset and figure, the median of the seeds at each level; p95 is dashed.

    Levels that did not pass with every seed are marked; a p95 says of how many requests it is.
    """
    lines: list[Line] = []
    for found in evidence.all_of("load_tests"):
        preset = str(found.value["name"])
        rows = [row_from(value) for value in found.value["rows"]]
        failed = failed_levels(rows, load)
        for name in names:
            if points := medians(rows, load, lambda row, name=name: row.value(name)):
                percentile = name.rpartition("_")[2]
                label = f"{preset} {percentile}" if len(names) > 1 else preset
                is_dashed = percentile == "p95"
                if is_dashed:
                    label += _of_requests(rows, load, name)
                place = evidence.presets.index(preset)
                lines.append(Line(label, points, place, is_dashed, failed))
    return tuple(lines)


def _of_requests(rows: Sequence[LevelRow], load: Load, name: str) -> str:
    """Of how many requests a percentile is, over its levels: " (n = 41 to 58)"."""
    counts = sorted(
        int(row.figures[name]["n"])
        for row in rows
        if row.load == load and row.value(name) is not None
    )
    between = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    return f" (n = {between})"
