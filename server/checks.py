"""Whether a checkpoint of the project may be served as a preset: by the preset's `checks.json`.

It is `checkpoints/<preset>/checks.json` in the store, beside the weights or, for a preset that is
served from another's checkpoint, in a folder of its own. The project's assets write it; the server
only reads it. A check that failed, or that is of other weights, or was never made, keeps the preset
from being served.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from server.errors import WeightsError
from server.weights import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
CHECKS_FILE = "checks.json"
RECORD_FILE = "checkpoint.json"
"""What a checkpoint was made from, by what; written with the weights."""
NOT_WEIGHTS = frozenset({CHECKS_FILE, RECORD_FILE})
REQUIRED = ("engine", "fidelity")
"""`engine`: vLLM loads it and gives the logits of its dequantized weights. `fidelity`: it strays
from the base model by no more than its preset allows."""


@dataclass(frozen=True, slots=True)
class Check:
    """One look at a checkpoint: `value` against `limit`, where it is a number."""

    passed: bool
    detail: str
    value: float | None = None
    limit: float | None = None


def weights_sha256(folder: Path) -> str:
    """Hash of what is loaded from a checkpoint's folder, without its record and checks."""
    return fingerprint(folder, but=NOT_WEIGHTS)


def read_checks(path: Path, weights: Path) -> dict[str, Check]:
    """Checks in the file `path` of what is in the folder `weights` now; those of others are not.

    Raises:
        WeightsError: `path` is no such file.
    """
    if not path.is_file():
        return {}
    try:
        value: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if value["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {value['schema_version']}, not {SCHEMA_VERSION}")
        checks = {name: Check(**check) for name, check in value["checks"].items()}
        of_weights = str(value["weights_sha256"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{path}: no file of checks ({type(error).__name__}: {error}); make the checkpoint's "
            "checks again"
        ) from error
    return checks if of_weights == weights_sha256(weights) else {}


def write_check(path: Path, weights: Path, name: str, check: Check) -> None:
    """Add a check of what is in the folder `weights` now; those of other weights are dropped."""
    checks = read_checks(path, weights) | {name: check}
    value = {
        "schema_version": SCHEMA_VERSION,
        "weights_sha256": weights_sha256(weights),
        "checks": {known: asdict(made) for known, made in sorted(checks.items())},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def require_checks(path: Path, weights: Path, preset: str) -> None:
    """Do nothing, if every required check of what is in the folder `weights` passed.

    Raises:
        WeightsError: one failed, or was not made of these weights.
    """
    checks = read_checks(path, weights)
    failed = [name for name in REQUIRED if name in checks and not checks[name].passed]
    missing = [name for name in REQUIRED if name not in checks]
    if not failed and not missing:
        return
    faults = [f"{name}: {checks[name].detail}" for name in failed]
    faults += [f"{name} was not made of these weights" for name in missing]
    raise WeightsError(
        f"{weights}: preset {preset} has not passed its checks ({'; '.join(faults)}, by {path}); "
        "materialize checkpoints and fidelity for it, or serve it with --allow-unchecked"
    )
