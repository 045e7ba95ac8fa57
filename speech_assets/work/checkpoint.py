"""The checkpoint of a preset: quantized from its base model, then tried in vLLM.

What is made goes to `checkpoints/<preset>/` of the store, its record (`checkpoint.json`) with it. A
preset that serves weights of others (bf16, another preset's) has only the record there. Then the
check `engine` is made and kept in `checks.json`. What is there already, of the same base model,
recipe, calibration and versions, is not made again.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from resources.store import Store
from server.checkpoint import Checkpoint, open_checkpoint
from server.checks import RECORD_FILE, Check, read_checks, weights_sha256, write_check
from server.engine import find_device
from server.presets import Preset, load_preset
from server.weights import MODEL_FILES, local_folder
from speech_assets.errors import ConfigError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quantize import engine_check, schemes
from speech_assets.quantize.calibration import (
    CALIBRATION_KEY,
    HELD_OUT_KEY,
    check_base,
    check_files,
    read_generations,
    read_record,
    spread,
)
from speech_assets.quantize.checkpoint import (
    Source,
    made_already,
    make_checkpoint,
    record_of,
    write_record,
)
from speech_assets.quantize.environment import ensure_environment, lock_of
from speech_assets.quantize.shapes import shape_of
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.recipe import Recipe

KIND = "checkpoint"
PROMPTS = 6  # That the check `engine` continues.


@dataclass(frozen=True, slots=True)
class Plan:
    """A preset, with the base model of the weights that it serves, found and validated."""

    preset: Preset
    owner: Preset  # Whose checkpoint is served; the preset itself but for `store:NAME`.
    recipe: Recipe
    location: str
    base: Checkpoint
    base_given: Path
    base_sha256: str
    device: str


def main() -> None:
    """Entry point of `python -m speech_assets.work.checkpoint`."""
    parser = worker.argument_parser("checkpoint", __doc__ or "")
    parser.add_argument("--preset", default="embedded-w4a16")
    parser.add_argument("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    parser.add_argument("--again", action="store_true", help="make it even if it is there")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    plan = plan_checkpoint(arguments.preset)
    store = Store(arguments.store)
    checks_path = plan.preset.checks_path(arguments.store)  # Raises where the store is no folder.
    record_path = checks_path.with_name(RECORD_FILE)
    try:
        check_runs(plan)
    except schemes.UnsupportedError as error:
        reporter.result("unsupported", preset=plan.preset.name, reason=str(error))
        raise
    if plan.owner.name != plan.preset.name:  # Whichever of the two is asked for first.
        owner = plan_checkpoint(plan.owner.name)
        owner_record = owner.preset.checks_path(arguments.store).with_name(RECORD_FILE)
        _made(owner, store, owner_record, again=False, reporter=reporter)
    record, was_there = _made(plan, store, record_path, again=arguments.again, reporter=reporter)
    given = local_folder(plan.preset.model_location(arguments.store), MODEL_FILES)
    check = None if arguments.again else read_checks(checks_path, given).get(engine_check.CHECK)
    if check is None or not was_there or not check.passed:
        check = check_engine(plan, store, open_checkpoint(given), reporter.notice)
        write_check(checks_path, given, engine_check.CHECK, check)
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


def plan_checkpoint(name: str) -> Plan:
    """What must be made for the preset of that name, or one line that says why it cannot be.

    Raises:
        ConfigurationError: unknown preset, no base model.
        ConfigError: no recipe, or one that does not fit.
        WeightsError: the base model cannot be had, is damaged, or of another layout.
    """
    preset = load_preset(name)
    owner = load_preset(preset.stored_as) if preset.stored_as else preset
    location = owner.base_location()  # Raises without a recipe.
    recipe = owner.checkpoint
    assert recipe is not None
    device = find_device(preset.device)
    given = local_folder(location, MODEL_FILES)
    base = open_checkpoint(given)
    if base.quantization is not None:
        raise ConfigError(
            f"{given}: the base model of preset {owner.name} is quantized already "
            f"({base.quantization}); give its unquantized one"
        )
    schemes.check_fits(recipe, shape_of(base.folder), what=f"preset {owner.name}")
    return Plan(preset, owner, recipe, str(location), base, given, weights_sha256(given), device)


def check_runs(plan: Plan) -> None:
    """Do nothing, if the plan's device runs what the preset serves.

    Raises:
        UnsupportedError: it does not.
    """
    facts = schemes.DeviceFacts("cpu")
    if plan.device == "cuda":
        facts = schemes.DeviceFacts(
            "cuda", torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        )
    settings = plan.preset.engine_settings("cuda" if plan.device == "cuda" else "cpu")
    schemes.check_runs(plan.recipe, facts, dtype=settings.dtype, vllm_args=settings.vllm_args)


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
    settings = plan.preset.engine_settings("cuda" if plan.device == "cuda" else "cpu")
    say(f"{plan.preset.name}: trying it in vLLM with {len(prompts)} prompts")
    found = engine_check.generate(weights, settings, prompts)
    kv_fp8 = str(settings.vllm_args.get("kv_cache_dtype", "auto")).startswith("fp8")
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
    plan: Plan, store: Store, record_path: Path, *, again: bool, reporter: worker.Reporter
) -> tuple[dict[str, Any], bool]:
    """The record of the preset's checkpoint, and whether it was there."""
    is_quantized = plan.recipe.scheme != "bf16"
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
    )
    is_owner = plan.owner.name == plan.preset.name
    weights = plan.base_given
    if plan.preset.stored_as is not None:
        weights = target if is_owner else plan.preset.model_location(store.root).folder or target
    found = None if again else made_already(source, record_path, weights)
    if found is not None:
        reporter.log(f"{target}: the checkpoint is there")
        return found, True
    if not (is_quantized and is_owner):
        versions: dict[str, str] = {}
        record = record_of(source, open_checkpoint(weights), weights, versions)
        write_record(record_path, record)
        return record, False
    rows = read_generations(store, CALIBRATION_KEY) if calibration else []
    environment = ensure_environment(reporter.notice)
    record = make_checkpoint(
        source, target, rows, environment, device=plan.device, say=reporter.notice
    )
    return record, False


if __name__ == "__main__":
    main()
