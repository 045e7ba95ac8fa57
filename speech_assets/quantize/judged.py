"""What a preset is judged by: a whole checkpoint of its base model, and held-out generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.checks import RECORD_FILE
from server.errors import WeightsError
from server.files import read_json
from server.presets import check_recipe
from speech_assets.errors import ConfigError
from speech_assets.quantize.calibration import (
    CALIBRATION_KEY,
    HELD_OUT_KEY,
    CalibrationError,
    CalibrationRecord,
    SpokenText,
    check_apart,
    check_base,
    check_files,
    read_generations,
    read_record,
    text_sets,
)
from speech_assets.spread import spread

if TYPE_CHECKING:
    from pathlib import Path

    from resources.store import Store
    from server.presets import Preset


def check_parent(preset: Preset, folder: Path, sha256: str, base_sha256: str) -> None:
    """Do nothing, if a stored checkpoint, `sha256` by hash, is whole, made from that base model and
    by the recipe that its preset has now.

    Raises:
        WeightsError: it has no record, other weights than it had, another base or recipe.
    """
    if preset.stored_as is None:
        return
    path = folder / RECORD_FILE
    remedy = f"materialize checkpoints for {preset.stored_as} again"
    check_recipe(preset, folder)
    record = read_json(path, remedy=remedy)
    try:
        parent, own = str(record["parent"]["weights_sha256"]), str(record["weights_sha256"])
    except (KeyError, TypeError) as error:
        raise WeightsError(f"{path}: no record of a checkpoint ({error!r}); {remedy}") from error
    if own != sha256:
        raise WeightsError(f"{folder}: not the weights that {path.name} was written with; {remedy}")
    if parent != base_sha256:
        raise WeightsError(
            f"{folder}: made from another base model ({parent[:12]}) than the preset names now "
            f"({base_sha256[:12]}); {remedy}"
        )


def held_out_rows(
    store: Store, base_sha256: str, base: object, count: int
) -> tuple[CalibrationRecord, list[SpokenText]]:
    """What was generated, and `count` of the held-out generations, evenly spread; 0 is all.

    Raises:
        CalibrationError: there are none, they are damaged, of another base model, or of texts that
            calibrated.
    """
    record = read_record(store)
    check_files(store, record)
    check_base(store, record, base_sha256, base)
    rows = read_generations(store, HELD_OUT_KEY)
    if not rows:
        raise CalibrationError(
            f"{store.path(HELD_OUT_KEY)} holds no generation; materialize calibration again"
        )
    calibrated = [row.text for row in read_generations(store, CALIBRATION_KEY)]
    check_apart(text_sets(calibrated, [row.text for row in rows]))
    try:
        return record, [rows[place] for place in spread(count or len(rows), len(rows))]
    except ConfigError as error:
        raise ConfigError(f"--generations: {error}") from error
