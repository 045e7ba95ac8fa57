"""A quantized checkpoint: made by llm-compressor beside its place, checked, then put there whole.

However a run ends, `checkpoints/PRESET` is absent, the old one, or the new one
(`server.whole_folder`). What the quantizer printed before it failed is in `.PRESET.log` beside it.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from filelock import Timeout
from safetensors import SafetensorError, safe_open

from server import whole_folder
from server.checkpoint import Checkpoint, open_checkpoint
from server.checks import RECORD_FILE, weights_sha256
from server.errors import WeightsError
from server.files import read_json, write_json
from speech_assets.quantize import schemes
from speech_assets.quantize.quantizer import QuantizeError, run_quantizer
from speech_assets.quantize.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from server.recipe import Recipe
    from speech_assets.quantize.calibration import SpokenText
    from speech_assets.quantize.environment import QuantizeEnvironment

SCHEMA_VERSION = 1
CODE_VERSION = "1"  # Bump when other weights would come of the same recipe, base and calibration.
COPIED = ("layout.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
"""Files of the base that go with the weights, where it has them."""
_NOT_KEPT = ("recipe.yaml", "generation_config.json")
"""What llm-compressor writes beside the weights: its words for what our record says, and a file of
the library's defaults, in whose place the base's own is copied."""
_LOCK_WAIT_S = 5.0
"""For another process to end that makes the same: long enough for one that has just made it, and
short beside the minutes or hours that making takes, which nobody is to wait for unasked."""
_SPACE_SLACK_BYTES = 256 << 20
_LINEAR = {
    "pack-quantized": ("weight_packed", "weight_scale", "weight_shape"),
    "float-quantized": ("weight", "weight_scale"),
    "naive-quantized": ("weight", "weight_scale"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """What a checkpoint is made of: the base, as named and as it can be loaded, and how."""

    preset: str
    recipe: Recipe
    location: str
    base: Checkpoint
    base_sha256: str
    calibration_sha256: str | None
    lock_sha256: str | None  # Of the environment's pins; None for bf16, which needs none.
    commit: str | None = None  # Of the hub's repository that `location` names.

    def as_json(self) -> dict[str, Any]:
        """What the record of a checkpoint says of this."""
        recipe = self.recipe
        return {
            "schema_version": SCHEMA_VERSION,
            "code_version": CODE_VERSION,
            "preset": self.preset,
            "recipe": {
                "scheme": recipe.scheme,
                "base": recipe.base,
                "group_size": recipe.group_size,
            },
            "parent": {
                "location": self.location,
                "commit": self.commit,
                "weights_sha256": self.base_sha256,
            },
            "calibration_sha256": self.calibration_sha256,
            "lock_sha256": self.lock_sha256,
        }


def record_of(
    source: Source, weights: Checkpoint, sha256: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """The record of a checkpoint, `checkpoint.json`; `sha256` is of its weights' folder."""
    return {
        **source.as_json(),
        "versions": dict(versions),
        "weights_sha256": sha256,
        "weights_bytes": weights.weights_bytes,
        "bytes_per_step": schemes.bytes_per_step(
            source.recipe, shape_of(source.base.folder), source.base.layout
        ),
    }


def made_already(source: Source, record: Path, weights: Path, sha256: str) -> dict[str, Any] | None:
    """The record at `record`, if it is of `source` and of the folder `weights`, of hash `sha256`.

    What `source` is called and where its base lies does not matter: the weights would be the same.
    """
    try:
        value = read_json(record)
        same = _identity(value) == _identity(source.as_json())
        if same and value["weights_sha256"] == sha256:
            open_checkpoint(weights)
            return value
    except (WeightsError, OSError, KeyError, TypeError):
        pass
    return None


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """What of a record decides which weights come of it."""
    recipe = record["recipe"]
    names = ("schema_version", "code_version", "calibration_sha256", "lock_sha256")
    in_groups = recipe["scheme"] in schemes.CALIBRATED
    return {
        **{name: record[name] for name in names},
        "scheme": recipe["scheme"],
        "group_size": recipe["group_size"] if in_groups else None,
        "parent": record["parent"]["weights_sha256"],
    }


def make_checkpoint(
    source: Source,
    target: Path,
    rows: Sequence[SpokenText],
    environment: QuantizeEnvironment,
    *,
    device: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Quantize into the folder `target`, which then is whole; its record.

    `rows` are the generations that calibrate, none for a scheme that needs no data.

    Raises:
        QuantizeError: no space, the quantizer failed or ended, or gave something else.
        WeightsError: what it gave is not a checkpoint.
    """
    try:
        with whole_folder.locked(target, _LOCK_WAIT_S):
            return _make_locked(source, target, rows, environment, device, say)
    except Timeout as error:
        raise QuantizeError(
            f"{target}: another process is making this checkpoint; wait for it, or end it"
        ) from error
    except OSError as error:
        raise QuantizeError(
            f"{target}: {error.strerror or error}; make room or rights there and run again"
        ) from error


def _make_locked(
    source: Source,
    target: Path,
    rows: Sequence[SpokenText],
    environment: QuantizeEnvironment,
    device: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    _check_space(source, target.parent)
    started_s = time.monotonic()
    tokens = sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    data = f"{len(rows)} generations, {tokens} tokens" if rows else "no data"
    say(f"{source.preset}: {source.recipe.scheme} of {source.location} with {data}")
    base, part = source.base.folder, whole_folder.part_of(target)
    log = target.with_name(f".{target.name}.log")
    part.mkdir()
    try:
        done = run_quantizer(source.recipe, base, part, rows, environment, device=device, log=log)
        for name in _NOT_KEPT:
            (part / name).unlink(missing_ok=True)
        for name in COPIED:
            if (base / name).is_file():
                shutil.copyfile(base / name, part / name)
        made = check_made(source, part)
        record = record_of(source, made, weights_sha256(part), done["versions"])
        write_json(part / RECORD_FILE, record)
        whole_folder.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    say(f"{source.preset}: {made.weights_bytes} bytes, {time.monotonic() - started_s:.0f} s")
    return record


def check_made(source: Source, folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, if it is what the recipe gives: config, names, finite values.

    Raises:
        WeightsError: it is not a checkpoint.
        QuantizeError: it is another one.
    """
    made = open_checkpoint(folder)
    config = read_json(folder / "config.json")
    expected = schemes.quantization_config(source.recipe)
    faults = schemes.config_faults(expected, config.get("quantization_config"))
    shape = shape_of(folder)
    if shape != shape_of(source.base.folder) or made.layout != source.base.layout:
        faults.append("its shape or layout is not the base's")
    tied = schemes.tied_head(source.recipe.scheme, base_is_tied=source.base.tied_head)
    if made.tied_head != tied:
        faults.append(f"tie_word_embeddings is {made.tied_head}, not {tied}")
    names = {
        f"model.layers.{layer}.{part}.{kind}"
        for layer in range(shape.layers)
        for part in shape.matrices
        for kind in _LINEAR[expected["format"]]
    }
    if source.recipe.scheme == "w4a16_lmhead":
        names |= {f"{schemes.HEAD}.{kind}" for kind in _LINEAR["pack-quantized"]}
    found = _finite_names(folder)
    faults += [f"{name} is missing" for name in sorted(names - found.keys())]
    faults += [f"{name} is not finite" for name, finite in found.items() if not finite]
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise QuantizeError(
            f"{source.preset}: what llm-compressor made is not {source.recipe.scheme}: "
            f"{'; '.join(faults[:3])}{more}; is the base model {source.location} damaged?"
        )
    return made


def _finite_names(folder: Path) -> dict[str, bool]:
    """Whether all values are finite, of each tensor by name."""
    found: dict[str, bool] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - no mapping
                    value = file.get_tensor(name)
                    plain = value.float() if value.is_floating_point() else value
                    found[name] = bool(torch.isfinite(plain).all())
        except SafetensorError as error:
            raise WeightsError(f"{path}: {error}; make the checkpoint again") from error
    return found


def _check_space(source: Source, folder: Path) -> None:
    """A checkpoint is no larger than its base, and a head of its own."""
    shape = shape_of(source.base.folder)
    head = shape.vocabulary_size * shape.hidden * (source.recipe.scheme == "w4a16_lmhead")
    needed = source.base.weights_bytes + head + _SPACE_SLACK_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise QuantizeError(
            f"{folder}: {free / 1e9:.2f} GB are free and up to {needed / 1e9:.2f} GB are needed "
            f"for {source.preset}; free space, or set SPEECH_STORE to a larger disk"
        )
