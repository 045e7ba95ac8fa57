"""Kernels that show parts of the fused sampler's: imported only where Triton is."""

from __future__ import annotations

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
import triton
import triton.language as tl

from server import engine_sampler_kernels as kernels


@triton.jit
def keep(scores_ptr, kept_ptr, top_p, CODES: tl.constexpr, BLOCK: tl.constexpr):
    """What top-p keeps of CODES columns and the end, int32: 0 or 1."""
    code = tl.arange(0, BLOCK)
    scores = tl.load(scores_ptr + code, mask=code < CODES, other=float("-inf"))
    end = tl.load(scores_ptr + CODES)
    best = tl.maximum(tl.max(scores, axis=0), end)
    weights = kernels.weight(scores, best)
    end_weight = kernels.weight(end, best)
    least = kernels.least_kept(weights, end_weight, top_p)
    kept = (weights.to(tl.int32, bitcast=True) >= least) & (weights > 0)
    end_kept = (end_weight.to(tl.int32, bitcast=True) >= least) & (end_weight > 0)
    tl.store(kept_ptr + code, kept.to(tl.int32), mask=code < CODES)
    tl.store(kept_ptr + CODES, end_kept.to(tl.int32))


@triton.jit
def penalize(scores_ptr, bits_ptr, counts_ptr, penalty, FIRST: tl.constexpr):
    """Penalties, in place, of 128 columns."""
    columns = FIRST + tl.arange(0, 128)
    scores = tl.load(scores_ptr + columns)
    valid = columns < FIRST + 128
    after = kernels.penalized(scores, columns, valid, bits_ptr, counts_ptr, penalty)
    tl.store(scores_ptr + columns, after)


@triton.jit
def noise(noise_ptr, uniform_ptr, key, COUNT: tl.constexpr):
    """The noise of COUNT columns, and the uniform numbers that it is made of."""
    columns = tl.arange(0, COUNT)
    tl.store(noise_ptr + columns, kernels.gumbel(key, columns))
    tl.store(uniform_ptr + columns, tl.rand(key, columns))
