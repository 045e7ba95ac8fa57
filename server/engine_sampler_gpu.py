"""Sampling on a GPU from the rows of the due slot, by one kernel in place of vLLM's dozen.

vLLM's V2 sampler works on all 28,673 columns of a row, six sevenths of them at -inf, in passes over
memory of penalties, temperature, top-p and noise. Its states are kept and read here; a request
whose drawing the kernel does not know (logprobs, a bias) is drawn by vLLM's own sampler, and shares
a batch with others without changing what those draw.
"""

from __future__ import annotations

# Kernels are launched by an index, which a CPU's environment, without Triton, cannot type.
# pyright: reportIndexIssue=false
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.worker.gpu.input_batch import get_num_sampled_and_rejected
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from server.frames import TOKENS_PER_FRAME

if TYPE_CHECKING:
    from torch import Tensor
    from vllm.v1.worker.gpu.input_batch import InputBatch

    from server.engine_model import SpeechLlamaForCausalLM

# Fields of vLLM's SamplingParams that the kernel minds, or that change no draw. Any other, of later
# versions too, is vLLM's to mind where it is not its default.
_MINDED = frozenset(
    {
        *("temperature", "top_p", "repetition_penalty", "seed"),
        *("max_tokens", "stop_token_ids", "_all_stop_token_ids", "_eos_token_id", "ignore_eos"),
        *("detokenize", "skip_special_tokens", "spaces_between_special_tokens"),
        *("output_kind", "skip_clone", "flat_logprobs"),
    }
)
_DEFAULTS = SamplingParams()
_WIDE_BLOCK = 2_048  # Columns of a program from which on 8 warps share them.


def is_minded(params: SamplingParams) -> bool:
    """Whether the kernel draws as `params` say, all of it."""
    return all(
        name in _MINDED or getattr(params, name) == getattr(_DEFAULTS, name)
        for name in params.__struct_fields__
    )


class FusedSampler:
    """Callable as vLLM's V2 runner calls its sampler, which it has inside. Ids are the engine's.

    The model need not mask its logits (`masks_off_slot`): the kernel reads no row off its slot, and
    what vLLM's sampler is given is masked here.
    """

    def __init__(self, sampler: Any, model: SpeechLlamaForCausalLM) -> None:
        """
        Raises:
            ImportError: there is no Triton.
        """
        from server import engine_sampler_kernels as kernels

        self._kernels = kernels
        self._sampler = sampler
        self._model = model
        # Settings of the whole engine by which every request is vLLM's.
        self._never = bool(
            sampler.compute_nans
            or sampler.use_fp64_gumbel
            or getattr(sampler, "return_sampling_mask", False)  # Of vLLM 0.32.
        )
        self._others = np.full(sampler.sampling_states.max_num_reqs, self._never)
        codes = model.rows.codes
        self._block = max(16, 1 << (codes - 1).bit_length())
        self._warps = 8 if self._block >= _WIDE_BLOCK else 4

    def __getattr__(self, name: str) -> Any:
        """What else the runner and its other parts ask the sampler for: states, staged writes."""
        return getattr(self._sampler, name)

    def add_request(self, place: int, *rest: Any) -> None:
        """Note a request; the last argument is its SamplingParams in every version of vLLM."""
        self._others[place] = self._never or not is_minded(rest[-1])
        self._sampler.add_request(place, *rest)

    def __call__(self, logits: Tensor, input_batch: InputBatch) -> SamplerOutput:
        """One id a request, int64 of shape (n, 1), from logits (n, rows), float32."""
        others = self._others[input_batch.idx_mapping_np]
        single = len(logits) == input_batch.num_reqs  # Not so where drafts are verified.
        if not single or others.all():
            return self._vllm(logits, input_batch)
        ids = self.draw(logits, input_batch)[:, None]
        if not others.any():
            counts = get_num_sampled_and_rejected(
                input_batch.seq_lens.new_ones(input_batch.num_reqs),
                input_batch.seq_lens,
                input_batch.cu_num_logits,
                input_batch.idx_mapping,
                self._sampler.req_states.prefill_len.gpu,
            )
            return SamplerOutput(
                sampled_token_ids=ids,
                logprobs_tensors=None,
                num_nans=None,
                num_sampled=counts[0],
                num_rejected=counts[1],
            )
        output = self._vllm(logits, input_batch)
        theirs = torch.from_numpy(others)
        if logits.is_cuda:  # Pinned, so that the host does not wait for the device.
            theirs = theirs.pin_memory().to(logits.device, non_blocking=True)
        merged = torch.where(theirs[:, None], output.sampled_token_ids, ids)
        return dataclasses.replace(output, sampled_token_ids=merged)

    def draw(self, logits: Tensor, input_batch: InputBatch) -> Tensor:
        """The kernel's ids, int64 of shape (n,): functions of a row, its request and its position.

        Without a seed of its own a request has one that vLLM made up.
        """
        states, penalties = self._sampler.sampling_states, self._sampler.penalties_state
        bits, counts = penalties.prompt_bin_mask, penalties.output_bin_counts
        ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        self._kernels.draw[(len(logits),)](
            ids,
            logits,
            logits.stride(0),
            input_batch.expanded_idx_mapping,
            input_batch.logits_indices,
            input_batch.input_ids,
            input_batch.positions,
            states.temperature.gpu,
            states.top_p.gpu,
            penalties.repetition_penalty.gpu,
            states.seeds.gpu,
            bits,
            bits.stride(0),
            counts,
            counts.stride(0),
            CODES=self._model.rows.codes,
            FRAME=TOKENS_PER_FRAME,
            BLOCK=self._block,
            num_warps=self._warps,
        )
        return ids

    def _vllm(self, logits: Tensor, input_batch: InputBatch) -> SamplerOutput:
        """What vLLM's own sampler gives, of logits that are masked in place."""
        last = input_batch.input_ids[input_batch.logits_indices]
        self._model.mask_off_slot(logits, self._model.slot_after(last))
        return self._sampler(logits, input_batch)
