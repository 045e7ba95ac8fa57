"""Figures that follow from a result's rows, computed again: whoever edits a figure and hashes the
file again has the rows against them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from speech_assets.load.levels import LevelRow
    from speech_assets.results.result import Figure

    Rows = Sequence[Mapping[str, Any]]

_TOLERANCE = 1.1e-5
"""Rates are rounded to five digits; where sums are added otherwise, the last may differ by one."""


def check_figures(value: Mapping[str, Any], where: str) -> None:
    """Nothing, if the figures of a result that was read are those of its rows.

    Asked of the kinds in `RECOMPUTED`, of the figures that their rows alone give: a difference from
    another result's clips is not among them. `where` it was read from.

    Raises:
        ConfigError: one is not; with the first.
    """
    recompute = RECOMPUTED.get(value["kind"])
    if recompute is None:
        return
    for name, figure in recompute(value["rows"]).items():
        said, found = value["figures"].get(name), figure.as_json()
        # An earlier version may not have had it; those that pages need its form asks for.
        if said is not None and not _is_same(said, found):
            raise ConfigError(
                f"{where}: figures.{name} is {_shown(said)}, its rows give {_shown(found)}: the "
                "file was edited; take it as it was written, or measure again"
            )


def _wer(rows: Rows) -> dict[str, Figure]:
    # Here, and not above: it loads numpy and more, which whoever lists results does not need.
    from speech_assets.quality.clip_scores import ClipScore
    from speech_assets.quality.figures import wer_figures

    return wer_figures([ClipScore.from_row(row) for row in rows])


def _load_tests(rows: Rows) -> dict[str, Figure]:
    from speech_assets.load.levels import row_from
    from speech_assets.load.summary import load_figures

    levels: list[LevelRow] = []
    for row in map(row_from, rows):
        known = {n: figure for n, figure in row.figures.items() if figure["value"] is not None}
        levels.append(replace(row, figures=known))
    return load_figures(levels)


RECOMPUTED: Mapping[str, Callable[[Rows], dict[str, Figure]]] = {
    "wer": _wer,
    "load_tests": _load_tests,
}
"""Kinds whose figures existing functions give from the rows."""


def _is_same(said: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(
        math.isclose(one, other, rel_tol=1e-9, abs_tol=_TOLERANCE)
        if isinstance(one, int | float) and isinstance(other, int | float)
        else one == other
        for name in ("value", "unit", "n", "ci_low", "ci_high", "sentences")
        for one, other in [(said.get(name), found.get(name))]
    )


def _shown(figure: Mapping[str, Any]) -> str:
    low, high = figure.get("ci_low"), figure.get("ci_high")
    between = "" if low is None or high is None else f" ({low:g} to {high:g})"
    return f"{figure['value']:g} {figure['unit']}{between} of {figure['n']}"
