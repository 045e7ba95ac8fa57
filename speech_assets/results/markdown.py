"""Markdown tables."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NONE_YET = "No result is published yet."
EMBEDDED = (
    "Presets called embedded are of the small voice that ships with the project: their figures say "
    "nothing about Orpheus 3B."
)
"""Below every table that has such presets."""
INVALID_MARK = "†"
INVALID = (
    f"{INVALID_MARK} Of a measurement that is invalid by its own rules: it proves nothing, and "
    "nothing is decided by it."
)
"""Below every table that has figures so marked."""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; a sentence instead where it has no row. Cells are kept on one line."""
    if not rows:
        return NONE_YET
    lines = [heads, ["---"] * len(heads), *([_cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def rounds_cell(seconds: Sequence[float]) -> str:
    """How many rounds were timed, and for how long each, as "3 of 0.423"."""
    return f"{len(seconds)} of {number(statistics.median(seconds))}"


def commands(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines below a table: a blank one, and the command that each of its results was made by."""
    lines = [
        f"- {each['device']['name']}, {each['started_at'][:10]}: `{each['command']}`"
        for each in results
    ]
    return ["", *lines] if lines else []


def _cell(text: str) -> str:
    return " ".join(text.splitlines()).replace("|", "\\|")


def number(value: float) -> str:
    """A value as cells show it: three digits that count, from 100 on whole."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
