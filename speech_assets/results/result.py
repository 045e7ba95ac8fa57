"""One measurement: its figures with units, its rows, and what they were made with."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from speech_assets.errors import ConfigError
from speech_assets.results.provenance import git_state, installed_software

SCHEMA_VERSION = 1
_STARTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FIELDS = {
    "schema_version", "kind", "name", "status", "reduced", "started_at", "device", "software",
    "git", "command", "config", "config_sha256", "seeds", "rows", "figures",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its unit; `n` observations, and an interval where there is one."""

    value: float
    unit: str
    n: int = 1
    ci_low: float | None = None
    ci_high: float | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON value; without the interval where there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. `name` is the preset or configuration; `reduced` marks a shortened run."""

    kind: str
    name: str
    started_at: str
    device: Mapping[str, Any]
    command: str
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    figures: Mapping[str, Figure]
    status: str = "complete"
    reduced: bool = False
    seeds: Sequence[int] = ()
    software: Mapping[str, str] = field(default_factory=installed_software)
    git: Mapping[str, Any] = field(default_factory=git_state)

    @property
    def key(self) -> str:
        """`results/<kind>/<device>/<name>/<run>.json`, in the store and in the repository."""
        return _key(self.kind, self.device["name"], self.name, self.started_at)

    def as_json(self) -> dict[str, Any]:
        """JSON value, with the hash of the configuration."""
        value = asdict(self)
        value["config_sha256"] = _config_sha256(value["config"])
        value["schema_version"] = SCHEMA_VERSION
        return value


def read_result(path: Path) -> dict[str, Any]:
    """A result file, its form checked.

    Raises:
        ConfigError: it is not a result of this schema.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a result file: {error}") from error
    missing = _FIELDS - set(value) if isinstance(value, dict) else _FIELDS
    if missing:
        raise ConfigError(f"{path} is not a result file: it has no {', '.join(sorted(missing))}")
    if value["schema_version"] != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} has schema version {value['schema_version']}, this version reads "
            f"{SCHEMA_VERSION}"
        )
    device = value["device"]
    for field_name, text in (
        ("kind", value["kind"]),
        ("name", value["name"]),
        ("device.name", device.get("name") if isinstance(device, dict) else None),
    ):
        if not isinstance(text, str) or not _slug(text):
            raise ConfigError(f"{path}: {field_name} is {text!r}, must be a name")
    if not isinstance(value["started_at"], str) or not _STARTED.fullmatch(value["started_at"]):
        raise ConfigError(
            f"{path}: started_at is {value['started_at']!r}, must be as 2026-11-29T10:00:00Z"
        )
    if not isinstance(value["figures"], dict) or not value["figures"]:
        raise ConfigError(f"{path}: figures is {value['figures']!r}, must name at least one")
    for name, figure in value["figures"].items():
        number = figure.get("value") if isinstance(figure, dict) else None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(f"{path}: figure {name} is {figure!r}, must have a number as value")
        if not math.isfinite(number):
            raise ConfigError(f"{path}: figure {name} is {number}, must be finite")
    if _config_sha256(value["config"]) != value["config_sha256"]:
        raise ConfigError(f"{path}: config_sha256 is not that of its config: the file was edited")
    return value


def result_key(value: Mapping[str, Any]) -> str:
    """Key of a result that was read."""
    return _key(value["kind"], value["device"]["name"], value["name"], value["started_at"])


def kind_folder(kind: str) -> str:
    """The folder of a kind, a word of the project's own (`load_tests`): called the same."""
    return re.sub(r"[^a-z0-9_]+", "-", kind.lower()).strip("-")


def _key(kind: str, device_name: str, name: str, started_at: str) -> str:
    run = re.sub(r"\D", "", started_at)[:14]
    return f"results/{kind_folder(kind)}/{_slug(device_name)}/{_slug(name)}/{run}.json"


def _config_sha256(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
