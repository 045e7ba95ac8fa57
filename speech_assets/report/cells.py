"""What tables of the report hold: text, or a figure with the place in a result that it is from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.report.evidence import Found

MISSING = "-"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: as it is read; from a result, so never taken for markup.
        value: the number, where the cell is a figure.
        result: id of the result that the figure is from.
        place: where in it: `figures.wer`, or what of its rows was added up.
        note: what a reader must know beside it.
        links: (text, id of a result) each.
    """

    text: str
    value: float | None = None
    result: str = ""
    place: str = ""
    note: str = ""
    links: tuple[tuple[str, str], ...] = ()


_EMPTY = (Cell(""), Cell(MISSING))


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption; the first cell of each row names it."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], notes: Sequence[str] = ()
) -> tuple[Table, ...]:
    """The table, in a tuple; nothing where it has no row. A column that is empty is left out."""
    if not rows:
        return ()
    columns = [i for i in range(len(heads)) if any(row[i] not in _EMPTY for row in rows)]
    kept = tuple(tuple(row[i] for i in columns) for row in rows)
    return (Table(caption, tuple(heads[i] for i in columns), kept, tuple(notes)),)


def number(value: float) -> str:
    """A number with three digits that count: 0.0123, 4.59, 218."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def percent(value: float) -> str:
    """A share as percent."""
    return f"{100 * value:.1f} %"


def points(value: float) -> str:
    """A difference of shares as percentage points, with its sign."""
    return f"{100 * value:+.1f}"


def figure(
    found: Found | None,
    name: str,
    form: Any = number,
    *,
    before: str = "",
    with_interval: bool = False,
) -> Cell:
    """The figure of that name in the result; a dash where there is no result, no such figure, or
    nothing that it is of: a share of none says nothing.

    `before` is put in front of it ("at least "); its interval follows where it has one and
    `with_interval` asks for it.
    """
    known = found.value["figures"].get(name) if found is not None else None
    if found is None or known is None or not known.get("n", 1):
        return Cell(MISSING)
    text = before + form(known["value"])
    if with_interval and (interval := interval_text(known, form)):
        text += f" ({interval})"
    return Cell(text, float(known["value"]), found.id, f"figures.{name}")


def interval_text(known: Mapping[str, Any], form: Any = number) -> str:
    """Both ends of a figure's interval; empty where it has none."""
    low, high = known.get("ci_low"), known.get("ci_high")
    return "" if low is None or high is None else f"{form(low)} to {form(high)}"
