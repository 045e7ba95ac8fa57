"""The short way of the scheduler gives what vLLM's own gives: steps, tokens, ends, blocks."""

from __future__ import annotations

import os
import random
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Of vLLM's own use of torch.
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request, RequestStatus
    from vllm.v1.structured_output import StructuredOutputManager

    from server import engine_scheduler
    from server.engine_scheduler import SpeechScheduler, SpeechStepScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput

pytestmark = pytest.mark.filterwarnings("ignore")  # Of vLLM's configuration.

SHAPE = Path(engine_scheduler.__file__).parent / "orpheus_3b"
BLOCK_TOKENS = 16
STOP = 28_672
LONGEST = 160
PLACES = 6


@pytest.fixture(scope="module")
def config() -> VllmConfig:
    arguments = EngineArgs(
        model=str(SHAPE),
        skip_tokenizer_init=True,
        max_model_len=LONGEST,
        max_num_seqs=PLACES,
        enable_prefix_caching=False,
        disable_log_stats=True,
        generation_config="vllm",
        enforce_eager=True,
        kv_cache_memory_bytes=1 << 20,
    )
    return arguments.create_engine_config()


def scheduler(
    kind: type[Scheduler], config: VllmConfig, blocks: int, *, v2: bool = True
) -> Scheduler:
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(
        block_size=BLOCK_TOKENS, num_kv_heads=8, head_size=128, dtype=torch.bfloat16
    )
    made = kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_TOKENS,
        log_stats=False,
    )
    made.use_v2_model_runner = v2  # A GPU's; which it is decides what a step says.
    return made


def request(name: str, prompt: int, **params: Any) -> Request:
    sampling = SamplingParams(
        **{
            "stop_token_ids": [STOP],
            "ignore_eos": True,
            "detokenize": False,
            "output_kind": RequestOutputKind.DELTA,
            **params,
        }
    )
    return Request(
        request_id=name,
        prompt_token_ids=list(range(prompt)),
        sampling_params=sampling,
        pooling_params=None,
    )


def sampled(output: SchedulerOutput, step: int) -> ModelRunnerOutput:
    """What a model gives of a step: an end now and then, nothing of a prompt that is not read."""
    names = list(output.num_scheduled_tokens)
    tokens = []
    for name in names:
        draw = random.Random(f"{name} {step}")
        tokens.append([STOP if draw.random() < 0.02 else draw.randrange(1_000)])
    index = {name: place for place, name in enumerate(names)}
    return ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=tokens)


@dataclass
class Engine:
    """A scheduler; under asynchronous scheduling with a step on its way, as vLLM's core has it."""

    scheduler: Scheduler
    waits: bool
    steps: int = 0
    on_its_way: SchedulerOutput | None = None

    def step(self) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
        """Schedule a step and take the tokens of the one before; both, as they can be compared."""
        output = self.scheduler.schedule()
        told = said(output)
        before, self.on_its_way = self.on_its_way, output
        if self.waits:
            before = output
        given: list[tuple[Any, ...]] = []
        if before is not None and before.total_num_scheduled_tokens:
            made = self.scheduler.update_from_output(before, sampled(before, self.steps))
            for outputs in made.values():
                given += [
                    (one.request_id, tuple(one.new_token_ids), one.finish_reason, one.stop_reason)
                    for one in outputs.outputs
                ]
        self.steps += 1
        return told, sorted(given)


def said(output: SchedulerOutput) -> dict[str, Any]:
    """All that a step tells the worker."""
    told = {field.name: getattr(output, field.name) for field in fields(output)}
    told["scheduled_cached_reqs"] = {
        field.name: getattr(output.scheduled_cached_reqs, field.name)
        for field in fields(output.scheduled_cached_reqs)
    }
    told["scheduled_new_reqs"] = [
        (new.req_id, new.num_computed_tokens, new.block_ids) for new in output.scheduled_new_reqs
    ]
    told["finished_req_ids"] = set(output.finished_req_ids)
    return told


def state(one: Scheduler) -> dict[str, Any]:
    """What is kept of every request, and what is free."""
    return {
        "free": one.kv_cache_manager.block_pool.get_num_free_blocks(),
        "running": [request.request_id for request in one.running],
        "requests": {
            name: (
                request.status,
                request.num_computed_tokens,
                request.num_output_placeholders,
                request.num_in_flight_tokens,
                request.num_preemptions,
                list(request.output_token_ids),
            )
            for name, request in one.requests.items()
        },
    }


@dataclass
class Both:
    """vLLM's scheduler and ours, told the same; `short` counts steps that went the short way."""

    theirs: Engine
    ours: Engine
    short: int = 0

    @classmethod
    def open(
        cls, config: VllmConfig, *, blocks: int = 200, v2: bool = True, waits: bool = False
    ) -> Both:
        kinds = (Scheduler, SpeechStepScheduler) if waits else (AsyncScheduler, SpeechScheduler)
        theirs, ours = (Engine(scheduler(kind, config, blocks, v2=v2), waits) for kind in kinds)
        both = cls(theirs, ours)
        schedule = ours.scheduler._schedule_decodes  # pyright: ignore[reportAttributeAccessIssue]

        def counted(like: SchedulerOutput) -> SchedulerOutput | None:
            output = schedule(like)
            both.short += output is not None
            return output

        ours.scheduler._schedule_decodes = counted  # pyright: ignore[reportAttributeAccessIssue]
        return both

    def tell(self, what: Callable[[Scheduler], object]) -> None:
        for one in (self.theirs, self.ours):
            what(one.scheduler)

    def add(self, name: str, prompt: int, **params: Any) -> None:
        self.tell(lambda one: one.add_request(request(name, prompt, **params)))

    def abort(self, name: str) -> None:
        self.tell(lambda one: one.finish_requests([name], RequestStatus.FINISHED_ABORTED))

    def step(self) -> list[tuple[Any, ...]]:
        """One step of both, which must be the same; what it gave."""
        told, given = self.theirs.step()
        our_told, our_given = self.ours.step()
        assert our_told == told
        assert our_given == given
        assert state(self.ours.scheduler) == state(self.theirs.scheduler)
        return given


@pytest.mark.parametrize(("v2", "waits"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("blocks", [200, 22])
@pytest.mark.parametrize("seed", range(4))
def test_any_traffic_is_scheduled_as_by_vllm(
    config: VllmConfig, seed: int, blocks: int, v2: bool, waits: bool
) -> None:
    # With 22 blocks requests are preempted, and resumed.
    draw = random.Random(seed)
    both = Both.open(config, blocks=blocks, v2=v2, waits=waits)
    added = 0
    ended: set[str] = set()
    for _ in range(600):
        if draw.random() < 0.08:
            params: dict[str, Any] = {"max_tokens": draw.choice([1, 2, 17, 60, 200])}
            if draw.random() < 0.15:
                params |= draw.choice([{"logprobs": 2}, {"min_tokens": 1}])
            both.add(f"r{added}", draw.choice([1, 15, 16, 17, 40, 150]), **params)
            added += 1
        if both.ours.scheduler.running and draw.random() < 0.02:
            both.abort(draw.choice(both.ours.scheduler.running).request_id)
        ended |= {name for name, _, reason, _ in both.step() if reason is not None}
    assert len(ended) > 10
    assert both.short > 50
    both.tell(lambda one: one.finish_requests(None, RequestStatus.FINISHED_ABORTED))
    for _ in range(3):
        both.step()
    # Nothing is left behind.
    assert both.ours.scheduler.requests == {}
    assert both.ours.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == blocks - 1


def test_nearly_every_step_of_steady_speech_goes_the_short_way(config: VllmConfig) -> None:
    both = Both.open(config)
    for number in range(PLACES):
        both.add(f"r{number}", 20, max_tokens=100, stop_token_ids=[])
    for _ in range(90):
        both.step()
    assert both.short >= 85


@pytest.mark.parametrize(
    "params",
    [
        {"min_tokens": 3},
        {"logprobs": 1},
        {"repetition_detection": RepetitionDetectionParams(max_pattern_size=2, min_count=3)},
    ],
)
def test_a_request_with_an_option_that_speech_does_not_use_goes_vllms_way(
    config: VllmConfig, params: dict[str, Any]
) -> None:
    both = Both.open(config)
    both.add("plain", 20, max_tokens=100)
    both.add("other", 20, max_tokens=100, **params)
    for _ in range(20):
        both.step()
    assert both.short == 0


def test_while_it_is_paused_vllm_decides(config: VllmConfig) -> None:
    both = Both.open(config)
    both.add("r", 20, max_tokens=100)
    for _ in range(6):
        both.step()
    taken = both.short
    assert taken > 0
    both.tell(lambda one: one.set_pause_state(PauseState.PAUSED_ALL))
    assert both.step() != []  # What was on its way.
    assert both.step() == []
    assert both.short == taken
    both.tell(lambda one: one.set_pause_state(PauseState.UNPAUSED))
    both.step()
    assert both.short == taken + 1


def test_with_another_vllm_its_own_way_is_gone(
    config: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_scheduler, "vllm_version", "0.99.0")
    both = Both.open(config)
    both.add("r", 20, max_tokens=100)
    for _ in range(20):
        both.step()
    assert both.short == 0


def test_the_versions_that_are_known_are_those_that_are_installed() -> None:
    assert engine_scheduler.vllm_version.startswith(engine_scheduler.KNOWN_VERSIONS)
