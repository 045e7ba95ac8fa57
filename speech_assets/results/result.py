"""One measurement: its figures with units, its rows, and what they were made with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from speech_assets.errors import ConfigError
from speech_assets.results.provenance import git_state, installed_software

SCHEMA_VERSION = 1
_MOST_AHEAD = timedelta(days=1)
_HASH = "content_sha256"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its unit; `n` observations, and an interval where there is one.

    `sentences` are what an interval was resampled over, where it was: clips of one are one draw.
    """

    value: float
    unit: str
    n: int = 1
    ci_low: float | None = None
    ci_high: float | None = None
    sentences: int | None = None

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
        """JSON value, with the hash of the configuration and that of all the rest."""
        value = asdict(self)
        value["config_sha256"] = _sha256(value["config"])
        value["schema_version"] = SCHEMA_VERSION
        return with_content_hash(value)


def read_result(path: Path, without_hash: Container[str] = ()) -> dict[str, Any]:
    """A result file, its form and hashes checked; `without_hash` as `parse_result` has it.

    Raises:
        ConfigError: it is not a result of this schema, or it was edited.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} is not a result file: {error.strerror}") from error
    return parse_result(data, str(path), without_hash)


def parse_result(data: bytes, where: str, without_hash: Container[str] = ()) -> dict[str, Any]:
    """The result that `data` holds, its form and hashes checked; `where` it was read from.

    Only files of the hashes `without_hash` (SHA-256 of all their bytes) may have no hash of their
    content: whoever edits a figure could leave that out, too.

    Raises:
        ConfigError: it is not a result of this schema, or it was edited.
    """
    # Here, and not above: it loads pydantic, which whoever only writes figures does not need.
    from speech_assets.results.forms import check_form

    check_form(data, where)
    try:
        value: dict[str, Any] = json.loads(data, parse_constant=_no_number)
    except ValueError as error:
        raise ConfigError(f"{where} is not a result file: {error}") from error
    is_known = _HASH not in value and hashlib.sha256(data).hexdigest() in without_hash
    for name, found in (
        ("config_sha256", _sha256(value["config"])),
        *([] if is_known else [(_HASH, _content_sha256(value))]),
    ):
        if name not in value:
            raise ConfigError(
                f"{where} has no {name}; take the file as it was written, or measure again"
            )
        if value[name] != found:
            of_what = "config" if name == "config_sha256" else "content"
            raise ConfigError(
                f"{where}: {name} is not that of its {of_what}: the file was edited; take it as it "
                "was written, or measure again"
            )
    return value


def check_complete(value: Mapping[str, Any], where: str) -> None:
    """Nothing, if the result's figures may be shown.

    Raises:
        ConfigError: they may not.
    """
    if value["status"] != "complete":
        raise ConfigError(
            f"{where}: status is {value['status']!r}, and only complete results are shown; "
            f"measure it again on a quieter machine ({value['command']})"
        )


def check_not_ahead(value: Mapping[str, Any], where: str) -> None:
    """Nothing, if the result was not started more than a day ahead of this machine's clock.

    One from the future would be the newest, whatever is measured from now on. A day is for clocks
    that differ.

    Raises:
        ConfigError: it was.
    """
    latest = datetime.now(UTC) + _MOST_AHEAD
    if datetime.fromisoformat(value["started_at"]) > latest:
        raise ConfigError(
            f"{where}: started_at is {value['started_at']}, more than a day ahead of this "
            "machine's clock; set the clock right, or measure again on a machine whose clock is"
        )


def result_key(value: Mapping[str, Any]) -> str:
    """Key of a result that was read."""
    return _key(value["kind"], value["device"]["name"], value["name"], value["started_at"])


def _key(kind: str, device_name: str, name: str, started_at: str) -> str:
    run = re.sub(r"\D", "", started_at)[:14]
    return f"results/{kind}/{slug(device_name)}/{slug(name)}/{run}.json"


def with_content_hash(value: Mapping[str, Any]) -> dict[str, Any]:
    """A result's JSON value with the hash of all its content; one that it had is replaced."""
    return {**value, _HASH: _content_sha256(value)}


def _content_sha256(value: Mapping[str, Any]) -> str:
    return _sha256({name: content for name, content in value.items() if name != _HASH})


def _sha256(value: Any) -> str:
    """Hash of a JSON value: the same before it was written and after it was read."""
    as_read = json.loads(json.dumps(value))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def slug(text: str) -> str:
    """`text` as a folder's name: lower case, hyphens for all but letters and digits."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
