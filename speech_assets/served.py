"""Which presets a server would take, as their checks in the store say."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.checks import require_checks, weights_sha256
from server.errors import ServerError, WeightsError
from server.presets import Preset, load_preset, served_as

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a checkpoint passed its checks. `refusal` says why not; empty: it did.

    `fingerprint` is the same for the same weights and settings.
    """

    refusal: str
    fingerprint: str = ""


def not_served(name: str, store: str) -> str:
    """Why a server would not take the preset with that store's root; empty: it would.

    A preset whose weights are no checkpoint of the store needs no checks, as for the server.
    """
    try:
        preset = load_preset(name)
    except ServerError as error:
        return str(error)
    return "" if preset.stored_as is None else checked(name, store).refusal


def checked(name: str, store: str) -> Verdict:
    """Whether the checks of the preset's checkpoint were made, of what is there now, and passed."""
    try:
        preset = load_preset(name)
        path = preset.checks_path(store)
        served = served_as(preset, _weights(preset, path, store))
        require_checks(path, served, name)
    except (ServerError, OSError) as error:
        return Verdict(str(error))
    whole = f"{served.weights_sha256} {served.settings_sha256}"
    return Verdict("", hashlib.sha256(whole.encode()).hexdigest())


def _weights(preset: Preset, checks: Path, store: str) -> str:
    """Hash of the weights that the checks must be of.

    Of a checkpoint in the store it is that of the files, of which blocks are read. Of other weights
    it is what the checks say: they may be on the hub, and a tick of Dagster must not fetch them.
    """
    if preset.stored_as is not None:
        return weights_sha256(preset.model_location(store).folder or checks.parent)
    try:
        return str(json.loads(checks.read_text("utf-8"))["weights_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(
            f"{checks}: preset {preset.name} has no checks that can be read; materialize "
            "checkpoints and fidelity for it"
        ) from error
