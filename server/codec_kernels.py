"""Triton kernels of the codec's decoder: halves of a residual unit, upsampling, the last layer.

Decoding is bound by memory: the arithmetic of a frame is microseconds, but a layer at a time its
activations are read and written a hundred times. Tensors are channels-last, (rows, positions,
channels), so that a position's channels lie together; `y` is always what the next convolution sees:
after its Snake, zero outside the row's utterance. Sums and Snake are float32, storage is half
precision.

This module is imported only where Triton is: on CUDA, or interpreted (TRITON_INTERPRET=1) in tests.
"""

from __future__ import annotations

# Triton's kernels are a language of their own, and a CPU's environment has no Triton to type them.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportMissingParameterType=false
import triton
import triton.language as tl

TAPS = tl.constexpr(7)


@triton.jit
def _snake(z, alpha, scale):
    """z + sin(alpha z)^2 * scale. sin^2 has period pi: reduced to +-pi/2, then its Taylor series,
    whose error there is 2e-6, below half precision's by two orders."""
    w = z * alpha
    turns = tl.floor(w * 0.3183098861837907 + 0.5)
    r = w - turns * 3.140625 - turns * 9.67653589793e-4  # Pi in two parts: no bits are lost.
    u = r * r
    s = 4.0 / 42567525.0
    s = s * u - 2.0 / 467775.0
    s = s * u + 2.0 / 14175.0
    s = s * u - 1.0 / 315.0
    s = s * u + 2.0 / 45.0
    s = s * u - 1.0 / 3.0
    s = s * u + 1.0
    return z + s * u * scale


@triton.jit
def _mix(x):
    """codec_noise._mix, in 32 bits that wrap."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def depthwise(
    y_ptr, h_ptr, taps_ptr, taps_bias_ptr, alpha_ptr, scale_ptr, given, output, offset,
    CHANNELS: tl.constexpr, DILATION: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """snake(depthwise(y)): the first half of a residual unit. Taps: (7, channels).

    `given` and `output` are positions of input and output, `offset` the input position of output 0.
    """
    row = tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    valid = t < output
    h = tl.zeros((BLOCK, COLUMNS), tl.float32) + tl.load(taps_bias_ptr + c)[None, :]
    for k in tl.static_range(TAPS):
        at = t + offset + (k - 3) * DILATION
        seen = tl.load(
            y_ptr + (row * given + at)[:, None] * CHANNELS + c[None, :],
            mask=valid[:, None], other=0.0,
        )  # fmt: skip
        h += seen.to(tl.float32) * tl.load(taps_ptr + k * CHANNELS + c)[None, :]
    h = _snake(h, tl.load(alpha_ptr + c)[None, :], tl.load(scale_ptr + c)[None, :])
    place = (row * output + t)[:, None] * CHANNELS + c[None, :]
    tl.store(h_ptr + place, h.to(h_ptr.dtype.element_ty), mask=valid[:, None])


@triton.jit
def pointwise(
    h_ptr, x_ptr, x_out_ptr, y_out_ptr, weight_ptr, bias_ptr, next_alpha_ptr, next_scale_ptr,
    starts_ptr, ends_ptr, row_stride, given, output, offset, low, rate,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    KEEP_X: tl.constexpr,
):  # fmt: skip
    """x + h * weight, and that after the next Snake: the second half of a residual unit.

    `low` is the relative position of output 0 at `rate` a latent. Weight: (channels in, out).
    """
    row = tl.program_id(2).to(tl.int64)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = t < output
    z = tl.zeros((BLOCK, COLUMNS), tl.float32)
    for k0 in tl.range(0, CHANNELS, DEPTH):
        k = k0 + tl.arange(0, DEPTH)
        a = tl.load(
            h_ptr + (row * output + t)[:, None] * CHANNELS + k[None, :],
            mask=valid[:, None], other=0.0,
        )  # fmt: skip
        z = tl.dot(a, tl.load(weight_ptr + k[:, None] * CHANNELS + n[None, :]), z)
    z += tl.load(bias_ptr + n)[None, :]
    z += tl.load(
        x_ptr + (row * given + t + offset)[:, None] * CHANNELS + n[None, :],
        mask=valid[:, None], other=0.0,
    ).to(tl.float32)  # fmt: skip
    place = (row * output + t)[:, None] * CHANNELS + n[None, :]
    if KEEP_X:
        tl.store(x_out_ptr + place, z.to(x_out_ptr.dtype.element_ty), mask=valid[:, None])
    z = _snake(z, tl.load(next_alpha_ptr + n)[None, :], tl.load(next_scale_ptr + n)[None, :])
    position = tl.load(starts_ptr + row * row_stride) * rate + low + t
    inside = (position >= 0) & (position < tl.load(ends_ptr + row * row_stride) * rate)
    z = tl.where(inside[:, None], z, 0.0)
    tl.store(y_out_ptr + place, z.to(y_out_ptr.dtype.element_ty), mask=valid[:, None])


@triton.jit
def upsampling(
    y_ptr, x_out_ptr, y_out_ptr,
    weight_ptr, bias_ptr, noise_weight_ptr, table_ptr, next_alpha_ptr, next_scale_ptr,
    starts_ptr, ends_ptr, seeds_ptr, row_stride,
    given, given_low, output, output_low, first, rate, noise_key,
    INPUT: tl.constexpr, OUTPUT: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK: tl.constexpr, DEPTH: tl.constexpr, NOISE: tl.constexpr,
):  # fmt: skip
    """Transposed convolution of kernel 2 * stride, the noise layer, and the first unit's Snake.

    A program makes one phase of the stride: output position t * stride + phase - padding depends on
    input t by tap `phase` and on t - 1 by tap `phase + stride`. Weight: (taps, in, out).
    """
    row = tl.program_id(2).to(tl.int64)
    phase = tl.program_id(1)
    t = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, OUTPUT)
    at = t - given_low
    here, before = (at >= 0) & (at < given), (at >= 1) & (at <= given)
    acc = tl.zeros((BLOCK, OUTPUT), tl.float32)
    for k0 in range(0, INPUT, DEPTH):
        k = k0 + tl.arange(0, DEPTH)
        place = (row * given + at)[:, None] * INPUT + k[None, :]
        tap = (phase * INPUT + k)[:, None] * OUTPUT + n[None, :]
        seen = tl.load(y_ptr + place, mask=here[:, None], other=0.0)
        acc = tl.dot(seen, tl.load(weight_ptr + tap), acc)
        seen = tl.load(y_ptr + place - INPUT, mask=before[:, None], other=0.0)
        acc = tl.dot(seen, tl.load(weight_ptr + tap + STRIDE * INPUT * OUTPUT), acc)
    acc += tl.load(bias_ptr + n)[None, :]
    q = t * STRIDE + phase - PADDING
    position = tl.load(starts_ptr + row * row_stride) * rate + q
    if NOISE:
        u = acc.to(x_out_ptr.dtype.element_ty)
        k = tl.arange(0, OUTPUT)
        w = tl.load(noise_weight_ptr + k[:, None] * OUTPUT + n[None, :])
        seed = tl.load(seeds_ptr + row * row_stride).to(tl.uint32)
        key = _mix(seed + noise_key.to(tl.uint32))
        bits = _mix(_mix(position.to(tl.uint32)) ^ key) >> 16
        noise = tl.load(table_ptr + bits).to(tl.float32)
        acc += tl.dot(u, w) * noise[:, None]
    index = q - output_low
    valid = (index >= 0) & (index < output)
    place = (row * output + index)[:, None] * OUTPUT + n[None, :]
    tl.store(x_out_ptr + place, acc.to(x_out_ptr.dtype.element_ty), mask=valid[:, None])
    z = _snake(acc, tl.load(next_alpha_ptr + n)[None, :], tl.load(next_scale_ptr + n)[None, :])
    inside = (position >= 0) & (position < tl.load(ends_ptr + row * row_stride) * rate)
    z = tl.where(inside[:, None], z, 0.0)
    tl.store(y_out_ptr + place, z.to(y_out_ptr.dtype.element_ty), mask=valid[:, None])


@triton.jit
def last_convolution(
    y_ptr, audio_ptr, taps_ptr, bias_ptr, given, output, offset,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The convolution to one channel, 7 taps, float32. Taps: (7, channels)."""
    row = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, CHANNELS)
    valid = t < output
    acc = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for k in tl.static_range(TAPS):
        seen = tl.load(
            y_ptr + (row * given + t + offset + k - 3)[:, None] * CHANNELS + c[None, :],
            mask=valid[:, None], other=0.0,
        )  # fmt: skip
        acc += seen.to(tl.float32) * tl.load(taps_ptr + k * CHANNELS + c)[None, :]
    audio = tl.sum(acc, axis=1) + tl.load(bias_ptr)
    tl.store(audio_ptr + row * output + t, audio, mask=valid)
