"""How far a preset's checkpoint strays from its base model, and whether that is within its limit.

Both models, in plain torch, are led through the held-out generations of the base model. The
reference is the base model's own weights in float32. The preset is computed in its dtype, with the
activations, keys and values of 8 bits that it has, so that a bf16 preset shows the floor: what its
dtype alone costs. The check `fidelity` holds the mean against the recipe's limit.
"""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from resources.store import Store
from server.checkpoint import Checkpoint, open_checkpoint
from server.checks import Check, weights_sha256, write_check
from server.engine import find_device
from server.errors import WeightsError
from server.noted_hashes import note_hashes
from server.preset import CHECKPOINTS
from server.presets import Preset, config_sha256, load_preset, recipe_of, served_as, weights_owner
from server.weights import MODEL_FILES, local_folder
from speech_assets.errors import SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quantize.calibration import HELD_OUT_KEY, MAX_TOKENS, SpokenText
from speech_assets.quantize.calibration_texts import HELD_OUT_TEXTS
from speech_assets.quantize.fidelity import (
    RESAMPLES,
    SEED,
    TokenMeasures,
    chosen_columns,
    fidelity_figures,
    generation_row,
    token_measures,
)
from speech_assets.quantize.judged import check_parent, held_out_rows
from speech_assets.quantize.reference import (
    ReferenceModel,
    reference_model,
    teacher_forced_logits,
)
from speech_assets.quantize.schemes import has_fp8_cache
from speech_assets.results.provenance import device_of, measurement_began, place_of
from speech_assets.results.result import Figure, Result
from speech_assets.work import worker
from speech_assets.work.device_lock import hold_engine_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from server.checks import Served

KIND = "fidelity"
CHECK = "fidelity"
PROBE = "writable"
PROBE_BYTES = 1 << 18
"""About what a result and its checks take: a disk that is all but full takes an empty file."""
THREADS = 1
"""Of torch on a CPU: two on busy cores wait for each other (83 s of their time instead of 15)."""


class FidelityError(SpeechAssetsError):
    """A checkpoint cannot be compared with its base model."""


def main() -> None:
    """Entry point of `python -m speech_assets.work.fidelity`."""
    parser = worker.argument_parser("fidelity", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--generations", type=int, default=0, help="how many judge; 0 is all there are")
    another = "in place of the preset's: where it differs there is a result, and no check"
    add("--device", choices=("cpu", "cuda"), default="", help=another)
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = measurement_began()
    preset = load_preset(arguments.preset)
    owner, recipe = weights_owner(preset), recipe_of(preset)
    store = Store(arguments.store)
    checks_path = preset.checks_path(arguments.store)
    folder = local_folder(preset.model_location(arguments.store), MODEL_FILES)
    location = owner.base_location()
    base_folder = local_folder(location, MODEL_FILES)
    base_sha256 = weights_sha256(base_folder)
    sha256 = base_sha256 if folder == base_folder else weights_sha256(folder)
    check_parent(preset, folder, sha256, base_sha256)
    base, checkpoint = open_checkpoint(base_folder), open_checkpoint(folder)
    if checkpoint.layout != base.layout:
        raise WeightsError(
            f"{folder}: its layout is another one than that of its base model {location}; make the "
            "checkpoint again"
        )
    if preset.stored_as is not None:
        note_hashes(folder)
    record, rows = held_out_rows(store, base_sha256, location, arguments.generations)
    kv_fp8 = has_fp8_cache(preset.vllm, what=f"preset {preset.name}")
    choice = arguments.device or preset.device
    with hold_engine_device(choice, reporter.notice):
        device = find_device(choice)
        served_on = find_device("auto") if preset.device == "auto" else preset.device
        _check_writable(store, checks_path if device == served_on else None)
        dtype = served_dtype(preset, device)
        torch.set_num_threads(THREADS)
        reporter.start(2 * len(rows), "generations")
        measures = compare(
            base,
            lambda: reference_model(
                checkpoint.folder, dtype=getattr(torch, dtype), kv_fp8=kv_fp8, device=device
            ),
            rows,
            device=device,
            rounded=preset.head == "full",
            reporter=reporter,
        )
    figures = fidelity_figures(measures)
    reduced = len(rows) < len(HELD_OUT_TEXTS) or record.sampling["max_tokens"] < MAX_TOKENS
    check = check_of(figures["mean_kl_nats"], len(rows), recipe.limit_nats, reduced=reduced)
    result = Result(
        kind=KIND,
        name=preset.name,
        reduced=reduced,
        started_at=started_at,
        device=device_of(device),
        command=_command(preset, arguments, len(rows)),
        config={
            "preset": preset.name,
            "preset_sha256": config_sha256(preset.config()),
            "scheme": recipe.scheme,
            "limit_nats": recipe.limit_nats,
            "passed": check.passed,
            "dtype": dtype,
            "kv_cache": "fp8" if kv_fp8 else dtype,
            "logits_rounded": preset.head == "full",
            "base": place_of(str(location)),
            "base_weights_sha256": base_sha256,
            "weights_sha256": sha256,
            "held_out_sha256": record.sha256[HELD_OUT_KEY],
            "generations": len(rows),
            "calibration": {"texts": record.rows, "held_out": record.held_out_rows},
            "sampling": dict(record.sampling),
            "resamples": RESAMPLES,
        },
        seeds=[SEED],
        rows=[
            {"id": row.id, "text": row.text, **generation_row(of_row)}
            for row, of_row in zip(rows, measures, strict=True)
        ],
        figures=figures,
    )
    store.write_json(result.key, result.as_json())
    reporter.notice(f"{preset.name}: {check.detail}")
    if device == served_on:
        served = served_as(preset, sha256, device)
        standing = _written(checks_path, served, check)
        if standing != check:
            reporter.notice(
                f"{preset.name}: this run is reduced and takes no check's place: that of a whole "
                f"one stands ({standing.detail}); a whole run replaces it"
            )
            check = _by_limit(standing, recipe.limit_nats)
    else:
        reporter.notice(
            f"{preset.name}: no check was written: it runs on {served_on}, and this is {device}"
        )
    reporter.result(
        KIND,
        key=result.key,
        passed=check.passed,
        detail=check.detail,
        value=check.value,
        limit=check.limit,
    )


def _check_writable(store: Store, checks: Path | None) -> None:
    """Do nothing, if results can be written, and `checks`: before minutes of comparing, not after.

    Raises:
        StoreError: they cannot, or the disk is full.
    """
    keys = [f"results/{KIND}/.{PROBE}"]
    if checks is not None:
        keys.append(f"{CHECKPOINTS}/{checks.parent.name}/.{PROBE}")
    for key in keys:
        try:
            store.write_bytes(key, os.urandom(PROBE_BYTES))
        finally:
            store.delete(key)


def _written(path: Path, served: Served, check: Check) -> Check:
    """The check that stands in the file `path`, once `check` was written there.

    Raises:
        FidelityError: it cannot be written.
    """
    try:
        return write_check(path, served, CHECK, check)
    except OSError as error:  # Also a lock that nobody gives back.
        raise FidelityError(
            f"{path}: the check cannot be written: {error.strerror or error}; make room or rights "
            "there and run again"
        ) from error


def _by_limit(check: Check, limit_nats: float) -> Check:
    """A check of a whole run as the server takes it: one by another limit counts for nothing."""
    if check.limit == limit_nats:
        return check
    detail = f"judged by another limit than {limit_nats:g} nats: {check.detail}; run a whole one"
    return replace(check, passed=False, detail=detail, limit=limit_nats)


def served_dtype(preset: Preset, device: str) -> str:
    """The dtype that the preset is compared in: as it is served, the same on every CPU.

    Where `cpu_dtype` leaves it to the CPU it is the preset's `dtype`.
    """
    if device == "cpu" and preset.cpu_dtype not in (None, "auto"):
        return str(preset.cpu_dtype)
    return preset.dtype


def compare(
    base: Checkpoint,
    open_preset: Callable[[], ReferenceModel],
    rows: Sequence[SpokenText],
    *,
    device: str,
    rounded: bool,
    reporter: worker.Reporter,
) -> list[TokenMeasures]:
    """Measures of each generation. The models are loaded one after the other, never both.

    The base model's logits wait in memory: 16 kB a token, 0.2 GB for 32 generations of 5 s.

    Raises:
        FidelityError: a generation is not of the layout, or the checkpoint's logits are no numbers.
    """
    layout = base.layout
    scored = [row.scored_ids(layout) for row in rows]
    columns: list[Any] = []
    for row, ids in zip(rows, scored, strict=True):
        try:
            columns.append(chosen_columns(ids, layout))
        except ValueError as error:
            raise FidelityError(f"generation {row.id}: {error}; make calibration again") from error
    model: ReferenceModel = reference_model(base.folder, dtype=torch.float32, device=device)
    expected: list[Any] = []
    for row, ids in zip(rows, scored, strict=True):
        logits = teacher_forced_logits(model, row.prompt_ids, ids, layout)
        expected.append(logits.numpy())
        reporter.advance(1)
    del model
    model = open_preset()
    measures: list[TokenMeasures] = []
    for row, ids, of_base, chosen in zip(rows, scored, expected, columns, strict=True):
        logits = teacher_forced_logits(model, row.prompt_ids, ids, layout, rounded=rounded)
        try:
            measures.append(token_measures(of_base, logits.numpy(), chosen))
        except ValueError as error:
            raise FidelityError(
                f"generation {row.id}: {error}; the checkpoint is damaged, make it again"
            ) from error
        reporter.advance(1)
    return measures


def check_of(
    mean_kl: Figure, generations: int, limit_nats: float, *, reduced: bool = False
) -> Check:
    """The check: the mean within the limit.

    The mean decides, not the end of its interval: that depends on how many generations there are.
    A reduced run may still pass or fail what a whole one does not, and says that it is one.
    """
    interval = "no interval"
    if mean_kl.ci_low is not None and mean_kl.ci_high is not None:
        interval = f"95 % interval {mean_kl.ci_low:.2g} to {mean_kl.ci_high:.2g}"
    passed = mean_kl.value <= limit_nats
    of = f"{mean_kl.n} tokens of {generations} generations" + ", reduced" * reduced
    return Check(
        passed=passed,
        detail=(
            f"mean KL {mean_kl.value:.2g} nats from the base model ({interval}, {of}), "
            f"{'within' if passed else 'above'} the limit of {limit_nats:g}"
        ),
        value=mean_kl.value,
        limit=limit_nats,
        generations=generations,
        reduced=reduced,
    )


def _command(preset: Preset, arguments: argparse.Namespace, generations: int) -> str:
    words = ["python", "-m", "speech_assets.work.fidelity", "--preset", preset.name]
    # Also where all were taken: in another store there may be more.
    words += ["--generations", str(generations)]
    words += ["--device", arguments.device] * bool(arguments.device)
    return shlex.join(words)


if __name__ == "__main__":
    main()
