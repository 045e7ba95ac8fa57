"""Which presets a server would take, as their checks in the store say."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.checks import require_checks, weights_sha256
from server.errors import ServerError, WeightsError
from server.files import read_json
from server.presets import Preset, check_recipe, load_preset, served_as

if TYPE_CHECKING:
    from pathlib import Path

    from server.preset import Device


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
    """Whether the checks of the preset's checkpoint were made, of what is there now, and passed.

    Of a preset that runs on either device it is enough that they passed on one: which one a server
    will have is found out by torch, which a tick of Dagster must not load. The server asks again.
    """
    try:
        preset = load_preset(name)
        path = preset.checks_path(store)
        sha256 = _weights(preset, path, store)
    except (ServerError, OSError) as error:
        return Verdict(str(error))
    devices: tuple[Device, ...] = ("cuda", "cpu")
    refusal = ""
    for device in devices if preset.device == "auto" else (preset.device,):
        try:
            served = served_as(preset, sha256, device)
            require_checks(path, served, name)
        except (ServerError, OSError) as error:
            refusal = str(error)
            continue
        whole = f"{served.weights_sha256} {served.settings_sha256}"
        return Verdict("", hashlib.sha256(whole.encode()).hexdigest())
    return Verdict(refusal)


def _weights(preset: Preset, checks: Path, store: str) -> str:
    """Hash of the weights that the checks must be of.

    Of a checkpoint in the store it is that of the files, large ones as they were noted. Of other
    weights it is what the checks say: they may be on the hub, and a tick of Dagster must not fetch
    them.
    """
    if preset.stored_as is not None:
        folder = preset.model_location(store).folder or checks.parent
        check_recipe(preset, folder)
        return weights_sha256(folder, noted=True)
    try:
        return str(read_json(checks)["weights_sha256"])
    except (WeightsError, KeyError) as error:
        raise WeightsError(
            f"{checks}: preset {preset.name} has no checks that can be read; materialize "
            "checkpoints and fidelity for it"
        ) from error
