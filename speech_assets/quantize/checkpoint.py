"""A quantized checkpoint: made by llm-compressor beside its place, checked, then put there whole.

The folder is built under a hidden name (`.PRESET.part`), flushed to the disk and renamed. However a
run ends, `checkpoints/PRESET` is absent, the old one, or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from server.checkpoint import Checkpoint, open_checkpoint
from server.checks import CHECKS_FILE, RECORD_FILE, weights_sha256
from server.errors import WeightsError
from server.frames import read_json
from speech_assets.errors import SpeechAssetsError
from speech_assets.quantize import llm_compressor, schemes
from speech_assets.quantize.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.recipe import Recipe
    from speech_assets.quantize.calibration import GenerationRow
    from speech_assets.quantize.environment import QuantizeEnvironment

SCHEMA_VERSION = 1
CODE_VERSION = "1"  # Bump when other weights would come of the same recipe, base and calibration.
SEED = 0
SHARD_BYTES = 5 << 30
COPIED = ("layout.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
"""Files of the base that go with the weights, where it has them."""
_NOT_KEPT = ("recipe.yaml", "generation_config.json")  # llm-compressor's own.
_LOCK_WAIT_S = 5.0
_SPACE_SLACK = 256 << 20
_LINEAR = {
    "pack-quantized": ("weight_packed", "weight_scale", "weight_shape"),
    "float-quantized": ("weight", "weight_scale"),
    "naive-quantized": ("weight", "weight_scale"),
}


class QuantizeError(SpeechAssetsError):
    """The checkpoint was not made, or is not what was asked for."""


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

    def as_json(self) -> dict[str, Any]:
        """What decides whether a checkpoint is there already."""
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
            "parent": {"location": self.location, "weights_sha256": self.base_sha256},
            "calibration_sha256": self.calibration_sha256,
            "lock_sha256": self.lock_sha256,
        }


def record_of(source: Source, weights: Checkpoint, given: Path, versions: object) -> dict[str, Any]:
    """The record of a checkpoint, `checkpoint.json`, whose weights are in the folder `given`."""
    return {
        **source.as_json(),
        "versions": versions,
        "weights_sha256": weights_sha256(given),
        "weights_bytes": weights.weights_bytes,
        "bytes_per_step": schemes.bytes_per_step(
            source.recipe, shape_of(source.base.folder), source.base.layout
        ),
    }


def made_already(source: Source, record: Path, weights: Path) -> dict[str, Any] | None:
    """The record at `record`, if it is of `source` and of what is in the folder `weights` now."""
    try:
        value = read_json(record)
        same = all(value.get(name) == part for name, part in source.as_json().items())
        if same and value["weights_sha256"] == weights_sha256(weights):
            open_checkpoint(weights)
            return value
    except (WeightsError, OSError, KeyError):
        pass
    return None


def make_checkpoint(
    source: Source,
    target: Path,
    rows: Sequence[GenerationRow],
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
    parent = target.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / f".{target.name}.lock", timeout=_LOCK_WAIT_S):
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
    rows: Sequence[GenerationRow],
    environment: QuantizeEnvironment,
    device: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    part, old = target.with_name(f".{target.name}.part"), target.with_name(f".{target.name}.old")
    _restore(target, old)
    shutil.rmtree(part, ignore_errors=True)
    _check_space(source, target.parent)
    started_s = time.monotonic()
    tokens = sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    data = f"{len(rows)} generations, {tokens} tokens" if rows else "no data"
    say(f"{source.preset}: {source.recipe.scheme} of {source.location} with {data}")
    part.mkdir()
    try:
        done = _run(_job(source, part, rows, device), part, environment)
        for name in _NOT_KEPT:
            (part / name).unlink(missing_ok=True)
        for name in COPIED:
            if (source.base.folder / name).is_file():
                shutil.copyfile(source.base.folder / name, part / name)
        made = check_made(source, part)
        record = record_of(source, made, part, done["versions"])
        (part / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        _put(part, target, old)
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
        for part in (*(f"self_attn.{n}_proj" for n in "qkvo"), *_MLP)
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


_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


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


def _job(source: Source, part: Path, rows: Sequence[GenerationRow], device: str) -> dict[str, Any]:
    config = schemes.quantization_config(source.recipe)
    group = config["config_groups"][schemes.GROUP]
    calibration: Path | None = None
    if source.recipe.scheme in schemes.CALIBRATED:
        calibration = part / ".calibration.safetensors"
        samples = [np.array([*row.prompt_ids, *row.token_ids], np.int32) for row in rows]
        lengths = np.array([len(sample) for sample in samples], np.int64)
        save_file({"ids": np.concatenate(samples), "lengths": lengths}, calibration)
    return {
        "base": str(source.base.folder),
        "out": str(part),
        "modifier": "GPTQ" if calibration else "data_free",
        "config_groups": {
            schemes.GROUP: {
                name: group[name] for name in ("targets", "weights", "input_activations")
            }
        },
        "ignore": config["ignore"],
        "calibration": str(calibration) if calibration else None,
        "device": device,
        "seed": SEED,
        "shard_bytes": SHARD_BYTES,
    }


def _run(job: dict[str, Any], part: Path, environment: QuantizeEnvironment) -> dict[str, Any]:
    """What the script in the other environment says that it did.

    Raises:
        QuantizeError: it failed, or ended without a word.
    """
    path, log = part / ".job.json", part / ".log"
    path.write_text(json.dumps(job), "utf-8")
    # Not ours: it would take modules of the main environment, or of the folder it is started in.
    kept = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "PYTHONHOME")}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [str(environment.python), str(Path(llm_compressor.__file__)), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            # One thread unless told otherwise: with another number the last bits are others.
            env={"OMP_NUM_THREADS": "1", **kept, "PYTHONDONTWRITEBYTECODE": ""},
        )
        try:
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    said: dict[str, Any] = {}
    with contextlib.suppress(ValueError, IndexError):
        last = json.loads(lines[-1])
        said = last if isinstance(last, dict) else {}
    if code == 0 and "done" in said:
        for hidden in (path, log, part / ".calibration.safetensors"):
            hidden.unlink(missing_ok=True)
        return said["done"]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    why = said.get("error") or (lines[-1] if lines else "it said nothing")
    raise QuantizeError(
        f"the quantizer {how}: {why}; nothing was kept, run again (it needs memory for the base "
        "model in float32 on a CPU)"
    )


def _check_space(source: Source, folder: Path) -> None:
    """A checkpoint is no larger than its base, and a head of its own."""
    shape = shape_of(source.base.folder)
    head = shape.vocabulary_size * shape.hidden * (source.recipe.scheme == "w4a16_lmhead")
    needed = source.base.weights_bytes + head + _SPACE_SLACK
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise QuantizeError(
            f"{folder}: {free / 1e9:.2f} GB are free and up to {needed / 1e9:.2f} GB are needed "
            f"for {source.preset}; free space, or set SPEECH_STORE to a larger disk"
        )


def _restore(target: Path, old: Path) -> None:
    """Undo the first half of an exchange that was cut off between its two renames."""
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _put(part: Path, target: Path, old: Path) -> None:
    """Make `target` what `part` is, with the checks of another preset's view left out."""
    (part / CHECKS_FILE).unlink(missing_ok=True)
    for path in [*part.iterdir(), part]:
        _sync(path)
    if target.exists():
        target.rename(old)
    part.rename(target)
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record beside no weights, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    _sync(part)
    part.replace(path)
