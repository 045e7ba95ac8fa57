"""vLLM's scheduler with a short way for the step that is nearly all of them.

While speech is generated each request takes one token a step, and nothing else happens for many
steps. vLLM goes through all that could happen, for each request, twice a step: that takes as long
as a GPU's step from some hundred streams on. Here such a step is told by a few comparisons a
request. Whatever else there is to do (a prompt, an end, a full cache, an option that speech does
not use) goes vLLM's own way, for that step or that request; `test_engine_scheduler.py` holds both
ways to give the same, and vLLM's versions that this is written for are named below.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm import __version__ as vllm_version
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import RequestStatus

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

KNOWN_VERSIONS = ("0.26.", "0.32.")
"""vLLM whose scheduler keeps the books that are kept here; with another its own way is gone."""

_STOPS = "speech_stops"  # On a request that may go the short way: the ids that end it.


class _NoBlocks(dict[str, Any]):
    """Blocks by request: those of requests that need none are not in it."""

    def __init__(self, none: Any) -> None:
        self._none = none

    def __missing__(self, _: str) -> Any:
        return self._none


class _ShortWay(Scheduler):
    """Steps of one token a request are scheduled, and their tokens taken, by the short way."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Of a token on its way nothing is known but its place.
        self._placeholders = int(isinstance(self, AsyncScheduler))
        self._is_plain = vllm_version.startswith(KNOWN_VERSIONS) and _is_plain(self)
        self._block_size = self.kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
        self._like: SchedulerOutput | None = None  # A step of decodes that vLLM has scheduled.

    def add_request(self, request: Request) -> None:
        if self._is_plain and (stops := _stops(request)) is not None:
            setattr(request, _STOPS, stops)
        super().add_request(request)

    def schedule(self, *arguments: Any, **named: Any) -> SchedulerOutput:
        if self._like is not None and not any(arguments) and not any(named.values()):
            output = self._schedule_decodes(self._like)
            if output is not None:
                return output
        output = super().schedule(*arguments, **named)
        if self._is_plain and self._like is None and _is_of_decodes(output):
            self._like = output
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        if not self._is_plain or not _holds_tokens_alone(model_runner_output):
            return super().update_from_output(scheduler_output, model_runner_output)
        rest, taken = self._take_tokens(scheduler_output, model_runner_output)
        # What is due once a step is due without a request, too.
        given = super().update_from_output(
            replace(scheduler_output, num_scheduled_tokens=rest), model_runner_output
        )
        for client, outputs in taken.items():
            if client in given:
                given[client].outputs = outputs + given[client].outputs
            else:
                given[client] = EngineCoreOutputs(outputs=outputs)
        return given

    def _schedule_decodes(self, like: SchedulerOutput) -> SchedulerOutput | None:
        """A step like `like`, of one token for each running request; None: it is another step.

        Nothing is changed before it is known that it is one.
        """
        waiting = self.get_request_counts()[1]
        if waiting or self._pause_state != PauseState.UNPAUSED or self.reset_preempted_req_ids:
            return None
        scheduled: list[Request] = []
        at_block_ends: list[Request] = []
        block_size, longest = self._block_size, self.max_model_len - 1
        for request in self.running:
            computed, placeholders = request.num_computed_tokens, request.num_output_placeholders
            # Its last token is on its way.
            if placeholders > 0 and (
                computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens
            ):
                continue
            if (
                request.num_tokens + placeholders - computed != 1
                or computed >= longest
                or request.is_prefill_chunk
                or request.spec_token_ids
                or not hasattr(request, _STOPS)
            ):
                return None
            scheduled.append(request)
            if computed % block_size == 0:
                at_block_ends.append(request)
        free_blocks = self.kv_cache_manager.block_pool.get_num_free_blocks()
        if (
            not scheduled
            or len(scheduled) > self.max_num_scheduled_tokens
            or len(at_block_ends) > free_blocks
        ):
            return None

        self.current_step += 1
        self.kv_cache_manager.new_step_starts()
        blocks = _NoBlocks(self.kv_cache_manager.empty_kv_cache_blocks)
        for request in at_block_ends:
            blocks[request.request_id] = self.kv_cache_manager.allocate_slots(request, 1)
        tokens = dict.fromkeys([request.request_id for request in scheduled], 1)
        cached = self._make_cached_request_data(scheduled, [], tokens, {}, blocks)
        if not self.use_v2_model_runner:
            self.prev_step_scheduled_req_ids.clear()
            self.prev_step_scheduled_req_ids.update(tokens)
        output = replace(
            like,
            scheduled_cached_reqs=cached,
            num_scheduled_tokens=tokens,
            total_num_scheduled_tokens=len(tokens),
            finished_req_ids=self.finished_req_ids,
            preempted_req_ids=self.reset_preempted_req_ids,
        )
        if like.num_common_prefix_blocks:  # Not of vLLM 0.32.
            first = self.running[0].request_id
            output.num_common_prefix_blocks = self.kv_cache_manager.get_num_common_prefix_blocks(
                first
            )
        if self.defer_block_free:
            self.sched_step_seq += 1
        self._update_after_schedule(output)
        return output

    def _take_tokens(
        self, scheduled: SchedulerOutput, given: ModelRunnerOutput
    ) -> tuple[dict[str, int], dict[int, list[EngineCoreOutput]]]:
        """Take the tokens of requests to which nothing else happens; the others are left."""
        rest: dict[str, int] = {}
        taken: dict[int, list[EngineCoreOutput]] = defaultdict(list)
        sampled, index = given.sampled_token_ids, given.req_id_to_index
        longest, running = self.max_model_len, RequestStatus.RUNNING
        for name, count in scheduled.num_scheduled_tokens.items():
            request = self.requests.get(name)
            if (
                request is None
                or count != 1
                or request.status is not running
                or request.num_preemptions
                or request.prefill_stats is not None  # It goes with the first token.
                or (stops := getattr(request, _STOPS, None)) is None
                or len(ids := sampled[index[name]]) != 1
                or ids[0] in stops
                or request.num_output_tokens + 1 >= request.max_tokens
                or request.num_tokens + 1 >= longest
            ):
                rest[name] = count
                continue
            request.num_in_flight_tokens -= 1
            request.num_output_placeholders -= self._placeholders
            request.append_output_token_ids(ids[0])
            taken[request.client_index].append(EngineCoreOutput(name, ids))
        return rest, taken


class SpeechScheduler(_ShortWay, AsyncScheduler):
    """Where a step is scheduled while the one before runs, as on a GPU."""


class SpeechStepScheduler(_ShortWay):
    """Where a step is scheduled when the one before has ended, as on a CPU."""


def _is_plain(scheduler: Scheduler) -> bool:
    """Whether the engine has nothing that takes part in a step beside requests and their blocks."""
    groups = scheduler.kv_cache_config.kv_cache_groups
    return (
        len(groups) == 1
        and type(groups[0].kv_cache_spec) is FullAttentionSpec
        and not scheduler.cache_config.enable_prefix_caching
        and scheduler.parallel_config.pipeline_parallel_size == 1
        and scheduler.num_spec_tokens == 0
        and scheduler.num_lookahead_tokens == 0
        and not scheduler.log_stats
        and not scheduler.needs_kv_cache_zeroing
        and scheduler.lora_config is None
        and scheduler.connector is None
        and scheduler.ec_connector is None
        and scheduler.dynamic_sd_lookup is None
        and getattr(scheduler, "aux_output_connector", None) is None
    )


def _stops(request: Request) -> frozenset[int] | None:
    """The ids that end the request; None where more than an id or its length can."""
    params = request.sampling_params
    if (
        params is None
        or params.min_tokens
        or params.repetition_detection is not None
        or params.logprobs is not None
        or params.prompt_logprobs is not None
        or request.use_structured_output
        or request.lora_request is not None
        or request.trace_headers is not None
        or request.has_encoder_inputs
    ):
        return None
    ids = params.stop_token_ids or ()
    end = params.eos_token_id
    return frozenset(ids if end is None else (*ids, end))


def _is_of_decodes(output: SchedulerOutput) -> bool:
    """Whether a step is of running requests, one token each, and of nothing else."""
    return (
        output.total_num_scheduled_tokens == len(output.num_scheduled_tokens) > 0
        and not output.scheduled_new_reqs
        and not output.scheduled_cached_reqs.resumed_req_ids
        and not output.scheduled_spec_decode_tokens
        and not output.scheduled_encoder_inputs
        and not output.free_encoder_mm_hashes
        and not output.preempted_req_ids
        and not output.has_structured_output_requests
        and output.new_block_ids_to_zero is None
        and output.kv_cache_block_copies is None
    )


def _holds_tokens_alone(output: ModelRunnerOutput) -> bool:
    """Whether a model's output is of tokens, and of nothing that goes with single requests."""
    return not (
        output.logprobs
        or output.prompt_logprobs_dict
        or output.pooler_output
        or output.kv_connector_output
        or output.num_nans_in_logits
    )
