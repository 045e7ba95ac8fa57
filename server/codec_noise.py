"""The codec's noise as a function of (seed, layer, absolute position).

SNAC's decoder adds fresh noise at each call, so that overlapping, repeated or batched decodes of
one utterance would differ. Here a position's noise is hashed from its coordinates with integers
alone and looked up in a table of the normal distribution's quantiles: no state, and the same bits
on a CPU and on a GPU, alone and in a batch.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

_MASK = 0xFFFF_FFFF
_TABLE_BITS = 16
LAYER_STEP = 0x9E37_79B9  # 2^32 / golden ratio: spreads small layer numbers over all bits


def quantile_table(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Quantiles of the normal distribution at the 65,536 midpoints, of shape (65,536,).

    Made in float64 on the CPU whatever the device, so that every device looks up the same numbers.
    """
    count = 1 << _TABLE_BITS
    midpoints = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return torch.special.ndtri(midpoints).to(device, dtype)


def fold_seed(seed: int) -> int:
    """A seed of any size as an unsigned 32-bit number."""
    return zlib.crc32(str(seed).encode())


def position_noise(table: Tensor, seeds: Tensor, layer: int, positions: Tensor) -> Tensor:
    """Noise of shape (rows, positions), of the table's dtype.

    Args:
        table: from `quantile_table`, on the device.
        seeds: int64 of shape (rows, 1), unsigned 32-bit values.
        layer: number of the noise layer, from 0.
        positions: int64 of shape (rows, positions), counted from the utterance's start at the
            layer's own rate. Negative ones (before the utterance) give noise like any other.
    """
    keys = _mix((seeds + layer * LAYER_STEP) & _MASK)
    # Mixed before the key goes in: else two keys that differ in low bits would give one another's
    # noise in another order.
    bits = _mix(_mix(positions & _MASK) ^ keys)
    return table[bits >> (32 - _TABLE_BITS)]


def _mix(x: Tensor) -> Tensor:
    """A bijection of unsigned 32-bit values (held in int64) in which each input bit moves all.

    The constants are Christopher Wellons' (hash-prospector, [16 21f0aaad 15 735a2d97 15]); both are
    below 2^31, so that their products with 32-bit values fit int64.
    """
    x = ((x ^ (x >> 16)) * 0x21F0_AAAD) & _MASK
    x = ((x ^ (x >> 15)) * 0x735A_2D97) & _MASK
    return x ^ (x >> 15)
