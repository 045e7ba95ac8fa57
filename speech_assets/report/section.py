"""A part of the report: prose, figures in tables and charts, and what is missing from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from speech_assets.report.cells import Cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from speech_assets.report.cells import Table
    from speech_assets.report.charts import Chart
    from speech_assets.report.clips import ClipRow
    from speech_assets.report.evidence import Evidence, Found


@dataclass(frozen=True, slots=True)
class Section:
    """One section, in the order in which its parts are shown.

    Attributes:
        anchor: its id in the page.
        paragraphs: prose of the project's own; `words` between backticks are code, [words](#id)
            lead to the section of that id. So in `missing`, `terms` and `commands`. What a result
            says stands in tables alone.
        clips: sentences to listen to, of `clip_presets`.
        missing: what was not measured, and what measures it; the page has it at its end.
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the page: the id of an element, and the title of the section that it is in."""

    id: str
    title: str


def table_id(section: Section, number: int) -> str:
    """Id of a section's table, counted from 1."""
    return f"{section.anchor}-table-{number}"


def places_of(sections: Iterable[Section]) -> Mapping[str, Place]:
    """Of each result the first table that has it; `sections` are those that show figures."""
    places: dict[str, Place] = {}
    for section in sections:
        for number, table in enumerate(section.tables, 1):
            place = Place(table_id(section, number), section.title)
            for cell in (cell for row in table.rows for cell in row):
                for id in (cell.result, *(id for _, id in cell.links)):
                    places.setdefault(id, place)
    return places


def without_missing(sections: Iterable[Section]) -> tuple[list[Section], Section | None]:
    """The sections that show something, and the one that lists what none of them could.

    None: nothing is missing.
    """
    shown: list[Section] = []
    missing: list[str] = []
    for section in sections:
        missing += section.missing
        if not section.missing or section.charts or section.tables or section.clips:
            shown.append(replace(section, missing=()))
    if not missing:
        return shown, None
    return shown, Section(
        "not-measured",
        "Not measured",
        paragraphs=(
            (
                "What this page could show and does not, because it was not measured here. "
                "Materialize the asset in `make ui`, or run the command with a preset's name for "
                "NAME."
            ),
        ),
        missing=tuple(missing),
    )


def named(found: Found | None, evidence: Evidence) -> Cell:
    """The last cell of a row: which result it is from, and what to know of that."""
    if found is None:
        return Cell("-")
    return Cell("", links=((found.id, found.id),), note=doubts_said(found, evidence))


def doubts_said(found: Found, evidence: Evidence) -> str:
    """What to know of a result, in one line; of an invalid one also why it is."""
    words = evidence.doubts(found)
    if found.faults and not found.is_valid:
        words[0] += f" ({found.faults})"
    return ", ".join(words)


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
    return (f"No {what} of {names}. Asset `{asset}` makes it; by hand: `{command}`.",)
