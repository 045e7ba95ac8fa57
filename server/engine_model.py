"""The Llama class that vLLM loads for an audio head: its rows in the engine's order, its head cut.

Registered with vLLM as `SpeechLlamaForCausalLM`. The last hidden state carries the slot that is due
in one more column, a function of the last token alone, so that no runner has to know the slot rule:
it holds after preemption, chunked prefill, in CUDA graphs and under asynchronous scheduling. On a
CPU only the due slot's rows are multiplied; elsewhere all sampled rows are, and the others masked,
unless the sampler reads none of them (`engine_sampler_gpu`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from vllm import ModelRegistry
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.models.llama import LlamaForCausalLM

from server.engine_rows import SampledRows
from server.frames import TOKENS_PER_FRAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor
    from vllm.config import VllmConfig
    from vllm.sequence import IntermediateTensors

    from server.engine_cpu import Body

ARCHITECTURE = "SpeechLlamaForCausalLM"
_REORDERED = ("model.embed_tokens.weight", "lm_head.weight")


def config_overrides(rows: SampledRows) -> dict[str, Any]:
    """What vLLM's `hf_overrides` must say for a checkpoint to load with its head cut to `rows`."""
    return {
        "architectures": [ARCHITECTURE],
        "speech_codes": rows.codes,
        "speech_audio_base": rows.audio_base,
        "speech_end_of_speech": rows.end_of_speech,
        # Ids of the model mean nothing in the engine's order: nothing may stop at them.
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def register() -> None:
    """Make the class known to vLLM in this process."""
    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, SpeechLlamaForCausalLM)


class SpeechLlamaForCausalLM(LlamaForCausalLM):
    """Llama whose token ids are the engine's (`SampledRows.order`) and whose head is cut."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        if get_tensor_model_parallel_world_size() != 1:
            raise ValueError("the audio head runs on one device; set head = 'full' for more")
        if not hasattr(self.lm_head, "weight"):
            raise ValueError(
                "this checkpoint's lm_head is quantized and cannot be cut; set head = 'full'"
            )
        config = vllm_config.model_config.hf_config
        self.rows = SampledRows(
            config.speech_codes, config.speech_audio_base, config.speech_end_of_speech
        )
        self.due_rows_only = vllm_config.device_config.device_type == "cpu"
        self.due: list[int] = []  # Slot of each row of the last logits, when `due_rows_only`.
        self.masks_off_slot = True  # Whether logits off their slot are -inf, or anything.
        self.body: Body | None = None  # In place of the model's own forward, where there is one.
        self._heads: list[Callable[[Tensor], Tensor]] = []  # Of each slot, made at the first step.
        self.off_slot: Tensor  # Of slot and row, bool (7, rows).
        # A factory, which minds the device that vLLM makes the model on; nothing moves it later.
        self.register_buffer("off_slot", torch.tensor(self.rows.off_slot()), persistent=False)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load a checkpoint in the model's order of rows; give the names that were loaded."""
        return super().load_weights(self._reordered(weights))

    def _reordered(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        order = torch.from_numpy(self.rows.order(self.config.vocab_size))
        for name, weight in weights:
            yield name, weight[order.to(weight.device)] if name in _REORDERED else weight

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (tokens, hidden + 1): the last column is the slot due after each token."""
        assert input_ids is not None, "the slot rule reads token ids, not embeddings"
        if self.body is not None:
            hidden = self.body(input_ids, positions)
        else:
            hidden = self.model(input_ids, positions, intermediate_tensors, inputs_embeds)
        due = self.slot_after(input_ids)
        return torch.cat([hidden, due.to(hidden.dtype)[:, None]], -1)

    def slot_after(self, input_ids: Tensor) -> Tensor:
        """The slot due after each of the engine's ids, of the ids' shape."""
        slot = torch.div(input_ids, self.rows.codes, rounding_mode="floor")
        return torch.where(input_ids < self.rows.stop, (slot + 1) % TOKENS_PER_FRAME, 0)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Logits of the sampled rows, float32, of hidden states (n, hidden + 1).

        Of shape (n, rows), those off their slot at -inf if `masks_off_slot`; on a CPU of shape
        (n, codes + 1), the rows of the slots that `due` then names, and end_of_speech. Never
        rounded to the model's dtype: bfloat16 has steps of 0.125 where logits of trained speech are
        (16 to 32).
        """
        hidden, column = hidden_states[:, :-1].contiguous(), hidden_states[:, -1]
        weight = cast("Tensor", self.lm_head.weight)
        if self.due_rows_only:
            return self._due_logits(hidden, column.int().tolist(), weight)
        rows = weight[: self.rows.count]
        if rows.dtype == torch.float32:
            logits = F.linear(hidden, rows)
        else:
            logits = torch.mm(hidden, rows.t(), out_dtype=torch.float32)
        return self.mask_off_slot(logits, column) if self.masks_off_slot else logits

    def mask_off_slot(self, logits: Tensor, due: Tensor) -> Tensor:
        """`logits` (n, rows), in place at -inf off the slots `due` (n,)."""
        return logits.masked_fill_(self.off_slot[due.long()], float("-inf"))

    def _due_logits(self, hidden: Tensor, due: list[int], weight: Tensor) -> Tensor:
        codes, stop = self.rows.codes, self.rows.stop
        if not self._heads:
            from server.engine_cpu import slot_heads

            self._heads = slot_heads(weight.float(), codes)
        hidden = hidden.float()
        logits = hidden.new_full((len(due), codes + 1), float("-inf"))
        for slot in set(due):
            of_slot = [n for n, other in enumerate(due) if other == slot]
            part = hidden if len(of_slot) == len(due) else hidden[of_slot]
            logits[of_slot, :codes] = self._heads[slot](part)
            if slot == 0:
                logits[of_slot, codes] = part @ weight[stop].float()
        self.due = due
        return logits
