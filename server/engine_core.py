"""vLLM's core in this process, stepped by the caller's thread.

Nothing else of the project calls vLLM's engine. Requests go through its input processor to its core
and core outputs are read as they are: no detokenizer, no request objects. That is not a public API;
`test_engine.py` holds the contract, and runs on vLLM 0.26 as on 0.32.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from collections import abc
from typing import TYPE_CHECKING, Any, ClassVar, cast

from server import engine_random
from server.engine import (
    SEED,
    Engine,
    EngineFacts,
    EngineOutput,
    EngineSettings,
    FinishReason,
    Generation,
    Sampling,
    check_generation,
)
from server.engine_rows import RowNumbers, SampledRows
from server.errors import ConfigurationError, EngineDiedError, WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreOutput

    from server.checkpoint import Checkpoint

_MIB = 1 << 20
_VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_CACHE_BLOCK_TOKENS = 128  # vLLM's block on a CPU.


class CoreEngine(Engine):
    """The default form: one process, no copy between it and the caller.

    vLLM keeps its groups of processes in globals, so a process has one such engine at a time.
    """

    _open: ClassVar[CoreEngine | None] = None

    def __init__(self, checkpoint: Checkpoint, settings: EngineSettings) -> None:
        if CoreEngine._open is not None:
            raise ConfigurationError(
                f"{checkpoint.folder}: this process has an engine open already; close that first, "
                "or use another process"
            )
        set_environment(settings, in_process=True)
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        from server import engine_model

        engine_model.register()
        if checkpoint.untrained:
            engine_random.register()
        _tolerate_llvmlite()
        rows = SampledRows.of(checkpoint.layout) if settings.head == "audio" else None
        self._checkpoint = checkpoint
        self._numbers = RowNumbers(rows, checkpoint.vocabulary_size)
        self._stop = checkpoint.layout.end_of_speech if rows is None else rows.stop
        self._active: set[str] = set()
        self._dead: EngineDiedError | None = None
        self._engine: Any = None
        CoreEngine._open = self
        try:
            args = EngineArgs(**engine_arguments(checkpoint, settings, rows))
            self._engine = LLMEngine.from_engine_args(args)
            self._core: Any = self._engine.engine_core
            found = self._core.collective_rpc("speech_install_sampler", args=(settings.sampler,))[0]
        except Exception as error:
            self.close()
            raise start_error(checkpoint, error) from error
        self._tasks = self._core.get_supported_tasks()
        self.facts = engine_facts(self._engine.vllm_config, checkpoint, settings, rows, found)
        try:
            self._warm_up()
        except BaseException:
            self.close()
            raise

    def add(self, generation: Generation) -> None:
        self._check_alive()
        request_id = generation.request_id
        if request_id in self._active:
            raise ConfigurationError(f"request {request_id!r} is running already; give each its id")
        limit = check_generation(generation, self.facts, self._checkpoint.vocabulary_size)
        prompt = self._numbers.to_engine(generation.prompt_ids)
        try:
            request = self._engine.input_processor.process_inputs(
                request_id,
                {"type": "token", "prompt_token_ids": prompt},
                sampling_params(generation.sampling, limit, self._stop, self.facts),
                supported_tasks=self._tasks,
            )
        except (ValueError, TypeError) as error:  # Of this request; the engine is unharmed.
            raise ConfigurationError(f"request {request_id!r}: {error}") from error
        try:
            self._core.add_request(request)
        except Exception as error:
            raise self._died(error) from error
        self._active.add(request_id)

    def abort(self, request_ids: Iterable[str]) -> None:
        self._check_alive()
        running = [name for name in request_ids if name in self._active]
        self._active.difference_update(running)
        try:
            self._core.abort_requests(running)
        except Exception as error:
            raise self._died(error) from error

    def step(self) -> list[EngineOutput]:
        self._check_alive()
        if not self.busy:
            return []
        try:
            outputs = self._core.get_output().outputs
        except Exception as error:
            raise self._died(error) from error
        given = [
            read_output(output, self._numbers, self._stop)
            for output in outputs
            if output.request_id in self._active
        ]
        self._active.difference_update(o.request_id for o in given if o.finish_reason)
        return given

    @property
    def busy(self) -> bool:
        # Under asynchronous scheduling a step may still be on its way after the last abort.
        return bool(self._active) or bool(self._core.engine_core.batch_queue)

    def close(self) -> None:
        engine, self._engine = self._engine, None
        self._dead = self._dead or EngineDiedError("the engine is closed")
        if CoreEngine._open is self:
            CoreEngine._open = None
        if engine is not None:
            gc.unfreeze()
            self._active.clear()
            self._core.shutdown()
            self._core = None
            del engine
            gc.collect()

    def _warm_up(self) -> None:
        """Run what a request can meet once, then leave what is loaded out of garbage collection."""
        self.add(warm_up_generation(self._checkpoint))
        while self.busy:
            self.step()
        gc.collect()
        gc.freeze()

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise self._dead

    def _died(self, error: Exception) -> EngineDiedError:
        self._active.clear()
        self._dead = EngineDiedError(
            f"the engine stopped: {type(error).__name__}: {error}; open it again"
        )
        return self._dead


def set_environment(settings: EngineSettings, *, in_process: bool) -> None:
    """Set what vLLM reads from the environment, before it is imported; a user's values stay."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if not in_process:
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0" if settings.device == "cpu" else "1"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Where Ray is installed vLLM imports it, for engines of several machines, and does without it
    # where it is not: 0.24 s and 37 MiB of every process with an engine (ray 2.60, AMD EPYC).
    cast("dict[str, Any]", sys.modules).setdefault("ray", None)
    if settings.device == "cpu":
        _hush()
        # More threads wait for each other on shared cores (43 tokens/s instead of 91 at 103 M).
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def _hush() -> None:
    """Keep to errors what torch and vLLM say of themselves on a CPU.

    That Triton is absent, that memory is bound to the one node: nothing that a user can act on.
    """
    for name in ("vllm", "torch._library.triton"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Of vLLM's own use of torch, at import.
    warnings.filterwarnings("ignore", "`torch.distributed.reduce_op` is deprecated")


def _tolerate_llvmlite() -> None:
    """Let vLLM 0.32 start in a process that has imported llvmlite, as numba and Whisper do.

    vLLM looks for its kernels in the namespace of every object of every module, and llvmlite's
    library makes up any attribute that it is asked for, a namespace that is none among them.
    """
    try:
        from vllm.triton_utils import dispatcher
    except ImportError:  # vLLM 0.26 does not look.
        return

    def namespace(value: object) -> Mapping[str, Any]:
        found = cast("Any", vars(value))
        return found if isinstance(found, abc.Mapping) else {}

    # Its own name for the builtin, in that module alone.
    setattr(dispatcher, "vars", namespace)  # noqa: B010


def engine_arguments(
    checkpoint: Checkpoint, settings: EngineSettings, rows: SampledRows | None
) -> dict[str, Any]:
    """Keyword arguments of vLLM's `EngineArgs`."""
    from server.engine_model import config_overrides
    from server.engine_worker import EXTENSION

    length = min(settings.max_model_len, checkpoint.max_positions)
    value: dict[str, Any] = {
        "model": str(checkpoint.folder),
        "dtype": settings.dtype,
        "max_model_len": length,
        "max_num_seqs": settings.max_streams,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # Not the folder's: its ids are not the engine's.
        "enable_prefix_caching": False,  # Prompts share nothing worth a hash.
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "worker_extension_cls": EXTENSION,
        "hf_overrides": {} if rows is None else config_overrides(rows),
    }
    if checkpoint.untrained:
        value["load_format"] = engine_random.LOAD_FORMAT
    # vLLM has no asynchronous scheduling on a CPU.
    waits = settings.device == "cpu" or settings.vllm_args.get("async_scheduling") is False
    value["scheduler_cls"] = (
        f"server.engine_scheduler.{'SpeechStepScheduler' if waits else 'SpeechScheduler'}"
    )
    if settings.device == "cpu":
        # Compilation costs 40 s of start and gains nothing at these sizes.
        value["enforce_eager"] = True
    if settings.kv_cache_mib is not None:
        value["kv_cache_memory_bytes"] = settings.kv_cache_mib * _MIB
    elif settings.device == "cpu":
        blocks = -(-length // _CACHE_BLOCK_TOKENS) * settings.max_streams + 1
        per_token = checkpoint.kv_bytes_per_token(_VALUE_BYTES[settings.dtype])
        value["kv_cache_memory_bytes"] = blocks * _CACHE_BLOCK_TOKENS * per_token
    return value | dict(settings.vllm_args)


def engine_facts(
    config: Any,
    checkpoint: Checkpoint,
    settings: EngineSettings,
    rows: SampledRows | None,
    found: Mapping[str, Any],
) -> EngineFacts:
    """What an engine is by vLLM's `config`, and by what its worker found (`engine_worker`)."""
    from vllm import __version__ as vllm_version

    return EngineFacts(
        vllm_version=vllm_version,
        form=settings.form,
        head=settings.head,
        slot_rule=found["slot_rule"],
        sampler=found["sampler"],
        layers=found["layers"],
        dtype=str(config.model_config.dtype).removeprefix("torch."),
        device=settings.device,
        max_streams=config.scheduler_config.max_num_seqs,
        max_model_len=config.model_config.max_model_len,
        vocabulary_rows=checkpoint.vocabulary_size if rows is None else rows.count,
    )


def warm_up_generation(checkpoint: Checkpoint) -> Generation:
    """A short one that runs what a request can meet."""
    prompt = checkpoint.layout.prompt_suffix or (0,)
    return Generation("warm-up", prompt, Sampling(max_tokens=8))


def sampling_params(
    sampling: Sampling, limit: int, stop: int, facts: EngineFacts
) -> SamplingParams:
    """vLLM's form of `sampling`, of at most `limit` tokens, that ends at the engine's id `stop`."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    # On a CPU the audio head's own sampler draws, by the seed in extra_args.
    own = facts.head == "audio" and facts.device == "cpu"
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        repetition_penalty=sampling.repetition_penalty,
        seed=None if own else sampling.seed,
        max_tokens=limit,
        stop_token_ids=[stop],
        ignore_eos=True,  # The only end is `stop`.
        detokenize=False,
        logprobs=sampling.logprobs,
        output_kind=RequestOutputKind.DELTA,
        extra_args={SEED: sampling.seed} if own else None,
    )


def read_output(output: EngineCoreOutput, numbers: RowNumbers, stop: int) -> EngineOutput:
    """The project's form of one core output."""
    ids: list[int] = output.new_token_ids
    logprobs: list[dict[int, float]] | None = None
    if output.new_logprobs is not None:
        found = output.new_logprobs
        logprobs = [
            dict(zip(numbers.to_model(row.tolist()), values.tolist(), strict=True))
            for row, values in zip(found.logprob_token_ids, found.logprobs, strict=True)
        ]
    reason: FinishReason | None = None
    if output.finish_reason is not None:
        name = str(output.finish_reason)
        reason = name if name in ("stop", "length") else "error"
        if ids and ids[-1] == stop:
            ids = ids[:-1]
    return EngineOutput(output.request_id, numbers.to_model(ids), reason, logprobs)


def start_error(checkpoint: Checkpoint, error: Exception) -> Exception:
    """The project's error for one that vLLM raised while it started."""
    text = f"{checkpoint.folder}: vLLM does not start: {type(error).__name__}: {error}"
    if isinstance(error, (KeyError, AssertionError)) or "safetensors" in str(error).lower():
        return WeightsError(f"{text}; the weights do not fit config.json")
    if isinstance(error, (ValueError, TypeError, ImportError)):
        return ConfigurationError(f"{text}; change the preset's settings")
    return EngineDiedError(text)
