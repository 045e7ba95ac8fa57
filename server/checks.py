"""Whether a checkpoint of the store may be served as a preset: by the preset's `checks.json`.

It is `checkpoints/<preset>/checks.json` in the store, beside the weights or, for a preset that is
served from another's checkpoint, in a folder of its own. The project's assets write it; the server
only reads it. A check that failed, that was never made, or that is of other weights, of other
settings, of another device or of another version of the check keeps the preset from being served.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, cast

from filelock import FileLock

from server.errors import WeightsError
from server.files import parse_object, write_json
from server.weights import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_VERSION = 3  # 2 knew neither of devices nor of reduced runs.
CHECKS_FILE = "checks.json"
RECORD_FILE = "checkpoint.json"
"""What a checkpoint was made from, by what; written with the weights."""
NOT_WEIGHTS = frozenset({CHECKS_FILE, RECORD_FILE})
REQUIRED = {"engine": "1", "fidelity": "1"}
"""Checks that must have passed, each with its version: bump it when the same checkpoint could be
judged otherwise. `engine`: vLLM loads it and gives the logits of its dequantized weights.
`fidelity`: it strays from the base model by no more than its preset allows."""
_REMEDY = "make the checkpoint's checks again"
_LOCK_WAIT_S = 30.0
"""For another process to write its check, which takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Check:
    """One look at a checkpoint: `value` against `limit`, where it is a number.

    `generations` are how many it judged by; `reduced` says that they were fewer, or shorter, than a
    whole run has.
    """

    passed: bool
    detail: str
    value: float | None = None
    limit: float | None = None
    generations: int | None = None
    reduced: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """What a check is of: the weights, the settings that change what is computed, and limits.

    Attributes:
        weights_sha256: of the folder that the weights are loaded from (`weights_sha256`).
        settings_sha256: of the preset's settings that decide what its engine computes.
        device: that computes: another has other kernels, which round otherwise or fail.
        limits: by the check's name, where the preset says what its value may be at most.
    """

    weights_sha256: str
    settings_sha256: str
    device: Literal["cpu", "cuda"]
    limits: Mapping[str, float] = field(default_factory=dict[str, float])


def weights_sha256(folder: Path, *, noted: bool = False) -> str:
    """Hash of what is loaded from a checkpoint's folder, without its record and checks.

    Every byte is read, unless `noted` takes the hash of a large file that did not change from the
    note that was made with its checks (`server.noted_hashes`).
    """
    return fingerprint(folder, but=NOT_WEIGHTS, noted=noted)


def read_checks(path: Path, served: Served) -> dict[str, Check]:
    """Checks in the file `path` that are of `served`, by name.

    Left out is what was made of other weights or settings, on another device, with another limit,
    or by another version of the check or of the file.

    Raises:
        WeightsError: `path` is no file of checks.
    """
    return {
        name: check
        for name, check in _read(path, served).get(served.device, {}).items()
        if check.limit == served.limits.get(name, check.limit)
    }


def write_check(path: Path, served: Served, name: str, check: Check) -> Check:
    """Add a check of `served` to the file `path`; those of other weights or settings are dropped.

    A reduced run never takes the place of a whole one, not even of one with another limit: what
    fails a whole one may pass a shortened one by chance. Given is the check that stands in the
    file then. Processes that add checks at once wait for each other. A file that is damaged is
    made anew.

    Raises:
        OSError: it cannot be written there.
    """
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the folder, which holds what is served and may be exchanged as a whole.
    with FileLock(folder.with_name(f".{folder.name}.checks.lock"), timeout=_LOCK_WAIT_S):
        try:
            held = _read(path, served)
        except WeightsError:
            held = {}
        checks = held.setdefault(served.device, {})
        if check.reduced and name in checks and not checks[name].reduced:
            return checks[name]
        checks[name] = check
        value = {
            "schema_version": SCHEMA_VERSION,
            "weights_sha256": served.weights_sha256,
            "settings_sha256": served.settings_sha256,
            "checks": {
                device: {known: _row(known, made) for known, made in sorted(of_device.items())}
                for device, of_device in sorted(held.items())
            },
        }
        write_json(path, value)
    return check


def require_checks(path: Path, served: Served, preset: str) -> dict[str, Check]:
    """Every required check of `served` by name, if all passed.

    Raises:
        WeightsError: one failed, or was not made of these weights and settings.
    """
    checks = read_checks(path, served)
    failed = [name for name in REQUIRED if name in checks and not checks[name].passed]
    missing = [name for name in REQUIRED if name not in checks]
    if not failed and not missing:
        return {name: checks[name] for name in REQUIRED}
    others = [device for device in _read(path, served) if device != served.device]
    faults = [f"{name}: {checks[name].detail}" for name in failed]
    faults += [
        f"{name} was not made of these weights and settings on {served.device}"
        + (f", only on {others[0]}" if others else "")
        for name in missing
    ]
    remedy = "materialize checkpoints and fidelity for it"
    if "fidelity" in failed:
        remedy = (
            "make it by more calibration texts, with a smaller group_size or as fp8, or raise its "
            "max_mean_kl_nats if that much is accepted, and materialize checkpoints and fidelity "
            "again (docs/checkpoints.md, If a check fails)"
        )
    raise WeightsError(
        f"{path}: preset {preset} has not passed its checks ({'; '.join(faults)}); {remedy}, or "
        "serve it with --allow-unchecked"
    )


def _read(path: Path, served: Served) -> dict[str, dict[str, Check]]:
    """Checks of the weights and settings of `served` by device and name, of versions in force."""
    if not path.is_file():
        return {}
    try:
        value = parse_object(path.read_bytes())
        version: object = value["schema_version"]
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"schema version {version!r}")
        if version < SCHEMA_VERSION:
            return {}
        if version > SCHEMA_VERSION:
            raise ValueError(f"schema version {version}, not {SCHEMA_VERSION}")
        of = value["weights_sha256"], value["settings_sha256"]
        found = {
            str(device): {
                name: _check(name, cast("dict[str, Any]", row)) for name, row in rows.items()
            }
            for device, rows in value["checks"].items()
        }
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise WeightsError(
            f"{path}: no file of checks ({type(error).__name__}: {error}); {_REMEDY}"
        ) from error
    if of != (served.weights_sha256, served.settings_sha256):
        return {}
    return {
        device: {
            name: check
            for name, (version, check) in rows.items()
            if version == REQUIRED.get(name, version)
        }
        for device, rows in found.items()
    }


def _row(name: str, check: Check) -> dict[str, Any]:
    row = asdict(check)
    for key in ("value", "limit"):  # JSON has no others.
        row[key] = row[key] if row[key] is not None and math.isfinite(row[key]) else None
    return {"code_version": REQUIRED.get(name, ""), **row}


def _check(name: str, row: dict[str, Any]) -> tuple[str, Check]:
    """Version and check of a row.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is none, or contradicts itself.
    """
    values: dict[str, object] = {key: row[key] for key in row if key != "code_version"}
    if unknown := sorted(values.keys() - {known.name for known in fields(Check)}):
        raise ValueError(f"{name}.{unknown[0]} is no field of a check")
    kinds = {
        "passed": bool,
        "reduced": bool,
        "detail": str,
        "value": int | float | None,
        "limit": int | float | None,
        "generations": int | None,
    }
    for key, item in values.items():
        if not isinstance(item, kinds[key]) or (isinstance(item, bool) and kinds[key] is not bool):
            raise TypeError(f"{name}.{key} is {item!r}")
    if not isinstance(row["code_version"], str):
        raise TypeError(f"{name}.code_version is {row['code_version']!r}")
    check = Check(**cast("dict[str, Any]", values))
    if check.generations is not None and check.generations < 1:
        raise ValueError(f"{name}.generations is {check.generations}")
    if check.passed and check.limit is not None and not _is_within(check):
        raise ValueError(f"{name} passed with {check.value!r}, above its limit {check.limit!r}")
    return row["code_version"], check


def _is_within(check: Check) -> bool:
    return check.value is not None and check.limit is not None and check.value <= check.limit
