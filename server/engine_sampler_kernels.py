"""The Triton kernel that draws an id a row from the due slot's columns of the audio head's logits.

A program is a row: penalty, temperature, top-p and draw are in its registers, and of the row's 7
slots it reads one (16 KiB of 112 at 4,096 codes). Nothing is sorted: top-p's bound is bisected on
the bits of float32 weights, in 30 sums.

This module is imported only where Triton is: on CUDA, or interpreted (TRITON_INTERPRET=1) in tests.
"""

from __future__ import annotations

# Triton's kernels are a language of their own, and a CPU's environment has no Triton to type them.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportMissingParameterType=false
import triton
import triton.language as tl

LEAST_UNIFORM = tl.constexpr(4.6566127342e-10)  # Of tl.rand, above 0.
BITS_OF_ONE = tl.constexpr(0x3F800000)
BISECTIONS = tl.constexpr(30)  # BITS_OF_ONE < 2^30.


@triton.jit
def draw(
    ids_ptr, logits_ptr, logits_stride, requests_ptr, places_ptr, last_ids_ptr, positions_ptr,
    temperature_ptr, top_p_ptr, penalty_ptr, seeds_ptr,
    prompt_bits_ptr, prompt_bits_stride, counts_ptr, counts_stride,
    CODES: tl.constexpr, FRAME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The engine's id, int64, drawn for each row of logits (rows, FRAME * CODES + 1), float32.

    `requests` is a row's place in the states behind it, `places` its last token's in `last_ids` and
    `positions`. Columns off the due slot may hold anything: they are not read.
    """
    row = tl.program_id(0).to(tl.int64)
    request = tl.load(requests_ptr + row).to(tl.int64)
    place = tl.load(places_ptr + row)
    last = tl.load(last_ids_ptr + place).to(tl.int32)
    stop = tl.full([], FRAME * CODES, tl.int32)
    due = tl.where(last < stop, (last // CODES + 1) % FRAME, 0)
    ends = due == 0  # Speech ends between frames only.
    code = tl.arange(0, BLOCK)
    real = code < CODES
    columns = due * CODES + code
    row_ptr = logits_ptr + row * logits_stride
    scores = tl.load(row_ptr + columns, mask=real, other=float("-inf"))
    end = tl.load(row_ptr + stop, mask=ends, other=float("-inf"))
    penalty = tl.load(penalty_ptr + request)
    if penalty != 1.0:
        bits_ptr = prompt_bits_ptr + request * prompt_bits_stride
        seen_ptr = counts_ptr + request * counts_stride
        scores = penalized(scores, columns, real, bits_ptr, seen_ptr, penalty)
        end = penalized(end, stop, ends, bits_ptr, seen_ptr, penalty)
    temperature = tl.load(temperature_ptr + request)
    if temperature != 0.0:
        scores = scores / temperature
        end = end / temperature
        best = tl.maximum(tl.max(scores, axis=0), end)
        weights = weight(scores, best)
        end_weight = weight(end, best)
        least = least_kept(weights, end_weight, tl.load(top_p_ptr + request))
        key = tl.randint(tl.load(seeds_ptr + request), tl.load(positions_ptr + place))
        scores += gumbel(key, columns)
        end += gumbel(key, stop)
        scores = tl.where(weights.to(tl.int32, bitcast=True) >= least, scores, float("-inf"))
        end = tl.where(end_weight.to(tl.int32, bitcast=True) >= least, end, float("-inf"))
    value, first = tl.max(scores, axis=0, return_indices=True)
    drawn = tl.where(end > value, stop, due * CODES + first)
    tl.store(ids_ptr + row, drawn.to(tl.int64))


@triton.jit
def penalized(scores, columns, valid, prompt_bits_ptr, counts_ptr, penalty):
    """`scores` with vLLM's repetition penalty (and its rounding) where prompt or output has the id.

    `prompt_bits` has a bit, `counts` an int32 a column of all logits.
    """
    words = tl.load(prompt_bits_ptr + columns // 32, mask=valid, other=0)
    counts = tl.load(counts_ptr + columns, mask=valid, other=0)
    seen = (((words >> (columns % 32)) & 1) != 0) | (counts > 0)
    scale = tl.where(seen, penalty, 1.0)
    return scores * tl.where(scores > 0, 1.0 / scale, scale)


@triton.jit
def weight(scores, best):
    """exp(scores - best), in 0..1 and 0 where nothing can be drawn, also if that is everywhere."""
    return tl.where(scores > float("-inf"), tl.exp(scores - best), 0.0)


@triton.jit
def least_kept(weights, end_weight, top_p):
    """Bits, as int32, of the least weight that top-p keeps; weights from 0 to 1, bits in order.

    A weight is kept if those above it hold less than `top_p` of all: the smallest set of the
    likeliest that holds it, and all that tie with the last of them. A float32 sum in one order is
    monotone in each term, so the bisection is exact for these sums; they are within 1e-6 of true.
    """
    target = top_p * (tl.sum(weights, axis=0) + end_weight)
    low = tl.full([], 0, tl.int32)
    high = tl.full([], BITS_OF_ONE, tl.int32)
    for _ in range(BISECTIONS):
        middle = (low + high) >> 1
        bound = middle.to(tl.float32, bitcast=True)
        above = tl.sum(tl.where(weights > bound, weights, 0.0), axis=0)
        above += tl.where(end_weight > bound, end_weight, 0.0)
        kept = above < target
        high = tl.where(kept, middle, high)
        low = tl.where(kept, low, middle + 1)
    # All of it is all: in float32, weights below 1e-7 are lost in the sum of those above them.
    return tl.where(top_p < 1.0, low, 0)


@triton.jit
def gumbel(key, columns):
    """Noise with which the largest of log weights is a draw by them: that of vLLM 0.26's sampler.

    -log(-log1p(-u)) of a uniform u from the column; its large values are at small u, which float32
    resolves. log1p as Kahan gives it, for the interpreter has no libdevice.
    """
    u = tl.maximum(tl.rand(key, columns), LEAST_UNIFORM)
    rounded = 1.0 - u
    lost = 1.0 - rounded  # What is left of u in `rounded`.
    near = lost == 0.0
    log1p = tl.log(rounded) * (u / tl.where(near, 1.0, lost))
    return -tl.log(tl.where(near, u, -log1p))
