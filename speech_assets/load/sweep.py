"""A sweep: levels of load on one running server, each measured by speech-bench, until one fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.bench.options import BenchOptions
from speech_assets.bench.run import run_bench
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.load.levels import (
    LOADS,
    LONGEST_S,
    MODES,
    LevelRow,
    Load,
    check_levels,
    check_seeds,
)
from speech_assets.load.server_figures import server_figures
from speech_assets.sentences import LONG_SENTENCES, SENTENCES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

FULL_LEVEL_S = 60.0  # What a level takes in a test that is not called reduced.


class ClientLostError(SpeechAssetsError):
    """A process of the client died, so that a level has no figures."""

    retryable = True


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What a server is asked for.

    Attributes:
        levels: streams or listeners at once, ascending.
        loads: which loads, each a sweep of its own.
        seeds: of arrivals and speech; a level passes when it does with every one.
        duration_s, warmup_s: of each level; what is measured, and what comes before.
        lag_limit_ms: how late the client may be before it, not the server, was measured.
        until_failure: whether a sweep ends with its first failing level.
        long_texts: whether texts are of ten seconds and more: an untrained model speaks so long,
            whatever it is asked for, and no guard is to cut it short.
    """

    levels: tuple[float, ...]
    loads: tuple[Load, ...] = LOADS
    seeds: tuple[int, ...] = (1,)
    duration_s: float = FULL_LEVEL_S
    warmup_s: float = 10.0
    lag_limit_ms: float = 5.0
    until_failure: bool = True
    long_texts: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError where a value cannot work."""
        check_levels(self.levels, "levels")
        for name, value, least in (
            ("duration_s", self.duration_s, 1.0),
            ("warmup_s", self.warmup_s, 0.0),
            ("lag_limit_ms", self.lag_limit_ms, 0.001),
        ):
            if not least <= value <= LONGEST_S:  # So NaN, too, is refused.
                raise ConfigError(f"{name} is {value:g}; it must be {least:g} to {LONGEST_S:g}")
        check_seeds(self.seeds, "seeds")
        if not self.loads:
            raise ConfigError(f"there is no load; give {' or '.join(LOADS)}, or both")

    @property
    def reduced(self) -> bool:
        """Whether levels are shorter than a full test's."""
        return self.duration_s < FULL_LEVEL_S

    @property
    def longest_s(self) -> float:
        """Seconds that all levels take, when none fails."""
        runs = len(self.levels) * len(self.loads) * len(self.seeds)
        return runs * (self.duration_s + self.warmup_s)


def sweep(
    url: str,
    options: SweepOptions,
    keep: Callable[[LevelRow, pa.Table], None],
) -> list[LevelRow]:
    """Measure every level in turn; `keep` gets each as soon as it is there, with its requests.

    Raises:
        ClientLostError: a client process died.
    """
    rows: list[LevelRow] = []
    for load in options.loads:
        for level in options.levels:
            passed = True
            for seed in options.seeds:
                row, requests = _measure(url, options, load, level, seed)
                rows.append(row)
                keep(row, requests)
                passed = passed and row.passed
            if not passed and options.until_failure:
                break
    return rows


def client_faults(rows: Sequence[LevelRow]) -> list[str]:
    """Levels at which the client, not the server, was measured, and why."""
    return [
        f"{row.load}, seed {row.seed}, "
        + ("; ".join(row.client_reasons) or f"level {row.level:g}: the client was the limit")
        for row in rows
        if not row.client_valid
    ]


def _measure(
    url: str,
    options: SweepOptions,
    load: Load,
    level: float,
    seed: int,
) -> tuple[LevelRow, pa.Table]:
    run = run_bench(
        BenchOptions(
            url,
            mode=MODES[load],
            levels=(level,),
            duration_s=options.duration_s,
            warmup_s=options.warmup_s,
            texts=LONG_SENTENCES if options.long_texts else SENTENCES,
            seed=seed,
            lag_limit_ms=options.lag_limit_ms,
        )
    )
    if not run.summary["levels"]:
        raise ClientLostError(
            f"{load} {level:g} was not measured: {'; '.join(run.summary['client']['reasons'])}; "
            "run it again"
        )
    measured = run.summary["levels"][0]
    row = LevelRow(
        load=load,
        level=level,
        seed=seed,
        passed=bool(measured["passed"]),
        failures=tuple(measured["failures"]),
        offered=int(measured["offered"]),
        started=int(measured["started"]),
        completed=int(measured["completed"]),
        failed=int(measured["failed"]),
        dropped=int(measured["dropped"]),
        window_s=float(measured["window_s"]),
        client_valid=run.valid,
        client_reasons=tuple(run.summary["client"]["reasons"]),
        outcomes=measured["outcomes"],
        figures={
            **{
                name: figure
                for name, figure in measured["figures"].items()
                if figure["value"] is not None
            },
            **server_figures(measured["server_metrics"] or {}, float(measured["window_s"])),
        },
    )
    return row, run.rows
