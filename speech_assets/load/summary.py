"""The figures of a whole load test, from its levels."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from speech_assets.load.levels import (
    LOADS,
    LevelRow,
    Load,
    largest_passing,
    largest_with_margin,
    never_failed,
)
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of one level, as the client or the server had them.
_OF_A_LEVEL = (
    "ttfa_ms_p50", "ttfa_ms_p95", "ttfa_ms_p99", "ttfs_ms_p50", "ttfs_ms_p95", "ttfs_ms_p99",
    "rtf_p50", "rtf_p95", "rtf_p99", "audio_s_per_s", "requests_with_underrun",
    # Of a level that was measured before, the busy share by the name that it had.
    "engine_thread_busy_share", "device_busy_share",
    "decode_batch_rows_mean", "engine_step_ms_mean", "resident_memory_mib",
)  # fmt: skip
_FIRST = ("ttfa_ms_p50", "ttfs_ms_p50", "rtf_p50")


def load_figures(rows: Sequence[LevelRow]) -> dict[str, Figure]:
    """Figures of a load test.

    `max_realtime_streams_<load>` is the largest passing level, `..._with_margin` the one below it.
    Figures of a level (`ttfa_ms_p50`, `rtf_p95`, ...) are those of `figures_at_level`: the largest
    passing level of the first load that was tried; there are none where no level passed. Of the
    lowest level there are `first_level_<name>`, whether it passed or not. Of several seeds each is
    the median, with the range as its interval.
    """
    figures: dict[str, Figure] = {}
    loads: list[Load] = [load for load in LOADS if any(row.load == load for row in rows)]
    for load in loads:
        n = len({row.level for row in rows if row.load == load})
        name = f"max_realtime_streams_{load}"
        figures[name] = Figure(largest_passing(rows, load), "streams", n)
        figures[f"{name}_with_margin"] = Figure(largest_with_margin(rows, load), "streams", n)
    lowest = min(row.level for row in rows)
    if level := largest_passing(rows, loads[0]):
        figures["figures_at_level"] = Figure(level, "streams")
        for name in _OF_A_LEVEL:
            _add(figures, name, name, _at(rows, loads[0], level))
    for name in _FIRST:
        _add(figures, f"first_level_{name}", name, _at(rows, loads[0], lowest))
    return figures


def unbounded(rows: Sequence[LevelRow]) -> list[str]:
    """Loads at which no level failed: the server may hold more than was offered."""
    return [load for load in LOADS if never_failed(rows, load)]


def _at(rows: Sequence[LevelRow], load: Load, level: float) -> list[LevelRow]:
    return [row for row in rows if row.load == load and row.level == level]


def _add(figures: dict[str, Figure], name: str, of_level: str, rows: Sequence[LevelRow]) -> None:
    """The median over seeds, where any row has the figure."""
    found = [row.figures[of_level] for row in rows if of_level in row.figures]
    if not found:
        return
    values = [float(figure["value"]) for figure in found]
    several = len(values) > 1
    figures[name] = Figure(
        statistics.median(values),
        str(found[0]["unit"]),
        sum(int(figure["n"]) for figure in found),
        min(values) if several else None,
        max(values) if several else None,
    )
