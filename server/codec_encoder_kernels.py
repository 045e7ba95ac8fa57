"""Triton kernels of the codec's encoder: first convolution, residual unit, downsampling, the last.

Encoding is bound by memory: a layer at a time, the activations of a second of audio are read and
written a hundred times. Here a residual unit is one pass and a downsampling with its Snake another.
Tensors are channels-last, (clips, positions, channels): a position's channels lie together, and the
input of an output of a strided convolution is one run of memory. `y` is always what the next
convolution sees: after its Snake, zero beyond the clip's own end; `x` is the sum that residual
units add to. All sums are float32.

A product with weights is done as PRODUCT says: "ieee", "tf32", "tf32x3" and "bf16x6" are Triton's;
"half" rounds to the weights' own dtype; "fp16x3" splits each factor into two float16, whose 22 bits
are nearly float32's 24, at half of tf32x3's cost on a Hopper GPU.

This module is imported only where Triton is: on CUDA, or interpreted (TRITON_INTERPRET=1) in tests.
"""

from __future__ import annotations

# Triton's kernels are a language of their own, and a CPU's environment has no Triton to type them.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportMissingParameterType=false
import triton
import triton.language as tl

TAPS = tl.constexpr(7)
# Lengths differ from batch to batch; without this each that is a multiple of 16 were another build.
_LENGTHS = ["length", "given", "output", "rate", "dilation"]


@triton.jit
def _snake(z, alpha, scale):
    """z + sin(alpha z)^2 * scale, to float32: reduced to +-pi/2, then a minimax polynomial whose
    own error is 5e-9."""
    w = z * alpha
    turns = tl.floor(w * 0.3183098861837907 + 0.5)
    # Pi in three parts: no bits are lost.
    r = w - turns * 3.140625
    r = r - turns * 9.67025756835938e-4
    r = r - turns * 6.277114152908325e-7
    u = r * r
    p = 2.600053124405251e-06 * u - 0.0001980661433087898
    p = p * u + 0.008333017276980596
    p = p * u - 0.16666657095747436
    s = r + r * u * p
    return z + s * s * scale


@triton.jit
def _product(a, weight_ptr, low_ptr, place, known, acc, PRODUCT: tl.constexpr):
    """acc + a * weight, with the weight's other half at `low_ptr` where it is split."""
    weight = tl.load(weight_ptr + place, mask=known, other=0.0)
    if PRODUCT == "fp16x3":
        high = a.to(tl.float16)
        low = (a - high.to(tl.float32)).to(tl.float16)
        weight_low = tl.load(low_ptr + place, mask=known, other=0.0)
        acc = tl.dot(low, weight, acc)
        acc = tl.dot(high, weight_low, acc)
        acc = tl.dot(high, weight, acc)
    elif PRODUCT == "half":
        acc = tl.dot(a.to(weight.dtype), weight, acc)
    else:
        acc = tl.dot(a.to(tl.float32), weight, acc, input_precision=PRODUCT)
    return acc


@triton.jit
def _store_seen(
    y_out_ptr, place, z, alpha_ptr, scale_ptr, n, known, inside, valid, SNAKE: tl.constexpr
):
    """What the next convolution sees of z: after its Snake, if any, zero beyond the clip's end."""
    if SNAKE:
        alpha = tl.load(alpha_ptr + n, mask=known, other=0.0)[None, :]
        z = _snake(z, alpha, tl.load(scale_ptr + n, mask=known, other=0.0)[None, :])
    z = tl.where(inside[:, None], z, 0.0)
    mask = valid[:, None] & known[None, :]
    tl.store(y_out_ptr + place, z.to(y_out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=_LENGTHS)
def first_convolution(
    audio_ptr, x_out_ptr, y_out_ptr, taps_ptr, bias_ptr, alpha_ptr, scale_ptr, ends_ptr,
    length, rate,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The convolution of audio to CHANNELS, 7 taps, and the first unit's Snake. Taps: (7, C)."""
    row = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BLOCK
    i, n = tl.arange(0, BLOCK), tl.arange(0, COLUMNS)
    known = n < CHANNELS
    t = start + i
    valid = t < length
    z = tl.zeros((BLOCK, COLUMNS), tl.float32)
    z += tl.load(bias_ptr + n, mask=known, other=0.0)[None, :]
    for k in tl.static_range(TAPS):
        at = t + k - 3
        heard = tl.load(audio_ptr + row * length + at, mask=(at >= 0) & (at < length), other=0.0)
        z += heard[:, None] * tl.load(taps_ptr + k * CHANNELS + n, mask=known, other=0.0)[None, :]
    base = (row * length + start) * CHANNELS
    place = i[:, None] * CHANNELS + n[None, :]
    mask = valid[:, None] & known[None, :]
    tl.store(x_out_ptr + base + place, z.to(x_out_ptr.dtype.element_ty), mask=mask)
    inside = t < tl.load(ends_ptr + row) * rate
    _store_seen(y_out_ptr + base, place, z, alpha_ptr, scale_ptr, n, known, inside, valid, True)


@triton.jit(do_not_specialize=_LENGTHS)
def residual_unit(
    y_ptr, x_ptr, y_out_ptr, taps_ptr, taps_bias_ptr, alpha_ptr, scale_ptr,
    weight_ptr, low_ptr, bias_ptr, unscale, next_alpha_ptr, next_scale_ptr, ends_ptr,
    length, rate, dilation,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    PRODUCT: tl.constexpr, KEEP_X: tl.constexpr,
):  # fmt: skip
    """x + pointwise(snake(depthwise(y))), stored over x, and that after the next Snake.

    Taps: (7, channels); weight: (channels in, out), as many times too large as `unscale` says.
    """
    row = tl.program_id(1).to(tl.int64)
    parts = (CHANNELS + COLUMNS - 1) // COLUMNS
    start = (tl.program_id(0) // parts) * BLOCK
    i = tl.arange(0, BLOCK)
    n = (tl.program_id(0) % parts) * COLUMNS + tl.arange(0, COLUMNS)
    known_n = n < CHANNELS
    t = start + i
    base = (row * length + start) * CHANNELS
    z = tl.zeros((BLOCK, COLUMNS), tl.float32)
    for c0 in tl.range(0, CHANNELS, DEPTH, num_stages=1):
        c = c0 + tl.arange(0, DEPTH)
        known = c < CHANNELS
        h = tl.zeros((BLOCK, DEPTH), tl.float32)
        h += tl.load(taps_bias_ptr + c, mask=known, other=0.0)[None, :]
        # No static_range: its sums would be made in the product's layout, each load brought there
        # through shared memory. The loop is unrolled all the same.
        for k in tl.range(0, TAPS, num_stages=1):
            shift = (k - 3) * dilation
            within = (t + shift >= 0) & (t + shift < length)
            seen = tl.load(
                y_ptr + base + ((i + shift)[:, None] * CHANNELS + c[None, :]),
                mask=within[:, None] & known[None, :], other=0.0,
            )  # fmt: skip
            tap = tl.load(taps_ptr + k * CHANNELS + c, mask=known, other=0.0)
            h += seen.to(tl.float32) * tap[None, :]
        alpha = tl.load(alpha_ptr + c, mask=known, other=0.0)[None, :]
        h = _snake(h, alpha, tl.load(scale_ptr + c, mask=known, other=0.0)[None, :])
        place = c[:, None] * CHANNELS + n[None, :]
        both = known[:, None] & known_n[None, :]
        z = _product(h, weight_ptr, low_ptr, place, both, z, PRODUCT)
    z = z * unscale + tl.load(bias_ptr + n, mask=known_n, other=0.0)[None, :]
    valid = t < length
    place = i[:, None] * CHANNELS + n[None, :]
    mask = valid[:, None] & known_n[None, :]
    z += tl.load(x_ptr + base + place, mask=mask, other=0.0).to(tl.float32)
    if KEEP_X:
        tl.store(x_ptr + base + place, z.to(x_ptr.dtype.element_ty), mask=mask)
    inside = t < tl.load(ends_ptr + row) * rate
    _store_seen(
        y_out_ptr + base, place, z, next_alpha_ptr, next_scale_ptr, n, known_n, inside, valid, True
    )


@triton.jit(do_not_specialize=_LENGTHS)
def downsampling(
    y_ptr, x_out_ptr, y_out_ptr, weight_ptr, low_ptr, bias_ptr, unscale,
    next_alpha_ptr, next_scale_ptr, ends_ptr, given, output, rate,
    INPUT: tl.constexpr, OUTPUT: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    PRODUCT: tl.constexpr, SNAKE: tl.constexpr,
):  # fmt: skip
    """The strided convolution of kernel 2 * stride, and the next Snake, as one product.

    Channels-last, the 2 * STRIDE * INPUT values that an output sees are one run of memory, and the
    next output's begins STRIDE * INPUT later. Weight: (2 * stride * in, out). Without SNAKE, after
    the last block, nothing adds to its output: x is not stored.
    """
    row = tl.program_id(1).to(tl.int64)
    parts = (OUTPUT + COLUMNS - 1) // COLUMNS
    start = (tl.program_id(0) // parts) * BLOCK
    i = tl.arange(0, BLOCK)
    n = (tl.program_id(0) % parts) * COLUMNS + tl.arange(0, COLUMNS)
    known = n < OUTPUT
    # From the run's first position on; what lies outside of the row is zero.
    first = start.to(tl.int64) * STRIDE - PADDING
    whole: tl.constexpr = (BLOCK + 1) * STRIDE * INPUT
    low = tl.minimum(tl.maximum(-first, 0) * INPUT, whole).to(tl.int32)
    high = tl.minimum((given - first) * INPUT, whole).to(tl.int32)
    run_ptr = y_ptr + (row * given + first) * INPUT
    z = tl.zeros((BLOCK, COLUMNS), tl.float32)
    for k0 in tl.range(0, 2 * STRIDE * INPUT, DEPTH, num_stages=STAGES):
        k = k0 + tl.arange(0, DEPTH)
        at = i[:, None] * (STRIDE * INPUT) + k[None, :]
        within = (at >= low) & (at < high)
        if (2 * STRIDE * INPUT) % DEPTH:
            within = within & (k < 2 * STRIDE * INPUT)[None, :]
        seen = tl.load(run_ptr + at, mask=within, other=0.0)
        place = k[:, None] * OUTPUT + n[None, :]
        both = (k < 2 * STRIDE * INPUT)[:, None] & known[None, :]
        z = _product(seen, weight_ptr, low_ptr, place, both, z, PRODUCT)
    z = z * unscale + tl.load(bias_ptr + n, mask=known, other=0.0)[None, :]
    t = start + i
    valid = t < output
    base = (row * output + start) * OUTPUT
    place = i[:, None] * OUTPUT + n[None, :]
    if SNAKE:
        mask = valid[:, None] & known[None, :]
        tl.store(x_out_ptr + base + place, z.to(x_out_ptr.dtype.element_ty), mask=mask)
    inside = t < tl.load(ends_ptr + row) * rate
    _store_seen(
        y_out_ptr + base, place, z, next_alpha_ptr, next_scale_ptr, n, known, inside, valid, SNAKE
    )


@triton.jit(do_not_specialize=_LENGTHS)
def last_convolution(
    y_ptr, latents_ptr, taps_ptr, bias_ptr, length,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The depthwise convolution, 7 taps, to latents (clips, channels, latents), float32."""
    row = tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    known = c < CHANNELS
    z = tl.zeros((BLOCK, COLUMNS), tl.float32)
    z += tl.load(bias_ptr + c, mask=known, other=0.0)[None, :]
    for k in tl.static_range(TAPS):
        at = t + k - 3
        seen = tl.load(
            y_ptr + row * length * CHANNELS + (at[:, None] * CHANNELS + c[None, :]),
            mask=((at >= 0) & (at < length))[:, None] & known[None, :], other=0.0,
        )  # fmt: skip
        tap = tl.load(taps_ptr + k * CHANNELS + c, mask=known, other=0.0)
        z += seen.to(tl.float32) * tap[None, :]
    place = row * CHANNELS * length + (c[None, :] * length + t[:, None])
    tl.store(latents_ptr + place, z, mask=(t < length)[:, None] & known[None, :])
