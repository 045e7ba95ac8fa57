"""Levels of a load test: what was offered, what came of it, and which of them a server holds."""

from __future__ import annotations

import math
import reprlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from speech_assets.bench.options import Mode

Load = Literal["generating", "listening"]
"""*Generating N*: N requests always in flight. *Listening N*: requests as N listeners make them."""
LOADS: tuple[Load, ...] = ("generating", "listening")
MODES: dict[Load, Mode] = {"generating": "closed", "listening": "listening"}
"""speech-bench's name of a load."""
MOST_STREAMS = 4_096.0  # streams; as many as a preset may have.
MOST_SEED = 2**40 - 1  # speech-bench's.
LONGEST_S = 86_400.0  # of a level.


@dataclass(frozen=True, slots=True)
class LevelRow:
    """One level of one load with one seed, as a result's rows have it.

    `figures` maps names to {value, unit, n}; what has too few observations is not there.
    """

    load: Load
    level: float
    seed: int
    passed: bool
    failures: tuple[str, ...]
    offered: int
    started: int
    completed: int
    failed: int
    dropped: int
    window_s: float
    client_valid: bool
    client_reasons: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict[str, int])
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def value(self, name: str) -> float | None:
        """The figure of that name, or None where there is none."""
        figure = self.figures.get(name)
        return None if figure is None or figure["value"] is None else float(figure["value"])


def parse_levels(text: str) -> tuple[float, ...]:
    """Levels from text as `1,2,4`: whole numbers above 0, ascending.

    Raises:
        ConfigError: it is not that.
    """
    levels: list[float] = []
    for word in text.split(","):
        try:
            levels.append(float(word))
        except ValueError as error:
            raise ConfigError(
                f"levels {_short(text)}: {_short(word.strip())} is no number; give levels as 1,2,4"
            ) from error
    return check_levels(levels, f"levels {_short(text)}")


def check_levels(levels: Sequence[float], where: str) -> tuple[float, ...]:
    """The levels, if they are whole numbers above 0, ascending.

    Raises:
        ConfigError: they are not, or there are none.
    """
    if not levels:
        raise ConfigError(f"{where}: there is no level; give levels as 1,2,4")
    for level in levels:
        if not (math.isfinite(level) and 1 <= level <= MOST_STREAMS and level == int(level)):
            raise ConfigError(
                f"{where}: {level:g} is no level; give whole numbers of streams, "
                f"1 to {MOST_STREAMS:g}"
            )
    if list(levels) != sorted(set(levels)):
        raise ConfigError(f"{where}: levels must ascend, each given once")
    return tuple(map(float, levels))


def parse_loads(text: str) -> tuple[Load, ...]:
    """Loads from text as `generating,listening`.

    Raises:
        ConfigError: one is unknown, given twice, or there is none.
    """
    words = [word.strip() for word in text.split(",")]
    loads: tuple[Load, ...] = tuple(load for load in LOADS if load in words)
    if sorted(words) != sorted(loads):
        raise ConfigError(f"loads {_short(text)}: give {' or '.join(LOADS)}, or both with a comma")
    return loads


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from text as `1,2,3`.

    Raises:
        ConfigError: one is no whole number that a seed may be, or given twice, or there is none.
    """
    where = f"seeds {_short(text)}"
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isdecimal() and word.isascii()):
            raise ConfigError(f"{where}: give whole numbers with commas between, as 1,2,3")
        if len(word.lstrip("0")) > len(str(MOST_SEED)):  # Python reads no number of any length.
            raise ConfigError(f"{where}: {_short(word)} is no seed; give 0 to {MOST_SEED}")
    return check_seeds(list(map(int, words)), where)


def check_seeds(seeds: Sequence[int], where: str) -> tuple[int, ...]:
    """The seeds, if each can be one and is given once.

    Raises:
        ConfigError: one cannot or is not, or there is none.
    """
    if not seeds:
        raise ConfigError(f"{where}: there is no seed; give seeds as 1,2,3")
    for seed in seeds:
        if not 0 <= seed <= MOST_SEED:
            raise ConfigError(f"{where}: {seed} is no seed; give 0 to {MOST_SEED}")
        if seeds.count(seed) > 1:
            raise ConfigError(f"{where}: {seed} is given more than once; give each seed once")
    return tuple(seeds)


def passing_levels(rows: Sequence[LevelRow], load: Load) -> list[float]:
    """Levels of `load` that passed with every seed, up to the first that did not."""
    passing: list[float] = []
    for level in sorted({row.level for row in rows if row.load == load}):
        if not all(row.passed for row in rows if row.load == load and row.level == level):
            break
        passing.append(level)
    return passing


def failed_levels(rows: Sequence[LevelRow], load: Load) -> tuple[float, ...]:
    """Levels of `load` that did not pass with every seed, ascending."""
    return tuple(sorted({row.level for row in rows if row.load == load and not row.passed}))


def largest_passing(rows: Sequence[LevelRow], load: Load) -> float:
    """The largest level below which, too, all measured levels passed; 0.0 when none did."""
    return max(passing_levels(rows, load), default=0.0)


def largest_with_margin(rows: Sequence[LevelRow], load: Load) -> float:
    """The level below the largest that passed: one level of margin. 0.0 when there is none."""
    passing = passing_levels(rows, load)
    return passing[-2] if len(passing) > 1 else 0.0


def median_of(rows: Sequence[LevelRow], name: str) -> float | None:
    """The median over rows (the seeds of a level) of the figure; None where no row has it."""
    values = [value for row in rows if (value := row.value(name)) is not None]
    return statistics.median(values) if values else None


def never_failed(rows: Sequence[LevelRow], load: Load) -> bool:
    """Whether every measured level passed, so that the server may hold more than was offered."""
    levels = {row.level for row in rows if row.load == load}
    return bool(levels) and len(passing_levels(rows, load)) == len(levels)


def level_line(row: LevelRow) -> str:
    """One line of a level."""
    numbers = [
        f"{label} {value:.3g}{unit}"
        for label, name, unit in (
            ("TTFA p50", "ttfa_ms_p50", " ms"),
            ("RTF p50", "rtf_p50", ""),
            ("audio", "audio_s_per_s", " s/s"),
        )
        if (value := row.value(name)) is not None
    ]
    verdict = "passed" if row.passed else "failed: " + "; ".join(row.failures)
    return f"{row.load} {row.level:g}: " + ", ".join([*numbers, verdict])


def row_from(value: Mapping[str, Any]) -> LevelRow:
    """A row back from a result's JSON."""
    known = {name: value[name] for name in LevelRow.__dataclass_fields__ if name in value}
    for name in ("failures", "client_reasons"):
        known[name] = tuple(known.get(name, ()))
    return LevelRow(**known)


def _short(text: str) -> str:
    """What was given, in quotes, its middle left out where it is long."""
    return reprlib.repr(text)
