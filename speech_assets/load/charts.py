"""Charts of a load test: data from a result's rows, and the drawing: data in, bytes out."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from speech_assets.load.levels import LOADS, LevelRow, failed_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from speech_assets.load.levels import Load

# Inches at dots an inch: some 20 kB a PNG, since each travels inside the asset's metadata.
_SIZE_IN = (6.4, 3.2)
_DPI = 80
_TWO = 2
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's.
_DASHES = {"generating": "-", "listening": "--"}


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: points (level, value), ascending; dashed for the open loop.

    `failed` are levels that did not pass; they are crossed out.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    dashes: str = "-"
    failed: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn. `limit` is a level line, and `limit_name` says for what."""

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    limit: float | None = None
    limit_name: str = ""

    def csv(self) -> bytes:
        """The data: a row per level, a column per line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["level", *(series.name for series in self.series)])
        values = [dict(series.points) for series in self.series]
        for level in sorted({level for points in values for level in points}):
            writer.writerow([f"{level:g}", *(points.get(level, "") for points in values)])
        return text.getvalue().encode()

    def draw(self, form: Literal["png", "svg"] = "png") -> bytes:
        """The picture."""
        # Here, and not above: it takes a second, and the definitions are loaded often.
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        # Same data, same bytes: no date, and ids in an SVG that are no random numbers.
        with rc_context({"svg.hashsalt": self.name, "font.size": 9.0}):
            figure = Figure(figsize=_SIZE_IN, dpi=_DPI, layout="constrained")
            axes = figure.subplots()
            names = list(dict.fromkeys(s.name.partition(": ")[2] for s in self.series))
            for series in self.series:
                levels, values = zip(*series.points, strict=True)
                colour = _COLOURS[names.index(series.name.partition(": ")[2]) % len(_COLOURS)]
                is_dashed = series.dashes != "-"
                axes.plot(
                    levels,
                    values,
                    # Between two points a line would say how it goes on there.
                    linestyle=series.dashes if len(levels) > _TWO else "none",
                    marker="s" if is_dashed else "o",
                    fillstyle="none" if is_dashed else "full",
                    color=colour,
                    label=series.name,
                )
            failed = [p for series in self.series for p in series.points if p[0] in series.failed]
            if failed:
                levels, values = zip(*failed, strict=True)
                axes.plot(
                    levels,
                    values,
                    linestyle="none",
                    color="black",
                    marker="x",
                    markersize=10,
                    label="level that failed",
                )
            if self.limit is not None:
                axes.axhline(self.limit, color="black", linewidth=1, label=self.limit_name)
            axes.set(
                title=self.title,
                xlabel="level: streams generating (full marks), listeners (open)",
                ylabel=self.unit,
            )
            axes.set_ylim(bottom=0)
            axes.set_xticks(sorted({level for s in self.series for level, _ in s.points}))
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7, handlelength=3.5)
            out = io.BytesIO()
            figure.savefig(out, format=form, metadata={"Date": None} if form == "svg" else None)
            return out.getvalue()


def charts_of(rows: Sequence[LevelRow]) -> list[Chart]:
    """The charts of a load test; one with nothing to show is left out."""
    charts = [
        Chart(
            "latency",
            "Time to first audio (TTFA) and first speech (TTFS)",
            "ms",
            _series(
                rows,
                ("TTFA p50", _figure("ttfa_ms_p50")),
                ("TTFS p50", _figure("ttfs_ms_p50")),
                ("TTFS p95", _figure("ttfs_ms_p95")),
            ),
        ),
        Chart(
            "rtf",
            "Real-time factor: time to the last byte over the audio's duration",
            "RTF",
            _series(rows, ("RTF p50", _figure("rtf_p50")), ("RTF p95", _figure("rtf_p95"))),
            limit=1.0,
            limit_name="limit of p95, generating",
        ),
        Chart(
            "faults",
            "Requests with an underrun, and requests that failed",
            "% of requests",
            _series(
                rows,
                ("with underrun", lambda row: _share(row.value("requests_with_underrun"), row)),
                ("failed", lambda row: _share(row.failed, row)),
            ),
        ),
    ]
    return [chart for chart in charts if chart.series]


def levels_csv(rows: Sequence[LevelRow]) -> bytes:
    """Every level with all its figures."""
    names = sorted({name for row in rows for name in row.figures})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = ("load", "level", "seed", "passed", "offered", "completed", "failed", "dropped")
    writer.writerow([*heads, "client_valid", *names, "failures"])
    for row in rows:
        cells = [row.load, f"{row.level:g}", *(getattr(row, name) for name in heads[2:])]
        values = ["" if row.value(name) is None else row.value(name) for name in names]
        writer.writerow([*cells, row.client_valid, *values, "; ".join(row.failures)])
    return text.getvalue().encode()


def medians(
    rows: Iterable[LevelRow], load: Load, value_of: Callable[[LevelRow], float | None]
) -> tuple[tuple[float, float], ...]:
    """(level, value) of that load, ascending: the median of the seeds that have the value."""
    by_level: dict[float, list[float]] = {}
    for row in rows:
        if row.load == load and (value := value_of(row)) is not None:
            by_level.setdefault(row.level, []).append(value)
    return tuple((level, statistics.median(v)) for level, v in sorted(by_level.items()))


def _series(
    rows: Sequence[LevelRow], *lines: tuple[str, Callable[[LevelRow], float | None]]
) -> tuple[Series, ...]:
    """A line of each load and name, the median of the seeds at each level."""
    found: list[Series] = []
    for load in LOADS:
        for name, value_of in lines:
            if points := medians(rows, load, value_of):
                failed = failed_levels(rows, load)
                found.append(Series(f"{load}: {name}", points, _DASHES[load], failed))
    return tuple(found)


def _figure(name: str) -> Callable[[LevelRow], float | None]:
    return lambda row: row.value(name)


def _share(count: float | None, row: LevelRow) -> float | None:
    return None if count is None else 100 * count / max(row.offered, 1)
