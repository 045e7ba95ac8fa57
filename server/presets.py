"""Presets: one row of a table is one configuration of model, codec, engine and planner.

The table is `presets.toml` beside this file; `SPEECH_PRESETS` names a user's file of the same form,
whose rows are added to it.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from server.checks import RECORD_FILE, Served
from server.errors import ConfigurationError, WeightsError, cut, shown
from server.files import PLAIN_NAME, is_plain_name, read_json, user_path
from server.lead_ins import MOST_FRAMES
from server.preset import STORE as STORE
from server.preset import Preset as Preset
from server.preset import config_sha256 as config_sha256
from server.recipe import Recipe
from server.weights import is_repository, parse_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from server.preset import Device

TABLE = Path(__file__).with_name("presets.toml")
VARIABLE = "SPEECH_PRESETS"
DEFAULT_STORE = ".store"
_NOT_SETTINGS = frozenset({"name", "base"})
_COMPUTED_BY = ("dtype", "cpu_dtype", "head", "engine", "vllm")
"""Settings that decide what the engine computes of a checkpoint: its checks are of these alone."""


def load_preset(name: str, environment: Mapping[str, str] | None = None) -> Preset:
    """The preset of that name or alias.

    Raises:
        ConfigurationError: there is none, a table is not what it must be, or the row serves the
            checkpoint of a preset that has none, or that is made otherwise.
    """
    presets = load_presets(environment)
    for preset in presets.values():
        if name == preset.name or name in preset.aliases:
            _check_owner(preset, presets)
            return preset
    names = (n for preset in presets.values() for n in (preset.name, *preset.aliases))
    known = ", ".join(shown(n)[1:-1] for n in names)
    user = (os.environ if environment is None else environment).get(VARIABLE, "")
    more = f"{VARIABLE}={user} was read, too" if user else f"add rows with {VARIABLE}"
    raise ConfigurationError(f"no preset {shown(name)}; there are {known}; {more}")


def load_presets(environment: Mapping[str, str] | None = None) -> dict[str, Preset]:
    """Every preset by name: the project's, then the user's.

    What a row says of another's checkpoint is looked at when that row is asked for (`load_preset`):
    one that cannot be true stops no other.

    Raises:
        ConfigurationError: a file, row or value is not what it must be.
    """
    environment = os.environ if environment is None else environment
    presets = _read(TABLE)
    files = dict.fromkeys(presets, TABLE)
    if user := environment.get(VARIABLE, ""):
        path = user_path(user).resolve()
        presets |= (own := _read(path))
        files |= dict.fromkeys(own, path)
    owners: dict[str, str] = {}
    for preset in presets.values():
        for name in (preset.name, *preset.aliases):
            if name in owners:
                both = (owners[name], preset.name)
                # Of a row of ours and one of a user's, theirs is the one to correct.
                path = next((files[row] for row in both if files[row] != TABLE), TABLE)
                raise ConfigurationError(
                    f"{path}: the name {shown(name)} is of presets {both[0]} and {both[1]}; "
                    "rename one or drop its alias"
                )
            owners[name] = preset.name
    return presets


def overridden(
    preset: Preset,
    *,
    model: str | None = None,
    codec: str | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    max_streams: int | None = None,
    max_queue: int | None = None,
) -> Preset:
    """The preset with what a command line gives in place of its own; folders from where it runs."""
    given: dict[str, Any] = {"max_streams": max_streams, "max_queue": max_queue}
    for name, text in (("model", model), ("codec", codec)):
        if text is not None:
            if not text.strip():
                raise ConfigurationError(f"--{name} is empty; give a folder or OWNER/NAME@REVISION")
            parse_location(text)  # Raises where there is nothing.
            is_folder = user_path(text).is_dir()
            given[name] = str(user_path(text).resolve()) if is_folder else text
    if device != "auto":
        given["device"] = device
    changes = {name: value for name, value in given.items() if value is not None}
    return _checked(dataclasses.replace(preset, **changes), f"preset {preset.name}")


def weights_owner(preset: Preset, environment: Mapping[str, str] | None = None) -> Preset:
    """The preset whose checkpoint is served: `preset` itself, or the one that `store:NAME` names.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if preset.stored_as in (None, preset.name):
        return preset
    return load_preset(str(preset.stored_as), environment)


def recipe_of(preset: Preset, environment: Mapping[str, str] | None = None) -> Recipe:
    """How the weights of `preset` are made, and what they may stray: its own table, else the one of
    whose checkpoint it serves. Where it has both, they make the same weights (`load_preset`).

    Raises:
        ConfigurationError: neither has a table.
    """
    recipe = preset.checkpoint or weights_owner(preset, environment).checkpoint
    if recipe is None:
        raise ConfigurationError(
            f"preset {preset.name} has no checkpoint table, so that nothing says what it may stray "
            'from; give it one as checkpoint = { scheme = "bf16" }'
        )
    return recipe


def check_recipe(
    preset: Preset, folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Do nothing, if the stored checkpoint in `folder` was made as its preset says now.

    A recipe may be edited after the checkpoint was made: its weights must not be served, judged or
    timed under the new one's name. A preset whose weights are none of the store has none.

    Raises:
        WeightsError: it was made by another recipe, or nothing says by which.
    """
    if preset.stored_as is None:
        return
    path, owner = folder / RECORD_FILE, weights_owner(preset, environment)
    remedy = f"materialize checkpoints for {owner.name} again"
    record = read_json(path, absent=f"the checkpoint was never finished; {remedy}", remedy=remedy)
    try:
        made = Recipe(**{key: record["recipe"][key] for key in ("scheme", "base", "group_size")})
        words = made.in_words
    except (KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path}: no record of a checkpoint ({error!r}); {remedy}") from error
    wanted = recipe_of(owner, environment).in_words
    if words != wanted:
        raise WeightsError(
            f"{path}: made as {words}, and preset {owner.name} says {wanted}; {remedy}"
        )


def served_as(preset: Preset, weights_sha256: str, device: Device) -> Served:
    """What checks of `preset` are of, when it serves the weights of that hash on that device.

    Raises:
        ConfigurationError: nothing says what it may stray from its base model.
    """
    settings = preset.config()
    return Served(
        weights_sha256,
        config_sha256({name: settings[name] for name in _COMPUTED_BY}),
        device,
        {"fidelity": recipe_of(preset).limit_nats},
    )


def _check_owner(preset: Preset, presets: Mapping[str, Preset]) -> None:
    """Do nothing, if a preset of another's checkpoint can say what that is.

    Raises:
        ConfigurationError: the other has none in the store, or is made otherwise.
    """
    name = preset.stored_as
    if name in (None, preset.name):
        return
    where = f"presets.{preset.name}"
    owner = presets.get(str(name))
    if owner is None or owner.model != STORE:
        stored = ", ".join(known.name for known in presets.values() if known.model == STORE)
        raise ConfigurationError(
            f"{where}.model is {shown(preset.model)}, and {shown(name)} is no preset whose model "
            f"is {STORE!r}; name one of {stored}"
        )
    if preset.checkpoint is None:
        return
    if owner.checkpoint is None:
        raise ConfigurationError(
            f"{where}.checkpoint makes nothing: its weights are those of preset {name}, which has "
            "no checkpoint table; give the table to that one"
        )
    own, others = preset.checkpoint, owner.checkpoint
    values = {
        "scheme": (own.scheme, others.scheme),
        "group_size": (own.group_size, others.group_size),
        "base": (_place(own.base, preset), _place(others.base, owner)),
    }
    for key, (value, other) in values.items():
        if value != other and not (key == "base" and not own.base):
            raise ConfigurationError(
                f"{where}.checkpoint.{key} is {shown(value)}, and its weights are those of preset "
                f"{name}, where it is {shown(other)}; say the same, or give it a checkpoint of its "
                f"own by model = {STORE!r}"
            )


def _place(text: str, preset: Preset) -> str:
    """A base model as a row names it: a repository, or a folder from where the row's file is."""
    return text if is_repository(text) else str((preset.base / user_path(text)).resolve())


def _read(path: Path) -> dict[str, Preset]:
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{VARIABLE}={path}: {error.strerror}; give a TOML file of presets"
        ) from error
    except (ValueError, TypeError, RecursionError) as error:  # A number too long, bad UTF-8, too.
        why = cut(str(error))  # It may quote a key.
        raise ConfigurationError(f"{path} is not TOML: {why}; correct the file") from error
    for table in tables:
        if table != "presets":
            raise ConfigurationError(
                f"{path}: unknown table [{shown(table)[1:-1]}]; rows are [presets.NAME]"
            )
    rows = tables.get("presets")
    if not isinstance(rows, dict):
        raise ConfigurationError(f"{path}: no table [presets.NAME]; each is one preset")
    return {name: _build(path, name, row) for name, row in cast("dict[str, object]", rows).items()}


def _build(path: Path, name: str, row: object) -> Preset:
    where = f"{path}: presets.{name}"
    if not is_plain_name(name):
        raise ConfigurationError(
            f"{path}: [presets.{shown(name)}] is no name of a preset; it becomes a folder's, so "
            f"give {PLAIN_NAME}"
        )
    if not isinstance(row, dict):
        raise ConfigurationError(f"{where} is {shown(row)}; it must be a table of settings")
    settings = {f.name for f in dataclasses.fields(Preset)} - _NOT_SETTINGS
    _check_keys(cast("dict[str, object]", row), settings, where)
    recipe: object = cast("dict[str, object]", row).get("checkpoint")
    if isinstance(recipe, dict):
        known = {f.name for f in dataclasses.fields(Recipe)}
        _check_keys(cast("dict[str, object]", recipe), known, f"{where}.checkpoint")
    for key, value in row.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"{where}.{key} is {shown(value)}: {error}; correct it"
            ) from error
    try:
        # Through JSON, so that strict types still take a list for a tuple.
        text = json.dumps({**row, "name": name, "base": str(path.parent)}, allow_nan=False)
        preset = TypeAdapter(Preset).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([where, *map(str, first["loc"])])
        if first["type"] == "missing":
            raise ConfigurationError(f"{place} is missing; the row must have it") from error
        raise ConfigurationError(
            f"{place} is {shown(first['input'])}: {first['msg']}; correct it"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where}: {error}; correct it") from error
    return _checked(preset, where)


def _check_keys(row: Iterable[str], settings: Iterable[str], where: str) -> None:
    """Refuse a key that means nothing: a mistyped one would leave its default in force."""
    known = sorted(settings)
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ConfigurationError(
                f"{where}.{shown(key)[1:-1]} is not a setting; {meant}the settings are "
                f"{', '.join(known)}"
            )


def _checked(preset: Preset, where: str) -> Preset:
    """The preset, if its numbers can work.

    Raises:
        ConfigurationError: one cannot.
    """
    for alias in preset.aliases:
        if not alias or not alias.isprintable() or alias != alias.strip():
            raise ConfigurationError(f"{where}.aliases has {shown(alias)}; give names on one line")
    limits = {
        "max_streams": (1, 4_096),
        "max_queue": (0, 65_536),
        "max_model_len": (128, 131_072),
        "seeded_frames": (0, MOST_FRAMES),
        "kv_cache_mib": (16, 1 << 20),
        "temperature": (0, 2),
        "top_p": (0.01, 1),
        "repetition_penalty": (0.5, 2),
    }
    for name, (least, most) in limits.items():
        value = getattr(preset, name)
        if value is not None and not least <= value <= most:
            raise ConfigurationError(
                f"{where}.{name} is {shown(value)}; it must be {least} to {most}"
            )
    if preset.untrained and preset.lead_ins:
        raise ConfigurationError(
            f"{where}.lead_ins is {shown(preset.lead_ins)}, and untrained presets make up their "
            "own beginnings; leave lead_ins out"
        )
    if preset.seeded_frames and not preset.lead_ins and not preset.untrained:
        raise ConfigurationError(
            f"{where}.seeded_frames is {preset.seeded_frames}, and lead_ins names no file; make "
            "one (python -m speech_assets.work.lead_ins --help), or set seeded_frames = 0"
        )
    try:
        _ = preset.lead_ins_path
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}.lead_ins is {error}") from error
    for name in ("model", "codec"):
        if getattr(preset, name) is not None and not str(getattr(preset, name)).strip():
            raise ConfigurationError(
                f"{where}.{name} is empty; give a folder or OWNER/NAME@REVISION"
            )
    if (fault := preset.sampler_fault(preset.device)) is not None:
        raise ConfigurationError(f"{where}.{fault}")
    recipe = preset.checkpoint
    if recipe is not None and not (1 <= recipe.group_size <= 65_536 and recipe.limit_nats > 0):
        raise ConfigurationError(
            f"{where}.checkpoint: group_size is {shown(recipe.group_size)} and max_mean_kl_nats "
            f"{recipe.limit_nats:g}; both must be above 0"
        )
    try:
        preset.planner_config()
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}.{error}") from error
    return preset
