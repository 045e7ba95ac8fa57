"""Figures of several results as one table, and how much each varies from run to run.

Columns of a table of figures: `run` (its started_at), `figure`, `value`, `unit`, `n` (observations
behind it), `low` and `high` (its range within the run: over seeds, or the figure's interval).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.history.comparable import Stored

_COLUMNS = ("run", "figure", "value", "unit", "n", "low", "high")


@dataclass(frozen=True, slots=True)
class Varied:
    """One figure over several runs.

    Attributes:
        runs: that have it.
        deviation: standard deviation of a sample of runs; NaN of one run.
        run, last, n: the newest run that has it, its value there and the observations behind it.
        low, high: its range within that run.
    """

    figure: str
    unit: str
    runs: int
    mean: float
    deviation: float
    lowest: float
    highest: float
    run: str
    last: float
    n: int
    low: float
    high: float


def figures_table(results: Sequence[Stored]) -> pd.DataFrame:
    """All figures of `results`, sorted by figure and time.

    Of load tests also those of each level, named `<name> at <load> <level>`: the median over seeds,
    and n is that of the seed that has the fewest.
    """
    rows = [
        {
            "run": result["started_at"],
            "figure": name,
            "value": float(figure["value"]),
            "unit": figure["unit"],
            "n": figure["n"],
            "low": _or_value(figure, "ci_low"),
            "high": _or_value(figure, "ci_high"),
        }
        for result in results
        for name, figure in result["figures"].items()
    ]
    tables = [pd.DataFrame(rows, columns=list(_COLUMNS))]
    tables += [_levels_table(result) for result in results if result["kind"] == "load_tests"]
    filled = [table for table in tables if len(table)]
    if not filled:
        return tables[0]
    return pd.concat(filled).sort_values(["figure", "run"], ignore_index=True)


def spread(table: pd.DataFrame) -> dict[str, Varied]:
    """How each figure of a table varies over its runs, by its name, sorted."""
    over_runs = (
        table.sort_values("run")
        .groupby("figure", as_index=False)
        .agg(
            unit=("unit", "last"),
            runs=("value", "count"),
            mean=("value", "mean"),
            deviation=("value", "std"),
            lowest=("value", "min"),
            highest=("value", "max"),
            run=("run", "last"),
            last=("value", "last"),
            n=("n", "last"),
            low=("low", "last"),
            high=("high", "last"),
        )
    )
    rows: list[dict[str, Any]] = over_runs.to_dict("records")
    return {row["figure"]: Varied(**row) for row in rows}


def at_level(name: str, load: str, level: float) -> str:
    """Name of a level's figure."""
    return f"{name} at {load} {level:g}"


def _levels_table(result: Stored) -> pd.DataFrame:
    seeds = pd.DataFrame(
        [
            {
                "run": result["started_at"],
                "figure": at_level(name, row["load"], row["level"]),
                "value": float(figure["value"]),
                "unit": figure["unit"],
                "n": figure["n"],
            }
            for row in result["rows"]
            for name, figure in row["figures"].items()
            if figure["value"] is not None
        ],
        columns=list(_COLUMNS[:5]),
    )
    return (
        seeds.groupby(["run", "figure", "unit"], as_index=False)
        .agg(
            value=("value", "median"),
            n=("n", "min"),
            low=("value", "min"),
            high=("value", "max"),
        )
        .reindex(columns=list(_COLUMNS))
    )


def _or_value(figure: Any, name: str) -> float:
    found = figure.get(name)
    return float(figure["value"] if found is None else found)
