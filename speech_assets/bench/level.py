"""One level of a sweep, measured and judged."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.bench.figures import level_figures
from speech_assets.bench.rows import failed
from speech_assets.bench.verdict import failures, missing_streams
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.bench.options import Mode


@dataclass(frozen=True, slots=True)
class LevelSummary:
    """What came of one level. Counts are of measured requests, the warm-up left out."""

    level: float
    mode: Mode
    offered: int
    started: int
    completed: int
    failed: int
    dropped: int
    outcomes: dict[str, int]
    window_s: float
    figures: dict[str, Figure]
    missing: dict[str, int]
    passed: bool
    failures: list[str]
    server_metrics: dict[str, float] | None

    def as_json(self) -> dict[str, Any]:
        """For summary.json."""
        return {
            "level": self.level,
            "mode": self.mode,
            "offered": self.offered,
            "started": self.started,
            "completed": self.completed,
            "failed": self.failed,
            "dropped": self.dropped,
            "outcomes": self.outcomes,
            "window_s": self.window_s,
            "figures": {name: figure.as_json() for name, figure in self.figures.items()},
            "missing": self.missing,
            "passed": self.passed,
            "failures": self.failures,
            "server_metrics": self.server_metrics,
        }


def summarize(
    rows: Sequence[Mapping[str, Any]],
    level: float,
    mode: Mode,
    *,
    offered: int | None,
    streams: int | None,
    warmup_s: float,
    window_s: float,
    was_restarted: bool,
    server_metrics: dict[str, float] | None,
    more_figures: Mapping[str, Figure],
    more_failures: Sequence[str],
) -> LevelSummary:
    """Judge a level by its rows. `offered` None: a closed loop offers what it starts.

    `streams` is how many of a closed loop are to be in flight all the time; None where that is not
    to be judged.
    """
    measured = [row for row in rows if not row["warmup"]]
    outcomes = collections.Counter(str(row["outcome"]) for row in measured)
    dropped = outcomes["dropped"]
    started = len(measured) - dropped
    offered = started if offered is None else offered
    figures, missing = level_figures(rows, warmup_s, window_s)
    found = [
        *more_failures,
        *failures(rows, mode, offered, warmup_s, window_s, was_restarted=was_restarted),
    ]
    if streams is not None and not found:
        found += missing_streams(figures["in_flight_mean"].value, streams)
    return LevelSummary(
        level=level,
        mode=mode,
        offered=offered,
        started=started,
        completed=outcomes["ok"],
        failed=sum(count for outcome, count in outcomes.items() if failed(outcome)),
        dropped=dropped,
        outcomes=dict(sorted(outcomes.items())),
        window_s=window_s,
        figures={**figures, **more_figures},
        missing=missing,
        passed=not found,
        failures=found,
        server_metrics=server_metrics,
    )
