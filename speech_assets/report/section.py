"""A part of the report: prose, figures in tables and charts, and what is missing from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.report.cells import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.report.cells import Table
    from speech_assets.report.charts import Chart
    from speech_assets.report.clips import ClipRow
    from speech_assets.report.evidence import Evidence, Found


@dataclass(frozen=True, slots=True)
class Section:
    """One section, in the order in which its parts are shown.

    Attributes:
        anchor: its id in the page.
        paragraphs: prose of the project's own; `words` between backticks are code. So in
            `missing`, `terms` and `commands`. What a result says stands in tables alone.
        clips: sentences to listen to, of `clip_presets`.
        missing: what was not measured, and what measures it.
        terms: words and what they mean.
        commands: lines for a shell.
    """

    anchor: str
    title: str
    paragraphs: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    clips: tuple[ClipRow, ...] = ()
    clip_presets: tuple[str, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def named(found: Found | None, evidence: Evidence) -> Cell:
    """The last cell of a row: which result it is from, and what to know of that."""
    if found is None:
        return Cell("-")
    return Cell("", links=((found.id, found.id),), note=", ".join(evidence.doubts(found)))


def run_of(found: Found) -> Cell:
    """The last cell of a row of a table that is of one result: a short link to it."""
    return Cell("", links=((found.id.rpartition("/")[2], found.id),))


def source_note(found: Found, evidence: Evidence) -> str:
    """The line below a table that is of one result: which, and what to know of it."""
    return "; ".join([f"From {found.id}", *evidence.doubts(found)]) + "."


def not_measured(presets: Sequence[str], what: str, asset: str, command: str) -> tuple[str, ...]:
    """One line that names the presets without a result and what makes one; none if all have."""
    if not presets:
        return ()
    names = ", ".join(f"`{preset}`" for preset in presets)
    return (f"No {what} in the store of {names}. Asset `{asset}` makes it; by hand: `{command}`.",)
