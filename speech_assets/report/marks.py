"""The mark of figures that count for nothing: the same one in every table of the report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from speech_assets.report.cells import MISSING
from speech_assets.results.markdown import INVALID, INVALID_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from speech_assets.report.cells import Cell, Table
    from speech_assets.report.evidence import Evidence, Found


def marked_tables(tables: Iterable[Table], evidence: Evidence) -> tuple[Table, ...]:
    """The tables, every cell that is of an invalid result marked, and what the mark is beneath."""
    invalid = {found.id for found in evidence.results if not found.is_valid}
    return tuple(_marked(table, invalid) for table in tables)


def marked_name(found: Found) -> str:
    """The result's name as charts show it."""
    name = str(found.value["name"])
    return name if found.is_valid else f"{name} {INVALID_MARK}"


def _marked(table: Table, invalid: set[str]) -> Table:
    rows = tuple(tuple(_cell(cell, invalid) for cell in row) for row in table.rows)
    if rows == table.rows:
        return table
    return replace(table, rows=rows, notes=(*table.notes, INVALID))


def _cell(cell: Cell, invalid: set[str]) -> Cell:
    if cell.result not in invalid or cell.text in ("", MISSING):
        return cell
    return replace(cell, text=f"{cell.text} {INVALID_MARK}")
