"""Whether a checkpoint of the store may be served as a preset: by the preset's `checks.json`.

It is `checkpoints/<preset>/checks.json` in the store, beside the weights or, for a preset that is
served from another's checkpoint, in a folder of its own. The project's assets write it; the server
only reads it. A check that failed, that was never made, or that is of other weights, of other
settings or of another version of the check keeps the preset from being served.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from server.errors import WeightsError
from server.files import write_json
from server.weights import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_VERSION = 2
CHECKS_FILE = "checks.json"
RECORD_FILE = "checkpoint.json"
"""What a checkpoint was made from, by what; written with the weights."""
NOT_WEIGHTS = frozenset({CHECKS_FILE, RECORD_FILE})
REQUIRED = {"engine": "1", "fidelity": "1"}
"""Checks that must have passed, each with its version: bump it when the same checkpoint could be
judged otherwise. `engine`: vLLM loads it and gives the logits of its dequantized weights.
`fidelity`: it strays from the base model by no more than its preset allows."""
_LOCK_WAIT_S = 30.0
"""For another process to write its check, which takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Check:
    """One look at a checkpoint: `value` against `limit`, where it is a number."""

    passed: bool
    detail: str
    value: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """What a check is of: the weights, the settings that change what is computed, and limits.

    Attributes:
        weights_sha256: of the folder that the weights are loaded from (`weights_sha256`).
        settings_sha256: of the preset's settings that decide what its engine computes.
        limits: by the check's name, where the preset says what its value may be at most.
    """

    weights_sha256: str
    settings_sha256: str
    limits: Mapping[str, float] = field(default_factory=dict[str, float])


def weights_sha256(folder: Path) -> str:
    """Hash of what is loaded from a checkpoint's folder, without its record and checks."""
    return fingerprint(folder, but=NOT_WEIGHTS)


def read_checks(path: Path, served: Served) -> dict[str, Check]:
    """Checks in the file `path` that are of `served`, by name.

    Left out is what was made of other weights or settings, with another limit, or by another
    version of the check or of the file.

    Raises:
        WeightsError: `path` is no file of checks.
    """
    if not path.is_file():
        return {}
    try:
        value: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if int(value["schema_version"]) < SCHEMA_VERSION:
            return {}  # Those of before say nothing of settings.
        if value["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {value['schema_version']}, not {SCHEMA_VERSION}")
        of = str(value["weights_sha256"]), str(value["settings_sha256"])
        rows = {name: (str(row.pop("code_version")), row) for name, row in value["checks"].items()}
        found = {name: (version, Check(**row)) for name, (version, row) in rows.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{path}: no file of checks ({type(error).__name__}: {error}); make the checkpoint's "
            "checks again"
        ) from error
    if of != (served.weights_sha256, served.settings_sha256):
        return {}
    return {
        name: check
        for name, (version, check) in found.items()
        if version == REQUIRED.get(name, version)
        and check.limit == served.limits.get(name, check.limit)
    }


def write_check(path: Path, served: Served, name: str, check: Check) -> None:
    """Add a check of `served` to the file `path`; those of anything else are dropped.

    Processes that add checks at once wait for each other. A file that is damaged is made anew.

    Raises:
        OSError: it cannot be written there.
    """
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the folder, which holds what is served and may be exchanged as a whole.
    with FileLock(folder.with_name(f".{folder.name}.checks.lock"), timeout=_LOCK_WAIT_S):
        try:
            checks = read_checks(path, served)
        except WeightsError:
            checks = {}
        checks[name] = check
        value = {
            "schema_version": SCHEMA_VERSION,
            "weights_sha256": served.weights_sha256,
            "settings_sha256": served.settings_sha256,
            "checks": {
                known: {"code_version": REQUIRED.get(known, ""), **asdict(made)}
                for known, made in sorted(checks.items())
            },
        }
        write_json(path, value)


def require_checks(path: Path, served: Served, preset: str) -> None:
    """Do nothing, if every required check of `served` passed.

    Raises:
        WeightsError: one failed, or was not made of these weights and settings.
    """
    checks = read_checks(path, served)
    failed = [name for name in REQUIRED if name in checks and not checks[name].passed]
    missing = [name for name in REQUIRED if name not in checks]
    if not failed and not missing:
        return
    faults = [f"{name}: {checks[name].detail}" for name in failed]
    faults += [f"{name} was not made of these weights and settings" for name in missing]
    raise WeightsError(
        f"{path}: preset {preset} has not passed its checks ({'; '.join(faults)}); materialize "
        "checkpoints and fidelity for it, or serve it with --allow-unchecked"
    )
