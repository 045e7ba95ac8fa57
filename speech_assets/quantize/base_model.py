"""The base model: the one that all checkpoints of a profile are made from, found and validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.checkpoint import open_checkpoint
from server.checks import weights_sha256
from server.presets import load_preset
from server.weights import MODEL_FILES, local_folder, not_pinned
from speech_assets.errors import ConfigError
from speech_assets.quantize.values import check_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from server.checkpoint import Checkpoint
    from server.presets import Preset

CODE_VERSION = "2"  # 2 looks at values, too.


@dataclass(frozen=True, slots=True)
class BaseModel:
    """What was found: `location` as a preset names it, `folder` that can be loaded, and its facts.

    `weights_sha256` is of the folder that `location` names, before packed weights are expanded.
    `commit` is the hub's, of a repository; `warning` says so where `location` may move.
    """

    location: str
    folder: str
    weights_sha256: str
    weights_bytes: int
    vocabulary_size: int
    layers: int
    tied_head: bool
    voices: tuple[str, ...]
    live_codes: int
    commit: str | None = None
    warning: str | None = None


def base_preset(names: Sequence[str]) -> Preset:
    """The preset whose base model the presets of those names share.

    Raises:
        ConfigurationError: a preset is unknown, or says of no base model.
        ConfigError: none has a recipe, or two have different base models.
    """
    found: dict[str, Preset] = {}
    for name in names:
        preset = load_preset(name)
        if preset.checkpoint is not None:
            found.setdefault(str(preset.base_location()), preset)
    if not found:
        raise ConfigError(
            f"none of the profile's presets ({', '.join(names)}) has a checkpoint table; give one "
            'as checkpoint = { scheme = "bf16" }'
        )
    if len(found) > 1:
        raise ConfigError(
            "the profile's presets are made from different base models ("
            + ", ".join(f"{preset.name} from {place}" for place, preset in found.items())
            + "); give each base model a profile of its own"
        )
    return next(iter(found.values()))


def find_base_model(preset: Preset) -> BaseModel:
    """The base model of `preset`, fetched from the hub if need be, and validated.

    Raises:
        ConfigurationError: the preset names none.
        ConfigError: it is quantized already.
        WeightsError: it cannot be had, is damaged, or is of another layout.
    """
    location = preset.base_location()
    given = local_folder(location, MODEL_FILES)
    checkpoint = open_checkpoint(given)
    check_unquantized(checkpoint, given, preset.name)
    check_values(checkpoint.folder)
    layout = checkpoint.layout
    return BaseModel(
        location=str(location),
        folder=str(checkpoint.folder),
        weights_sha256=weights_sha256(given),
        weights_bytes=checkpoint.weights_bytes,
        vocabulary_size=checkpoint.vocabulary_size,
        layers=checkpoint.layers,
        tied_head=checkpoint.tied_head,
        voices=tuple(layout.voices),
        live_codes=layout.live_codes,
        commit=location.commit(given),
        warning=not_pinned(location, given),
    )


def check_unquantized(checkpoint: Checkpoint, given: Path, preset: str) -> None:
    """Do nothing, if checkpoints can be made from this one, which is at `given`.

    Raises:
        ConfigError: it is quantized already.
    """
    if checkpoint.quantization is not None:
        raise ConfigError(
            f"{given}: the base model of preset {preset} is quantized already "
            f"({checkpoint.quantization}); give its unquantized one"
        )
