"""The file of ladders: TOML, in which each ladder is a table `[ladders.NAME]`."""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from speech_assets.errors import ConfigError
from speech_assets.load.ladder import BASELINE, SWITCHES, Ladder, Step, slug, switches
from speech_assets.load.levels import LONGEST_S, check_levels

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

TABLE = Path(__file__).parent.parent / "ladder.toml"
_UNKNOWN = "unexpected_keyword_argument"  # pydantic's word.


def load_ladder(name: str, table: Path = TABLE) -> Ladder:
    """The ladder of that name.

    Raises:
        ConfigError: the file, ladder or a step is not what it must be.
    """
    if not _is_name(name):
        raise ConfigError(f"ladder {name!r}: its name must be text on one line, without a slash")
    try:
        tables = tomllib.loads(table.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{table}: {error.strerror}; give a TOML file of ladders") from error
    except (ValueError, RecursionError) as error:  # ValueError: a number too long, bad UTF-8, too.
        raise ConfigError(f"{table} is not TOML: {error}; correct the file") from error
    ladders = tables.get("ladders")
    if not isinstance(ladders, dict) or not isinstance(ladders.get(name), dict):
        known = ", ".join(sorted(ladders)) if isinstance(ladders, dict) else "none"
        raise ConfigError(f"{table}: there is no [ladders.{name}]; there are: {known}")
    return _build(name, ladders[name], f"{table}: ladders.{name}")


def _build(name: str, row: dict[str, Any], where: str) -> Ladder:
    steps: object = row.get("steps")
    if not isinstance(steps, list) or not steps:
        raise ConfigError(f"{where}.steps is missing; give at least one [[ladders.{name}.steps]]")
    if "name" in row:
        raise ConfigError(f"{where}.name is not a setting; its name is {name}, as in the heading")
    for loc, stray in _strays(row):
        place = _place(where, loc, cast("list[Any]", steps))
        raise ConfigError(f"{place} is {stray}; give a finite number, text, true or false")
    try:
        # Through JSON, so that strict types still take a list for a tuple.
        ladder = TypeAdapter(Ladder).validate_json(json.dumps({**row, "name": name}), strict=True)
    except ValidationError as error:
        # A word that is mistyped says more than that the right one is missing.
        first = min(error.errors(), key=lambda e: e["type"] != _UNKNOWN)
        place = _place(where, first["loc"], cast("list[Any]", steps))
        if first["type"] == _UNKNOWN:
            form = Ladder if len(first["loc"]) == 1 else Step
            known = ", ".join(sorted(f.name for f in dataclasses.fields(form)))
            raise ConfigError(f"{place} is not a setting; the settings are {known}") from error
        if first["type"] == "missing":
            raise ConfigError(f"{place} is missing; the table must have it") from error
        shown = reprlib.repr(first["input"])
        raise ConfigError(f"{place} is {shown}: {first['msg']}; correct it") from error
    return _checked(ladder, where)


def _checked(ladder: Ladder, where: str) -> Ladder:
    """The ladder, if it can be climbed.

    Raises:
        ConfigError: it cannot.
    """
    check_levels(ladder.levels, f"{where}.levels")
    for key, value, least in (
        ("duration_s", ladder.duration_s, 1),
        ("warmup_s", ladder.warmup_s, 0),
    ):
        if not least <= value <= LONGEST_S:
            raise ConfigError(f"{where}.{key} is {value:g}; it must be {least} to {LONGEST_S:g}")
    for switch in ladder.settings:
        _check_switch(switch, f"{where}.settings")
    before = [BASELINE]
    for number, step in enumerate(ladder.steps, 1):
        at = f"{where}.steps, step {number}"
        if not _is_name(step.name):
            raise ConfigError(f"{at}: name is {step.name!r}; give each step a name, on one line")
        at += f" ({step.name})"
        if slug(step.name) in map(slug, before):
            raise ConfigError(f"{at}: another step has this name; give each its own")
        _check_switch(step.switch, at)
        if step.follows and step.follows not in before:
            known = ", ".join(before)
            raise ConfigError(f"{at}: follows is {step.follows!r}; name a step before it: {known}")
        before.append(step.name)
    return ladder


def _place(where: str, loc: tuple[int | str, ...], steps: Sequence[Any]) -> str:
    """A place in a ladder's table; a step by its number and name."""
    if loc[:1] != ("steps",) or len(loc) == 1:
        return ".".join([where, *map(str, loc)])
    step = steps[int(loc[1])]
    name = step.get("name") if isinstance(step, dict) else None
    named = f" ({name})" if isinstance(name, str) and _is_name(name) else ""
    at = f"{where}.steps, step {int(loc[1]) + 1}{named}"
    return f"{at}: {'.'.join(map(str, loc[2:]))}" if loc[2:] else at


def _strays(value: object, loc: tuple[int | str, ...] = ()) -> Generator[tuple[Any, Any]]:
    """Places and values of what TOML has and no setting can be: dates, times, inf and nan."""
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from _strays(item, (*loc, key))
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            yield from _strays(item, (*loc, number))
    elif not isinstance(value, str | int) and not (
        isinstance(value, float) and math.isfinite(value)
    ):
        yield loc, value


def _is_name(text: str) -> bool:
    return bool(slug(text)) and text.isprintable() and "/" not in text


def _check_switch(switch: str, where: str) -> None:
    if switch not in SWITCHES:
        raise ConfigError(f"{where}: {switch!r} is no switch of a preset; there are {switches()}")
