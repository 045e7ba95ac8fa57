"""The ladder: presets that differ in one switch, in the order in which they are tried.

A ladder is a table of TOML. It begins with a baseline: a preset of the server, some of its settings
changed. Each of its steps changes one setting of the best before it, so that what helps adds up; a
step that `follows` another by name changes that one.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic import ConfigDict, with_config

from server.files import user_path
from server.presets import STORE, Preset
from speech_assets.errors import ConfigError

BASELINE = "baseline"
_PLACES = frozenset({"name", "base", "model", "description", "aliases", "checkpoint"})
SWITCHES = tuple(f.name for f in dataclasses.fields(Preset) if f.name not in _PLACES)
"""What a step may change: a preset's settings, but not which model it is."""

Outcome = Literal["baseline", "adopted", "rejected", "superseded", "not possible"]
FULL_STEP_S = 20.0  # What a level takes in a ladder that is not called reduced.
NOISE_SHARE = 0.05
"""Latency or RTF that differ by less are taken for the same. A choice, not a measured spread."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Step:
    """One row of the table. `needs` is a device without which the switch means nothing."""

    name: str
    switch: str
    value: Any
    note: str = ""
    follows: str = ""
    needs: Literal["", "cpu", "cuda"] = ""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Ladder:
    """A baseline, the steps from it, and the sweep that each is measured by."""

    name: str
    preset: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    steps: tuple[Step, ...] = ()
    levels: tuple[float, ...] = (1.0, 2.0)
    duration_s: float = FULL_STEP_S
    warmup_s: float = 5.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the rule compares: the largest passing level, and medians at the lowest level."""

    max_streams: float
    ttfa_ms: float | None
    ttfs_ms: float | None
    rtf: float | None


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
        raise ConfigError(f"{unknown[0]!r} is no setting of a preset; there are {switches()}")
    del row["name"]
    for place in ("model", "codec", "lead_ins"):
        path = preset.base / user_path(str(row[place]))
        if path.exists():
            row[place] = str(path.resolve())
    if preset.stored_as is not None:
        row["model"] = f"{STORE}:{preset.stored_as}"
    lines = [f"{key} = {_toml(value)}" for key, value in row.items() if value is not None]
    return "\n".join([f"[presets.{_toml(name)}]", *lines, ""])


def slug(name: str) -> str:
    """A step's name as a preset's and a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def switches() -> str:
    """The names of all switches, for an error."""
    return ", ".join(sorted(SWITCHES))


def _toml(value: Any) -> str:
    """A JSON value as TOML writes it: the same but for tables, whose keys are quoted here."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in cast("Sequence[Any]", value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # TOML knows no escaped surrogates.
