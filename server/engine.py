"""Token ids in, token ids out: what an engine is asked for, gives and is, and how one is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from server.checkpoint import Checkpoint

FinishReason = Literal["stop", "length", "error"]
Head = Literal["audio", "full"]
Form = Literal["in_process", "child"]
SamplerChoice = Literal["auto", "fused", "vllm"]
SEED = "speech_seed"  # Name of a request's seed in vLLM's `SamplingParams.extra_args`.
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a generation draws its tokens. The same seed gives the same tokens."""

    temperature: float = 0.6  # 0 takes the likeliest.
    top_p: float = 0.9
    repetition_penalty: float = 1.1
    seed: int = 0
    max_tokens: int = 1_200
    logprobs: int | None = None  # Of the n likeliest ids a token; for measuring, it costs time.


@dataclass(frozen=True, slots=True)
class Generation:
    """One request: the prompt's ids, and how to go on from them."""

    request_id: str
    prompt_ids: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """What one step gave a request: ids of the model, without end_of_speech."""

    request_id: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    # With `Sampling.logprobs`, one mapping of id to logprob a token, end_of_speech's included.
    logprobs: list[dict[int, float]] | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine runs. A preset holds these."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    head: Head = "audio"
    form: Form = "in_process"
    device: Literal["cpu", "cuda"] = "cpu"
    max_streams: int = 16
    max_model_len: int = 2_048  # Prompt and speech, tokens; 82.03 tokens are a second.
    kv_cache_mib: int | None = None  # None: on a CPU what max_streams full streams take.
    sampler: SamplerChoice = "auto"  # Of a GPU: fused where the head is "audio".
    vllm_args: Mapping[str, Any] = field(default_factory=dict[str, Any])  # Over all of the above.


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an open engine is."""

    vllm_version: str
    form: Form
    head: Head
    slot_rule: Literal["enforced", "dropped"]
    sampler: Literal["slot", "fused", "vllm"]  # `engine_sampler`, `engine_sampler_gpu`, vLLM's.
    layers: Literal["kernels", "vllm"]  # Called kernel by kernel (`engine_cpu`), or as vLLM does.
    dtype: str
    device: str
    max_streams: int
    max_model_len: int
    vocabulary_rows: int  # Rows that can be sampled.


class Engine(ABC):
    """Runs generations, a step at a time. Everything is called from one thread."""

    facts: EngineFacts

    @abstractmethod
    def add(self, generation: Generation) -> None:
        """Queue a generation.

        Raises:
            ConfigurationError: it cannot run (too long, an id that is not in the vocabulary, an id
                in use); the engine is unharmed.
            EngineDiedError: the engine is dead.
        """

    @abstractmethod
    def abort(self, request_ids: Iterable[str]) -> None:
        """Free the slots of requests at once; ids that are not running are ignored.

        Nothing more comes of them.

        Raises:
            EngineDiedError: the engine is dead.
        """

    @abstractmethod
    def step(self) -> list[EngineOutput]:
        """What one step gave, at most one output a request; none when nothing runs.

        Raises:
            EngineDiedError: the engine died; nothing more will come of its requests.
        """

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a step has something to do."""

    @abstractmethod
    def close(self) -> None:
        """Free memory and end processes; safe to call twice."""


def open_engine(checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
    """An engine that has run a generation, so that the first request meets no first time.

    Raises:
        ConfigurationError: the settings cannot work.
        WeightsError: the weights do not load.
        EngineDiedError: the engine died while starting.
    """
    if settings.form == "child":
        from server.engine_child import ChildEngine

        return ChildEngine(checkpoint, settings)
    from server.engine_core import CoreEngine

    return CoreEngine(checkpoint, settings)


def find_device(choice: Literal["auto", "cpu", "cuda"]) -> Literal["cpu", "cuda"]:
    """The device to run on: as chosen, or a GPU where there is one.

    Raises:
        ConfigurationError: a GPU is asked for, and PyTorch finds none.
    """
    import torch

    if choice == "cpu":
        return "cpu"
    found = torch.cuda.is_available()
    if choice == "cuda" and not found:
        raise ConfigurationError(
            f"device cuda: PyTorch {torch.__version__} finds no GPU; choose the CPU "
            "(the preset's device = \"cpu\", a server's --device cpu), or install the GPU "
            "environment where there is one (make setup SPEECH_STACK=gpu)"
        )
    return "cuda" if found else "cpu"


def fastest_cpu_dtype(cpu_info: Path = _CPU_INFO) -> Literal["float32", "bfloat16"]:
    """The dtype in which this CPU steps fastest.

    A step waits for weights, and bfloat16 halves them; without AVX512-BF16 its arithmetic is slow.
    """
    try:
        flags = cpu_info.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return "float32"
    return "bfloat16" if "avx512_bf16" in flags else "float32"


def check_generation(generation: Generation, facts: EngineFacts, vocabulary_size: int) -> int:
    """The tokens that the generation may give: its max_tokens, or what the model's length leaves.

    Raises:
        ConfigurationError: it cannot run.
    """
    ids, sampling = generation.prompt_ids, generation.sampling
    what = f"request {generation.request_id!r}"
    if not ids:
        raise ConfigurationError(f"{what}: the prompt is empty")
    if len(ids) >= facts.max_model_len:
        raise ConfigurationError(
            f"{what}: a prompt of {len(ids)} tokens does not fit the model length of "
            f"{facts.max_model_len}; shorten the text or raise max_model_len"
        )
    if bad := [n for n in ids if not 0 <= n < vocabulary_size]:
        raise ConfigurationError(f"{what}: prompt id {bad[0]} is outside 0..{vocabulary_size - 1}")
    if not (
        0 <= sampling.temperature <= 2
        and 0 < sampling.top_p <= 1
        and 0 < sampling.repetition_penalty <= 2
        and 0 <= sampling.seed < 2**63
        and sampling.max_tokens >= 1
    ):
        raise ConfigurationError(
            f"{what}: {sampling} is out of range; temperature 0..2, top_p and repetition_penalty "
            "above 0 up to 1 and 2, seed 0..2**63-1, max_tokens 1 or more"
        )
    return min(sampling.max_tokens, facts.max_model_len - len(ids))
