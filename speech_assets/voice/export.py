"""The language model as others load it: every id of the layout a row, in transformers' names.

Training keeps compact rows: none for codes that the codec never gives, but one that stands for all
of those. `expand_rows` gives each id its row, so that ids keep Orpheus' stride of 4,096 a slot and
``LlamaForCausalLM`` computes, over all ids, the very distribution that was trained.
"""

from __future__ import annotations

import torch
from torch import Tensor

from speech_assets.voice.layout import VoiceLayout

EMBEDDING = "model.embed_tokens.weight"


def expand_rows(compact: dict[str, Tensor], layout: VoiceLayout) -> dict[str, Tensor]:
    """`compact` (names of ``LlamaForCausalLM``) with an embedding of (layout.vocab_size, hidden).

    The head is tied to the embedding and not repeated.

    Raises:
        ValueError: the embedding has not the layout's compact rows.
    """
    rows = compact[EMBEDDING]
    if len(rows) != layout.compact_size:
        raise ValueError(
            f"{EMBEDDING} has {len(rows)} rows, the layout {layout.compact_size} "
            f"({layout.live_codes} live codes a slot): weights and layout.json are of two trainings"
        )
    whole = rows[torch.from_numpy(layout.row_of_id())].contiguous()
    return {**compact, EMBEDDING: whole}
