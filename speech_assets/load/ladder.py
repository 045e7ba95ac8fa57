"""The ladder: presets that differ in one switch, in the order in which they are tried.

A ladder is a table of TOML. It begins with a baseline: a preset of the server, some of its settings
changed. Each of its steps changes one setting of the best before it, so that what helps adds up; a
step that `follows` another by name changes that one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from server.presets import STORE, Preset
from speech_assets.errors import ConfigError
from speech_assets.load.levels import check_levels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TABLE = Path(__file__).parent.parent / "ladder.toml"
BASELINE = "baseline"
_PLACES = frozenset({"name", "base", "model", "description", "aliases", "checkpoint"})
SWITCHES = tuple(f.name for f in dataclasses.fields(Preset) if f.name not in _PLACES)
"""What a step may change: a preset's settings, but not which model it is."""
_LADDER = frozenset({"preset", "settings", "note", "levels", "duration_s", "warmup_s", "steps"})
_STEP = frozenset({"name", "switch", "value", "note", "follows", "needs"})

Outcome = Literal["baseline", "adopted", "rejected", "superseded", "not possible"]
FULL_STEP_S = 20.0  # What a level takes in a ladder that is not called reduced.
NOISE_SHARE = 0.05
"""Latency or RTF that differ by less are taken for the same: two runs of one preset do."""


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the table. `needs` is a device without which the switch means nothing."""

    name: str
    switch: str
    value: Any
    note: str = ""
    follows: str = ""
    needs: Literal["", "cpu", "cuda"] = ""


@dataclass(frozen=True, slots=True)
class Ladder:
    """A baseline, the steps from it, and the sweep that each is measured by."""

    name: str
    preset: str
    settings: Mapping[str, Any]
    steps: tuple[Step, ...]
    levels: tuple[float, ...]
    duration_s: float
    warmup_s: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the rule compares: the largest passing level, and medians at the lowest level."""

    max_streams: float
    ttfa_ms: float | None
    ttfs_ms: float | None
    rtf: float | None


def load_ladder(name: str, table: Path = TABLE) -> Ladder:
    """The ladder of that name.

    Raises:
        ConfigError: the file, ladder or a step is not what it must be.
    """
    try:
        tables = tomllib.loads(table.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{table}: {error.strerror}; give a TOML file of ladders") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{table} is not TOML: {error}; correct the file") from error
    ladders = tables.get("ladders")
    if not isinstance(ladders, dict) or not isinstance(ladders.get(name), dict):
        known = ", ".join(sorted(ladders)) if isinstance(ladders, dict) else "none"
        raise ConfigError(f"{table}: there is no [ladders.{name}]; there are: {known}")
    return _build(name, ladders[name], f"{table}: ladders.{name}")


def outcome_of(step: Measured, followed: Measured) -> tuple[Outcome, str]:
    """Whether a step is adopted, and why, in words with the figures.

    More streams in realtime are better, fewer worse. With as many, a step is adopted when TTFA,
    TTFS or RTF (medians at the lowest level) is lower by more than `NOISE_SHARE` and none is higher
    by more than that. TTFS is among them because silence sent early makes TTFA small by itself.
    """
    streams = f"{step.max_streams:g} against {followed.max_streams:g} streams in realtime"
    if step.max_streams != followed.max_streams:
        return ("adopted" if step.max_streams > followed.max_streams else "rejected"), streams
    better = worse = False
    words = [streams]
    for label, unit, new, old in (
        ("TTFA", " ms", step.ttfa_ms, followed.ttfa_ms),
        ("TTFS", " ms", step.ttfs_ms, followed.ttfs_ms),
        ("RTF", "", step.rtf, followed.rtf),
    ):
        if new is None or old is None or old <= 0:
            continue
        change = new / old - 1
        better = better or change < -NOISE_SHARE
        worse = worse or change > NOISE_SHARE
        words.append(f"{label} {new:.3g}{unit} against {old:.3g} ({change:+.0%})")
    if better and not worse:
        return "adopted", "; ".join(words)
    reason = "a gain and a loss" if better else "a loss" if worse else "no gain beyond noise"
    return "rejected", "; ".join([*words, reason])


def superseded(
    steps: Sequence[Step],
    outcomes: Mapping[str, Outcome],
    settings: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    """Adopted steps whose value the best has no more, and the adopted step that dropped it last.

    `settings` are those of each step. A later step drops a value by setting the switch anew, or by
    following another step than the one with it.
    """
    found: dict[str, str] = {}
    adopted = [step for step in steps if outcomes.get(step.name) == "adopted"]
    for number, step in enumerate(adopted):
        later = [other.name for other in adopted[number + 1 :]]
        has_it = [settings[name].get(step.switch) == step.value for name in later]
        if later and not has_it[-1]:
            kept = max((n for n, has in enumerate(has_it) if has), default=-1)
            found[step.name] = later[kept + 1]
    return found


def changed(preset: Preset, name: str, settings: Mapping[str, Any]) -> str:
    """A table of presets in TOML whose one row is `preset` under `name`, with `settings` changed.

    Raises:
        ConfigError: one is no setting of a preset.
    """
    row = {**preset.config(), **settings}
    if unknown := sorted(set(row) - set(preset.config())):
        raise ConfigError(f"{unknown[0]!r} is no setting of a preset; there are {_switches()}")
    del row["name"]
    for place in ("model", "codec"):
        folder = preset.base / Path(str(row[place])).expanduser()
        if folder.is_dir():
            row[place] = str(folder.resolve())
    if preset.stored_as is not None:
        row["model"] = f"{STORE}:{preset.stored_as}"
    lines = [f"{key} = {_toml(value)}" for key, value in row.items() if value is not None]
    return "\n".join([f"[presets.{_toml(name)}]", *lines, ""])


def slug(name: str) -> str:
    """A step's name as a preset's and a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _build(name: str, table: dict[str, Any], where: str) -> Ladder:
    for key in table:
        if key not in _LADDER:
            raise ConfigError(
                f"{where}.{key} is not a setting; the settings are {', '.join(sorted(_LADDER))}"
            )
    preset, settings = table.get("preset"), table.get("settings", {})
    if not isinstance(preset, str) or not preset:
        raise ConfigError(f"{where}.preset is {preset!r}; name a preset of the server")
    if not isinstance(settings, dict):
        raise ConfigError(f"{where}.settings is {settings!r}; give a table of settings")
    for switch in cast("dict[str, Any]", settings):
        _check_switch(switch, f"{where}.settings")
    rows = table.get("steps", [])
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{where}.steps is missing; give at least one [[ladders.{name}.steps]]")
    steps: list[Step] = []
    for number, row in enumerate(cast("list[Any]", rows), 1):
        steps.append(_step(row, f"{where}.steps, step {number}", [BASELINE, *_names(steps)]))
    levels = table.get("levels", [1, 2])
    if not isinstance(levels, list) or not all(_is_number(level) for level in levels):
        raise ConfigError(f"{where}.levels is {levels!r}; give a list as [1, 2]")
    numbers: dict[str, float] = {}
    for key, least, usual in (("duration_s", 1.0, 20.0), ("warmup_s", 0.0, 5.0)):
        value = table.get(key, usual)
        if not _is_number(value) or value < least:
            raise ConfigError(f"{where}.{key} is {value!r}; it must be {least:g} or more")
        numbers[key] = float(value)
    return Ladder(
        name,
        preset,
        settings,
        tuple(steps),
        check_levels([float(level) for level in levels], f"{where}.levels"),
        numbers["duration_s"],
        numbers["warmup_s"],
        str(table.get("note", "")),
    )


def _step(row: object, where: str, before: Sequence[str]) -> Step:
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is {row!r}; give a table with name, switch and value")
    given = cast("dict[str, Any]", row)
    for key in given:
        if key not in _STEP:
            raise ConfigError(
                f"{where}: {key} is not a setting; the settings are {', '.join(sorted(_STEP))}"
            )
    name = given.get("name")
    if not isinstance(name, str) or not slug(name):
        raise ConfigError(f"{where}: name is {name!r}; give each step a name")
    where = f"{where} ({name})"
    if slug(name) in map(slug, before):
        raise ConfigError(f"{where}: another step has this name; give each its own")
    _check_switch(given.get("switch"), where)
    if "value" not in given:
        raise ConfigError(f"{where}: value is missing; say what {given['switch']} is to be")
    follows = given.get("follows", "")
    if follows and follows not in before:
        raise ConfigError(
            f"{where}: follows is {follows!r}; name a step before it: {', '.join(before)}"
        )
    needs = given.get("needs", "")
    if needs not in ("", "cpu", "cuda"):
        raise ConfigError(f"{where}: needs is {needs!r}; it must be cpu or cuda")
    return Step(name, given["switch"], given["value"], str(given.get("note", "")), follows, needs)


def _check_switch(switch: object, where: str) -> None:
    if switch not in SWITCHES:
        raise ConfigError(f"{where}: {switch!r} is no switch of a preset; there are {_switches()}")


def _switches() -> str:
    return ", ".join(sorted(SWITCHES))


def _names(steps: Sequence[Step]) -> list[str]:
    return [step.name for step in steps]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _toml(value: Any) -> str:
    """A JSON value as TOML writes it: the same but for tables, whose keys are quoted here."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in cast("Sequence[Any]", value)) + "]"
    return json.dumps(value)
