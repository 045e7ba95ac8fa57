"""An arm of a comparison: a preset, some of its settings changed.

Written `PRESET[,setting=value...]`: `embedded-bf16,codec_dtype=bfloat16,vllm.kv_cache_dtype=fp8`. A
value is JSON where it can be read so (numbers, true, null, {...}), else text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from resources.scratch import scratch_folder
from server.codec_form import FORMS
from server.errors import ConfigurationError
from server.files import user_path
from server.presets import VARIABLE, load_preset
from speech_assets.errors import ConfigError
from speech_assets.load.ladder import changed
from speech_assets.results.provenance import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from resources.store import Store

Letter = Literal["a", "b"]
LETTERS: tuple[Letter, Letter] = ("a", "b")
_NEXT_SETTING = re.compile(r",(?=\s*[A-Za-z_][\w.]*\s*=)")
_PLACES = ("model", "codec", "lead_ins")
_LONGEST_NAME = 150  # It becomes a folder's name, of which file systems allow 255 bytes.


@dataclass(frozen=True, slots=True)
class Arm:
    """A preset of that name, and the settings in which it differs, as they were given.

    A setting may be one of a table's keys: `vllm.kv_cache_dtype`.
    """

    preset: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The arm as it is written, folders by their place in the project or their name alone."""
        return ",".join([self.preset, *(f"{k}={_shown(k, v)}" for k, v in self.changes)])

    def table(self) -> str | None:
        """The preset with its changes as a table of presets in TOML; None where nothing differs.

        It keeps its name, so that the checks of its checkpoint are still its own.

        Raises:
            ConfigError: a change is of no setting.
        """
        if not self.changes:
            return None
        preset = load_preset(self.preset)
        settings: dict[str, Any] = {}
        for name, value in self.changes:
            head, dot, key = name.partition(".")
            if not dot:
                settings[name] = value
                continue
            table = settings.get(head, preset.config().get(head))
            if not isinstance(table, dict):
                raise ConfigError(f"arm {self.label}: {head!r} is no table of settings of a preset")
            settings[head] = {**cast("dict[str, Any]", table), key: value}
        if "name" in settings:
            raise ConfigError(
                f"arm {self.label}: a preset's name is no setting of it; leave it out"
            )
        try:
            return changed(preset, preset.name, settings)
        except ConfigError as error:
            raise ConfigError(f"arm {self.label}: {error}") from error


def parse_arm(text: str, changes: Iterable[tuple[str, Any]] = ()) -> Arm:
    """The arm that `text` describes, with further `changes`, its values checked.

    Raises:
        ConfigError, ConfigurationError: there is no such preset or setting, or a value cannot work.
    """
    name, *words = (word.strip() for word in _NEXT_SETTING.split(text.strip()))
    if not name or "," in name or "=" in name:
        raise ConfigError(
            f"arm {text!r}: it must begin with a preset; write PRESET or PRESET,setting=value,..."
        )
    pairs = [word.partition("=") for word in words]
    given = [(key.strip(), _value(key.strip(), value.strip())) for key, _, value in pairs]
    given += list(changes)
    names = [key for key, _ in given]
    if twice := [key for key in names if names.count(key) > 1]:
        raise ConfigError(f"arm {text!r}: {twice[0]} is given twice; give it once")
    arm = Arm(load_preset(name).name, tuple(given))
    _check(arm)
    return arm


def codec_change(given: str, store: Store) -> list[tuple[str, str]]:
    """The change that takes another codec: a folder, OWNER/NAME@REVISION or a form of the store's.

    Raises:
        ConfigError: the store has no such form yet, or is not a folder.
    """
    if not given:
        return []
    if given not in FORMS:
        return [("codec", _value("codec", given))]
    folder = Path(store.path(f"codecs/{given}"))
    if not store.is_local or not folder.is_dir():
        raise ConfigError(
            f"codec form {given!r}: there is no folder {folder}; materialize codec_checkpoints for "
            f"{given} in a store that is a folder, or give a codec's folder"
        )
    return [("codec", str(folder.resolve()))]


def comparison_name(a: Arm, b: Arm) -> str:
    """What a comparison is called: "A vs B", cut where it would be too long for a file's name."""
    name = f"{a.label} vs {b.label}"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def shown_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A server's settings as results show them: without the machine's folders."""
    return {
        k: place_of(v) if k in _PLACES and isinstance(v, str) else v for k, v in settings.items()
    }


def _check(arm: Arm) -> None:
    """The changed preset by the rules of presets, before a server is started."""
    text = arm.table()
    if text is None:
        load_preset(arm.preset).codec_location()
        return
    with scratch_folder("ab") as folder:
        table = folder / "presets.toml"
        table.write_text(text, encoding="utf-8")
        try:
            load_preset(arm.preset, {VARIABLE: str(table)}).codec_location()
        except ConfigurationError as error:
            why = str(error).replace(f"{table}: ", "").replace(f"{folder}/", "")
            raise ConfigError(f"arm {arm.label}: {why}") from error


def _value(name: str, text: str) -> Any:
    if name in _PLACES:
        path = user_path(text)
        # From where the command runs, not from the file that has the preset.
        return str(path.resolve()) if path.exists() else text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(name: str, value: Any) -> str:
    if name in _PLACES and isinstance(value, str):
        return place_of(value)
    return value if isinstance(value, str) else json.dumps(value)
