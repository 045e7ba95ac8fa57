"""Sampling on a CPU from the rows of the due slot, in place of vLLM's sampler.

vLLM's own sorts the whole vocabulary of 156,940 rows for top-p. Here a row has one slot's columns,
and the draw is a function of (seed, position), so that a stream's tokens depend neither on who
shares the batch nor on preemption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.v1.outputs import LogprobsTensors, SamplerOutput

from server.engine import SEED
from server.engine_draw import draw, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from vllm.v1.sample.metadata import SamplingMetadata

    from server.engine_model import SpeechLlamaForCausalLM


class SlotSampler:
    """Callable as vLLM's V1 runner calls its sampler. Ids are the engine's."""

    def __init__(self, runner: Any, model: SpeechLlamaForCausalLM) -> None:
        self._runner = runner
        self._model = model
        self._rows = model.rows

    def __call__(self, logits: torch.Tensor, sampling_metadata: SamplingMetadata) -> SamplerOutput:
        """One id a row of logits (n, codes + 1), int32 of shape (n, 1), and logprobs if asked."""
        codes = self._rows.codes
        due = np.array(self._model.due)
        scores = logits.numpy()
        wanted = sampling_metadata.max_num_logprobs
        raw = None if wanted is None else torch.from_numpy(scores).log_softmax(-1)
        columns = self._draw(scores, due)
        ids = np.where(columns == codes, self._rows.stop, due * codes + columns)
        sampled = torch.from_numpy(ids.astype(np.int32))[:, None]
        if raw is None or wanted is None:
            return SamplerOutput(sampled_token_ids=sampled, logprobs_tensors=None)
        return SamplerOutput(sampled, self._logprobs(raw, wanted, columns, due))

    def _draw(self, scores: NDArray[np.float32], due: NDArray[np.int64]) -> NDArray[np.int64]:
        batch = self._runner.input_batch
        count = len(due)
        lengths = batch.num_tokens_no_spec[:count]
        params = [self._runner.requests[name].sampling_params for name in batch.req_ids[:count]]
        for n, param in enumerate(params):
            if param.repetition_penalty != 1.0:
                seen = batch.token_ids_cpu[n, : lengths[n]]
                self._penalize(scores[n], seen, int(due[n]), param.repetition_penalty)
        columns = scores.argmax(-1)
        drawn = [n for n, param in enumerate(params) if param.temperature > 0]
        if drawn:
            columns[drawn] = draw(
                scores[drawn],
                np.array([params[n].temperature for n in drawn], np.float32),
                np.array([params[n].top_p for n in drawn], np.float32),
                uniform(
                    np.array([params[n].extra_args[SEED] for n in drawn], np.uint64),
                    lengths[drawn].astype(np.uint64),
                ),
            )
        return columns

    def _penalize(
        self, row: NDArray[np.float32], seen: NDArray[np.int32], slot: int, penalty: float
    ) -> None:
        """Make what prompt and output hold less likely, as transformers and vLLM do."""
        columns = seen - slot * self._rows.codes
        columns = columns[(columns >= 0) & (columns < self._rows.codes)]
        if self._rows.stop in seen:
            columns = np.append(columns, self._rows.codes)
        values = row[columns]
        row[columns] = np.where(values > 0, values / penalty, values * penalty)

    def _logprobs(
        self,
        raw: torch.Tensor,
        wanted: int,
        columns: NDArray[np.int64],
        due: NDArray[np.int64],
    ) -> LogprobsTensors:
        """The sampled id's logprob and rank, and the `wanted` best, before any penalty."""
        codes = self._rows.codes
        chosen = torch.from_numpy(columns)[:, None]
        own = raw.gather(-1, chosen)
        best, places = raw.topk(min(wanted, raw.shape[-1]), -1)
        all_columns = torch.cat([chosen, places], -1)
        first = torch.from_numpy(due * codes)[:, None]
        ids = torch.where(all_columns == codes, self._rows.stop, first + all_columns)
        ranks = (raw >= own).sum(-1)
        return LogprobsTensors(ids.int(), torch.cat([own, best], -1), ranks)
