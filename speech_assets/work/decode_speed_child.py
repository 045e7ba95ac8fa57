"""The process whose decode speed is measured: an engine, stepped in its main thread, and no more.

It captures and redirects nothing: its standard output and error are its starter's own, which it
checks before, between and after the runs. Started by `speech_assets.work.decode_speed`.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from server.engine import find_device, open_engine
from server.loading import default_sampling
from server.presets import check_recipe, load_preset, recipe_of, weights_owner
from server.recipe import Recipe
from speech_assets.quantize import shapes
from speech_assets.quantize.quiet import Watch, stream_faults
from speech_assets.quantize.schemes import check_runs, quantization_config
from speech_assets.quantize.stepping import Speech, pair, plain
from speech_assets.sentences import SENTENCES
from speech_assets.work import measured_process

if TYPE_CHECKING:
    from server.checkpoint import Checkpoint
    from server.engine import Engine
    from server.presets import Preset
    from speech_assets.quantize.speed import Run

_STATM = Path("/proc/self/statm")
_RANDOM_PROMPT_IDS = 24  # With what frames it, as long as the prompt of a short sentence.


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured.

    Attributes:
        shape: name of a shape for random weights; empty is the preset's own checkpoint.
        folder: of this process alone, for what random weights need.
        streams: generations at once.
        runs, warm_up: pairs of runs that count, and pairs before them that do not; of runs 0 the
            start is timed, and no more.
        steps: decode steps of a run.
        profile_steps: steps under the profiler, after the runs; 0 is none.
        starter_pid, std_identities: the starter, and its standard output and error (`identity`).
    """

    preset: str
    store: str
    shape: str
    folder: str
    streams: int
    runs: int
    warm_up: int
    steps: int
    profile_steps: int
    starter_pid: int
    std_identities: list[list[int] | None]


def main() -> None:
    """Entry point of `python -m speech_assets.work.decode_speed_child JOB`."""
    measured_process.answer(lambda job: _measure(Job(**job)))


def _measure(job: Job) -> dict[str, Any]:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # As a server has it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before torch reads it.
    preset = load_preset(job.preset)
    from speech_assets.work.device import device_facts  # It loads torch, after the above.

    device = find_device(preset.device)
    settings = preset.engine_settings(device)
    recipe = _recipe(preset)
    check_runs(recipe, device_facts(device), dtype=settings.dtype, vllm_args=settings.vllm_args)
    if job.shape:
        checkpoint = _random_checkpoint(job, recipe)
    else:
        checkpoint = _own_checkpoint(preset, job.store)
    prompts = _prompts(checkpoint, random_ids=bool(job.shape))
    speech = Speech(prompts, default_sampling(preset, checkpoint.layout), job.steps, job.streams)
    before = set(threading.enumerate())
    faults_at_start = stream_faults(job.std_identities)
    began_s = time.perf_counter()
    gc.disable()  # As a server loads it.
    engine = open_engine(checkpoint, settings)
    gc.enable()
    start_s = time.perf_counter() - began_s
    of_engine = set(threading.enumerate()) - before
    runs: list[Run] = []
    memory_bytes: list[int] = []
    try:
        if not job.runs:
            return {"start_s": start_s}
        watch = Watch(job.std_identities, job.starter_pid, of_engine)
        for seed in range(1, job.warm_up + 1):
            pair(engine, speech, seed)
        first = job.warm_up + 1
        for seed in range(first, first + job.runs):
            runs.append(pair(engine, speech, seed, watch))
            memory_bytes.append(_memory_now(device))  # Between runs: nobody looks during one.
            _say(job, f"pair {len(runs)} of {job.runs}, {runs[-1].tokens_per_s:.1f} tokens/s")
        profile = _profile(engine, speech, job) if job.profile_steps else []
        memory = _peak_memory(device)
        facts = engine.facts
    finally:
        engine.close()
    import torch

    from speech_assets.quantize import bandwidth  # Torch is loaded at its top.

    shape = shapes.shape_of(checkpoint.folder)
    step_bytes = shapes.bytes_read(
        shape, recipe.scheme, recipe.group_size, facts, checkpoint.layout
    )
    reads = bandwidth.read_bandwidth(device, step_bytes)
    sole = device == "cpu" and facts.form == "in_process" and torch.get_num_threads() == 1
    return {
        "runs": [asdict(run) for run in runs],
        "quiet": asdict(watch.quiet(sole_thread=sole, faults_at_start=faults_at_start)),
        "start_s": start_s,
        "bytes_per_step": step_bytes,
        "weights_bytes": shapes.loaded_bytes(
            shape,
            recipe.scheme,
            recipe.group_size,
            value_bytes=shapes.VALUE_BYTES[facts.dtype],
            tied=checkpoint.tied_head,
        ),
        "bandwidth_gb_per_s": bandwidth.best(reads),
        "reads": [asdict(read) for read in reads],
        "memory_bytes": memory_bytes,
        "profile": profile,
        "engine": asdict(facts),
        "scheme": recipe.scheme,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "sampling": asdict(speech.sampling),
        "threads": torch.get_num_threads(),
        "device": device,
        "chip": torch.cuda.get_device_name() if device == "cuda" else "",
        **memory,
    }


def _say(job: Job, words: str) -> None:
    """Progress, between runs: some take minutes."""
    print(f"{job.preset}: {words}", file=sys.stderr, flush=True)


def _recipe(preset: Preset) -> Recipe:
    """The recipe of the weights that the preset runs; without one they are the model as it is."""
    return recipe_of(preset) if weights_owner(preset).checkpoint else Recipe("bf16")


def _own_checkpoint(preset: Preset, store: str) -> Checkpoint:
    from server.checkpoint import open_checkpoint
    from server.weights import MODEL_FILES, local_folder

    folder = local_folder(preset.model_location(store), MODEL_FILES)
    check_recipe(preset, folder)
    return open_checkpoint(folder)


def _random_checkpoint(job: Job, recipe: Recipe) -> Checkpoint:
    folder = Path(job.folder) / "model"
    folder.mkdir()
    shape = shapes.named_shape(job.shape)
    quantization = None if recipe.scheme == "bf16" else quantization_config(recipe)
    return shapes.write_shape(folder, shape, recipe.scheme, quantization)


def _prompts(checkpoint: Checkpoint, *, random_ids: bool) -> list[list[int]]:
    """Prompts of the project's sentences, or of random text ids: a shape has no tokenizer."""
    layout = checkpoint.layout
    if random_ids:
        generator = random.Random(0)
        ids = [
            [generator.randrange(layout.begin_of_text or 1) for _ in range(_RANDOM_PROMPT_IDS)]
            for _ in SENTENCES
        ]
        return [layout.prompt(text) for text in ids]
    from server.text import TextEncoder

    text = TextEncoder(checkpoint.folder, layout)
    return [text.encode(sentence, text.voices[0]) for sentence in SENTENCES]


def _memory_now(device: Literal["cpu", "cuda"]) -> int:
    """Memory as it is: resident on a CPU, reserved by torch on a GPU."""
    if device == "cuda":
        import torch

        free, total = torch.cuda.mem_get_info()
        return int(torch.cuda.memory_reserved()) or int(total - free)
    try:
        pages = int(_STATM.read_text("ascii").split()[1])
    except OSError:  # Not Linux.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return pages * resource.getpagesize()


def _peak_memory(device: Literal["cpu", "cuda"]) -> dict[str, int]:
    """Peak memory: resident on a CPU, reserved by torch on a GPU, where also what is in use now."""
    if device == "cuda":
        import torch

        free, total = torch.cuda.mem_get_info()
        return {
            "peak_memory_bytes": int(torch.cuda.max_memory_reserved()) or int(total - free),
            "device_memory_bytes": int(total - free),
        }
    return {"peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024}


def _profile(engine: Engine, speech: Speech, job: Job) -> list[dict[str, Any]]:
    """Rows of a profile; one that says why where it cannot be taken: the runs stand without it."""
    if engine.facts.form != "in_process":
        return [{"profile": "none", "reason": "the engine's core is in another process"}]
    from vllm.model_executor.models.llama import LlamaForCausalLM

    from server.engine_model import SpeechLlamaForCausalLM
    from speech_assets.quantize.kernels import profile_rows

    profiled = replace(speech, steps=job.profile_steps)
    try:
        return profile_rows(
            lambda: plain(engine, profiled, 0),
            engine.facts.device,
            (LlamaForCausalLM, SpeechLlamaForCausalLM),
        )
    except RuntimeError as error:  # Drivers and containers may keep the profiler out.
        return [{"profile": "none", "reason": f"{type(error).__name__}: {error}"}]


if __name__ == "__main__":
    main()
