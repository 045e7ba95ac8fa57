"""Charts of the report: their data, and the drawing that suits a page in dark and in light."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.report.cells import MISSING, number

if TYPE_CHECKING:
    from collections.abc import Sequence

# At least 3 to 1 on white, apart for colour-blind eyes; lines differ by their marks too. On a dark
# page the style sheet has lighter ones in their place.
COLOURS = ("#0072b2", "#c85200", "#00855f", "#b0558f", "#8a6d00", "#6a62b0")
MARKS = ("o", "s", "^", "D", "v", "P")
_INK, _PAPER = "#000000", "#ffffff"
_WIDTH_IN, _HEIGHT_IN, _FONT_PT = 4.2, 3.0, 10.0  # Readable at 400 pixels: the page does not zoom.
_ROW_IN = 0.36
LEAST_OF_A_LINE = 3
_FAILED = "level that failed"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: points (x, y), ascending, of one result. `colour` is the place of its preset.

    `failed` are the x of points that did not pass: they are crossed out. Fewer points than
    `LEAST_OF_A_LINE` are drawn as marks alone: a line between two says how it goes on there.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int = 0
    is_dashed: bool = False
    failed: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Dot:
    """One value with its interval, if it has one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    series: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of lines or of dots; `limit` is drawn as a line, and `limit_name` says for what."""

    name: str
    title: str
    x_label: str
    y_label: str = ""
    lines: tuple[Line, ...] = ()
    dots: tuple[Dot, ...] = ()
    limit: float | None = None
    limit_name: str = ""

    @property
    def data(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of its data: as its CSV and the table below it have them."""
        if self.dots:
            heads = ["name", "series", "value", "low", "high"]
            rows = [[d.name, d.series, *map(_plain, (d.value, d.low, d.high))] for d in self.dots]
            return heads, rows
        values = [dict(line.points) for line in self.lines]
        at = sorted({x for points in values for x in points})
        rows = [[f"{x:g}", *(_plain(points.get(x)) for points in values)] for x in at]
        return [self.x_label, *(line.name for line in self.lines)], rows

    @property
    def description(self) -> str:
        """What it shows, in words: for whoever does not see it."""
        what = [
            f"{dot.name}{f', {dot.series}' if dot.series else ''} {number(dot.value)}"
            + (
                f" ({number(dot.low)} to {number(dot.high)})"
                if dot.low is not None and dot.high is not None
                else ""
            )
            for dot in self.dots
        ]
        what += [_in_words(line) for line in self.lines]
        limit = f" {self.limit_name}: {self.limit:g}." if self.limit is not None else ""
        return f"{self.title}. {'; '.join(what)}.{limit}"

    def csv(self) -> bytes:
        """Its data, values as they are in the results."""
        text = io.StringIO()
        heads, rows = self.data
        csv.writer(text, lineterminator="\n").writerows(
            [heads, *([_from_formula(cell) for cell in row] for row in rows)]
        )
        return text.getvalue().encode()

    def svg(self) -> bytes:
        """The picture, a file by itself: same data and matplotlib, same bytes."""
        # Here, and not above: it takes a second, and the definitions are loaded often.
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        # Text stays text; no date, and ids that are no random numbers.
        settings: dict[Any, Any] = {
            "svg.hashsalt": self.name,
            "svg.fonttype": "none",
            "font.size": _FONT_PT,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
        with rc_context(settings):
            height_in = _HEIGHT_IN
            if self.dots:
                names = len({dot.name for dot in self.dots})
                height_in = max(2.0, 1.3 + _ROW_IN * names)
            size = (_WIDTH_IN, height_in)
            figure = Figure(figsize=size, layout="constrained", facecolor=_PAPER)
            axes = figure.subplots()
            axes.patch.set_visible(False)
            _draw_dots(axes, self) if self.dots else _draw_lines(axes, self)
            axes.grid(alpha=0.35)
            handles, labels = axes.get_legend_handles_labels()
            if len(handles) > 1 or self.lines:
                figure.legend(
                    handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9
                )
            out = io.BytesIO()
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(out, format="svg", metadata=nothing)
        # By hand: matplotlib would put it into a block of links.
        head, opening, rest = out.getvalue().decode().partition("<svg")
        attributes, end, body = rest.partition(">")
        title = f"\n <title>{html.escape(self.title)}</title>"
        return f"{head}{opening}{attributes}{end}{title}{body}".encode()


def inline(chart: Chart, svg: bytes) -> str:
    """The picture for inside a page: its ink is the page's, and it says what it shows."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = text.replace(f"fill: {_PAPER}", "fill: none").replace(_INK, "currentColor")
    for place, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--chart-{place})")
    # Ids of groups are the same in every chart; nothing refers to them.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    label = html.escape(chart.description, quote=True)
    return text.replace("<svg ", f'<svg class="chart" role="img" aria-label="{label}" ', 1)


def _in_words(line: Line) -> str:
    """The first and the last point, and which failed."""
    (x, y), (last_x, last_y) = line.points[0], line.points[-1]
    said = f"{line.name} {number(y)} at {x:g}"
    if len(line.points) > 1:
        said = f"{line.name} from {number(y)} at {x:g} to {number(last_y)} at {last_x:g}"
    failed = ", ".join(f"{level:g}" for level in line.failed)
    return f"{said} (failed at {failed})" if failed else said


def _draw_lines(axes: Any, chart: Chart) -> None:
    for line in chart.lines:
        x, y = zip(*line.points, strict=True)
        style = "--" if line.is_dashed else "-"
        axes.plot(
            x,
            y,
            linestyle=style if len(line.points) >= LEAST_OF_A_LINE else "none",
            color=COLOURS[line.colour % len(COLOURS)],
            marker=MARKS[line.colour % len(MARKS)],
            fillstyle="none" if line.is_dashed else "full",
            label=line.name,
        )
    failed = [point for line in chart.lines for point in line.points if point[0] in line.failed]
    if failed:
        x, y = zip(*failed, strict=True)
        axes.plot(
            x,
            y,
            linestyle="none",
            color=_INK,
            marker="x",
            markersize=11,
            markeredgewidth=1.8,
            label=_FAILED,
        )
    if chart.limit is not None:
        axes.axhline(chart.limit, color=_INK, linewidth=1, linestyle=":", label=chart.limit_name)
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
    values = [y for line in chart.lines for _, y in line.points]
    axes.set_ylim(0, 1.08 * max([*values, chart.limit or 0.0]) or 1.0)
    axes.set_xticks(sorted({x for line in chart.lines for x, _ in line.points}))


def _draw_dots(axes: Any, chart: Chart) -> None:
    names = list(dict.fromkeys(dot.name for dot in chart.dots))
    series = list(dict.fromkeys(dot.series for dot in chart.dots))
    for place, name in enumerate(series):
        dots = [dot for dot in chart.dots if dot.series == name]
        # Series of one name stand a little apart, the first above.
        shift = (place - (len(series) - 1) / 2) * 0.24
        colour = COLOURS[place % len(COLOURS)]
        axes.errorbar(
            [dot.value for dot in dots],
            [names.index(dot.name) + shift for dot in dots],
            # A value may lie outside its interval, as a median of few runs: to that side there is
            # no bar, and the table has both ends.
            xerr=[
                [max(0.0, dot.value - dot.low) if dot.low is not None else 0.0 for dot in dots],
                [max(0.0, dot.high - dot.value) if dot.high is not None else 0.0 for dot in dots],
            ],
            fmt=MARKS[place % len(MARKS)],
            color=colour,
            capsize=3,
            label=name or chart.x_label,
        )
    if chart.limit is not None:
        axes.axvline(chart.limit, color=_INK, linewidth=1, linestyle=":", label=chart.limit_name)
    axes.set(xlabel=chart.x_label)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    if min(dot.value if dot.low is None else dot.low for dot in chart.dots) >= 0:
        axes.set_xlim(left=0)


def shown_data(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of its data with the digits that count, for the table below it."""
    heads, rows = chart.data
    texts = 2 if chart.dots else 0
    return heads, [[*row[:texts], *(_rounded(cell) for cell in row[texts:])] for row in rows]


def _rounded(cell: str) -> str:
    return number(float(cell)) if cell else MISSING


def _plain(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _from_formula(cell: str) -> str:
    """Text that a spreadsheet would take for a formula, made text."""
    return f"'{cell}" if cell[:1] in ("=", "+", "@") else cell


def charts_with_data(charts: Sequence[Chart]) -> tuple[Chart, ...]:
    """Those that have anything to show."""
    return tuple(chart for chart in charts if chart.lines or chart.dots)
