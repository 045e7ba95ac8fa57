"""Frames, slots and SNAC levels as tensors and arrays (the server's `frames` owns the rule)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

CODEBOOK_SIZE = 4_096
TOKENS_PER_FRAME = 7
SAMPLES_PER_FRAME = 2_048
SLOTS_OF_LEVEL = ((0,), (1, 4), (2, 3, 5, 6))


def slots_from_levels(levels: Sequence[Tensor]) -> Tensor:
    """Codes in slot order (batch, frames, 7) from SNAC's levels: frames, 2 and 4 times as many."""
    batch, frames = levels[0].shape
    out = torch.empty(
        batch, frames, TOKENS_PER_FRAME, dtype=levels[0].dtype, device=levels[0].device
    )
    for level, slots in zip(levels, SLOTS_OF_LEVEL, strict=True):
        out[..., list(slots)] = level.view(batch, frames, len(slots))
    return out


def levels_from_slots(codes: Tensor) -> list[Tensor]:
    """SNAC's levels from codes in slot order (batch, frames, 7)."""
    return [codes[..., list(slots)].reshape(len(codes), -1) for slots in SLOTS_OF_LEVEL]
