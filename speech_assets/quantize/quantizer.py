"""llm-compressor in an environment of its own: the job that it gets, its process, what it says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from server.files import write_json
from speech_assets.errors import SpeechAssetsError
from speech_assets.quantize import llm_compressor, schemes
from speech_assets.work.worker import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.recipe import Recipe
    from speech_assets.quantize.calibration import SpokenText
    from speech_assets.quantize.environment import QuantizeEnvironment

SEED = 0
_FULL_BYTES = 64 << 20  # A disk with less is called full: what is written comes in larger parts.
FILE_BYTES = 5 << 30
"""Of one file of weights at most: models of the hub come in such, and what moves them takes it."""


class QuantizeError(SpeechAssetsError):
    """The checkpoint was not made, or is not what was asked for."""


def run_quantizer(
    recipe: Recipe,
    base: Path,
    out: Path,
    rows: Sequence[SpokenText],
    environment: QuantizeEnvironment,
    *,
    device: str,
    log: Path,
) -> dict[str, Any]:
    """Quantize the model in the folder `base` into the folder `out`; what the script says of it.

    `rows` calibrate, where the scheme needs data. What the process prints goes to the file `log`,
    which stays when it fails.

    Raises:
        QuantizeError: it failed, or ended without a word.
    """
    job, calibration = out / ".job.json", out / ".calibration.safetensors"
    has_data = recipe.scheme in schemes.CALIBRATED
    if has_data:
        _write_samples(calibration, rows)
    write_json(job, _job(recipe, base, out, calibration if has_data else None, device))
    code, lines = _run(environment.python, job, log)
    said: dict[str, Any] = {}
    with contextlib.suppress(ValueError, IndexError):
        last = json.loads(lines[-1])
        said = last if isinstance(last, dict) else {}
    if code == 0 and "done" in said:
        for hidden in (job, calibration, log):
            hidden.unlink(missing_ok=True)
        return said["done"]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    why = said.get("error") or (lines[-1] if lines else "it said nothing")
    remedy = "run again"
    if code == -signal.SIGKILL:  # As the system ends who takes too much.
        remedy += ", with more memory free (on a CPU it holds the base model in float32)"
    if (free := shutil.disk_usage(out).free) < _FULL_BYTES:
        why += f"; the disk of {out.parent} is full, {free >> 20} MiB are free"
        remedy = "free space and run again"
    raise QuantizeError(
        f"the quantizer {how}: {why}; nothing of the checkpoint was kept, its whole output is in "
        f"{log}; {remedy}"
    )


def _job(
    recipe: Recipe, base: Path, out: Path, calibration: Path | None, device: str
) -> dict[str, Any]:
    config = schemes.quantization_config(recipe)
    group = config["config_groups"][schemes.GROUP]
    parts = ("targets", "weights", "input_activations")
    return {
        "base": str(base),
        "out": str(out),
        "modifier": "GPTQ" if calibration else "data_free",
        "config_groups": {schemes.GROUP: {name: group[name] for name in parts}},
        "ignore": config["ignore"],
        "calibration": str(calibration) if calibration else None,
        "device": device,
        "seed": SEED,
        "shard_bytes": FILE_BYTES,
    }


def _write_samples(path: Path, rows: Sequence[SpokenText]) -> None:
    """The prompts with what was generated: `ids` (all tokens,) int32, `lengths` (rows,) int64."""
    samples = [np.array([*row.prompt_ids, *row.token_ids], np.int32) for row in rows]
    lengths = np.array([len(sample) for sample in samples], np.int64)
    save_file({"ids": np.concatenate(samples), "lengths": lengths}, path)


def _run(python: Path, job: Path, log: Path) -> tuple[int, list[str]]:
    """Exit code of the script, below 0 for a signal, and the lines that it printed."""
    # Not ours: it would take modules of the main environment, or of the folder it is started in.
    kept = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "PYTHONHOME")}
    environment = {
        "OMP_NUM_THREADS": "1",  # Unless told otherwise: with another number the last bits differ.
        **kept,
        # Empty is off: where it is on, torch and transformers are compiled anew at each start.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            # -P: else modules beside the script are found in place of packages of their names
            # (`kernels`, which transformers looks for).
            [str(python), "-P", str(Path(llm_compressor.__file__)), str(job)],
            stdin=subprocess.PIPE,  # Its end tells the script that its starter is gone.
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            preexec_fn=die_with_parent,  # Also one that is stopped, and reads no standard input.
        )
        try:
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
    return code, log.read_text("utf-8", "replace").strip().splitlines()
