"""Fused residual units for training SNAC on a GPU: fewer passes over memory, same parameters.

A SNAC residual unit is snake, depthwise convolution (7 taps), snake, 1x1 convolution, addition. Run
operation by operation it reads and writes its activations some thirty times; a training step of a
small codec is bound by exactly that. Here the first three steps are one Triton kernel forward and
two backward (activations recomputed), and the 1x1 convolution with the addition is one batched
matrix product.

    snake(x) = x + sin(a x)^2 / (a + 1e-9)
    snake'(x) = 1 + sin(2 a x)                    (a / (a + 1e-9) taken as 1)

`fuse` changes a model's forward only: its state dict, and so `SNAC.from_pretrained`, is untouched.
"""

from __future__ import annotations

# Triton's kernels are a language of their own, and a CPU's environment has no Triton to type them.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportMissingParameterType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false
import types

import torch
import triton
import triton.language as tl
from snac.layers import NoiseBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

TAPS = 7
_BLOCK = 1024  # Samples a program handles at a time.


@triton.jit
def _snake_forward(x_ptr, a_ptr, y_ptr, channels, length, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a = tl.load(a_ptr + row % channels).to(tl.float32)
    t = tl.program_id(1) * block + tl.arange(0, block)
    x = tl.load(x_ptr + row * length + t, mask=t < length, other=0.0).to(tl.float32)
    s = tl.sin(a * x)
    y = x + s * s / (a + 1e-9)
    tl.store(y_ptr + row * length + t, y.to(y_ptr.dtype.element_ty), mask=t < length)


@triton.jit
def _snake_backward(x_ptr, a_ptr, gy_ptr, gx_ptr, ga_ptr, channels, length, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a = tl.load(a_ptr + row % channels).to(tl.float32)
    inverse = 1.0 / (a + 1e-9)
    ga = tl.zeros([block], tl.float32)
    for start in range(0, length, block):
        t = start + tl.arange(0, block)
        at = row * length + t
        x = tl.load(x_ptr + at, mask=t < length, other=0.0).to(tl.float32)
        gy = tl.load(gy_ptr + at, mask=t < length, other=0.0).to(tl.float32)
        s = tl.sin(a * x)
        s2 = tl.sin(2.0 * a * x)
        ga += gy * (x * s2 * inverse - s * s * inverse * inverse)
        tl.store(gx_ptr + at, (gy * (1.0 + s2)).to(gx_ptr.dtype.element_ty), mask=t < length)
    tl.store(ga_ptr + row, tl.sum(ga, axis=0))


@triton.jit
def _unit_forward(
    x_ptr, a1_ptr, w_ptr, b_ptr, a2_ptr, y_ptr, channels, length,
    dilation: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = row % channels
    a1 = tl.load(a1_ptr + c).to(tl.float32)
    a2 = tl.load(a2_ptr + c).to(tl.float32)
    inverse1 = 1.0 / (a1 + 1e-9)
    t = tl.program_id(1) * block + tl.arange(0, block)
    u = tl.zeros([block], tl.float32) + tl.load(b_ptr + c).to(tl.float32)
    for k in tl.static_range(7):
        at = t + (k - 3) * dilation
        inside = (at >= 0) & (at < length)
        x = tl.load(x_ptr + row * length + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.sin(a1 * x)
        u += tl.load(w_ptr + c * 7 + k).to(tl.float32) * (x + s * s * inverse1)
    s = tl.sin(a2 * u)
    y = u + s * s / (a2 + 1e-9)
    tl.store(y_ptr + row * length + t, y.to(y_ptr.dtype.element_ty), mask=t < length)


@triton.jit
def _unit_backward_conv(
    x_ptr, a1_ptr, w_ptr, b_ptr, a2_ptr, gy_ptr, gu_ptr, sums_ptr, channels, length,
    dilation: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Gradient at the convolution's output; this row's sums for taps, bias and the second snake."""
    row = tl.program_id(0).to(tl.int64)
    c = row % channels
    a1 = tl.load(a1_ptr + c).to(tl.float32)
    a2 = tl.load(a2_ptr + c).to(tl.float32)
    inverse1 = 1.0 / (a1 + 1e-9)
    inverse2 = 1.0 / (a2 + 1e-9)
    bias = tl.load(b_ptr + c).to(tl.float32)
    w0 = tl.load(w_ptr + c * 7 + 0).to(tl.float32)
    w1 = tl.load(w_ptr + c * 7 + 1).to(tl.float32)
    w2 = tl.load(w_ptr + c * 7 + 2).to(tl.float32)
    w3 = tl.load(w_ptr + c * 7 + 3).to(tl.float32)
    w4 = tl.load(w_ptr + c * 7 + 4).to(tl.float32)
    w5 = tl.load(w_ptr + c * 7 + 5).to(tl.float32)
    w6 = tl.load(w_ptr + c * 7 + 6).to(tl.float32)
    g0 = tl.zeros([block], tl.float32)
    g1 = tl.zeros([block], tl.float32)
    g2 = tl.zeros([block], tl.float32)
    g3 = tl.zeros([block], tl.float32)
    g4 = tl.zeros([block], tl.float32)
    g5 = tl.zeros([block], tl.float32)
    g6 = tl.zeros([block], tl.float32)
    gb = tl.zeros([block], tl.float32)
    ga = tl.zeros([block], tl.float32)
    for start in range(0, length, block):
        t = start + tl.arange(0, block)
        base = x_ptr + row * length + t
        x0 = tl.load(base - 3 * dilation, mask=(t >= 3 * dilation) & (t < length), other=0.0)
        x1 = tl.load(base - 2 * dilation, mask=(t >= 2 * dilation) & (t < length), other=0.0)
        x2 = tl.load(base - dilation, mask=(t >= dilation) & (t < length), other=0.0)
        x3 = tl.load(base, mask=t < length, other=0.0)
        x4 = tl.load(base + dilation, mask=t + dilation < length, other=0.0)
        x5 = tl.load(base + 2 * dilation, mask=t + 2 * dilation < length, other=0.0)
        x6 = tl.load(base + 3 * dilation, mask=t + 3 * dilation < length, other=0.0)
        x0 = x0.to(tl.float32)
        x1 = x1.to(tl.float32)
        x2 = x2.to(tl.float32)
        x3 = x3.to(tl.float32)
        x4 = x4.to(tl.float32)
        x5 = x5.to(tl.float32)
        x6 = x6.to(tl.float32)
        s0 = tl.sin(a1 * x0)
        s1 = tl.sin(a1 * x1)
        s2 = tl.sin(a1 * x2)
        s3 = tl.sin(a1 * x3)
        s4 = tl.sin(a1 * x4)
        s5 = tl.sin(a1 * x5)
        s6 = tl.sin(a1 * x6)
        v0 = x0 + s0 * s0 * inverse1
        v1 = x1 + s1 * s1 * inverse1
        v2 = x2 + s2 * s2 * inverse1
        v3 = x3 + s3 * s3 * inverse1
        v4 = x4 + s4 * s4 * inverse1
        v5 = x5 + s5 * s5 * inverse1
        v6 = x6 + s6 * s6 * inverse1
        u = bias + w0 * v0 + w1 * v1 + w2 * v2 + w3 * v3 + w4 * v4 + w5 * v5 + w6 * v6
        gy = tl.load(gy_ptr + row * length + t, mask=t < length, other=0.0).to(tl.float32)
        s = tl.sin(a2 * u)
        double = tl.sin(2.0 * a2 * u)
        ga += gy * (u * double * inverse2 - s * s * inverse2 * inverse2)
        gu = gy * (1.0 + double)
        gb += gu
        g0 += gu * v0
        g1 += gu * v1
        g2 += gu * v2
        g3 += gu * v3
        g4 += gu * v4
        g5 += gu * v5
        g6 += gu * v6
        tl.store(gu_ptr + row * length + t, gu.to(gu_ptr.dtype.element_ty), mask=t < length)
    out = sums_ptr + row * 9
    tl.store(out + 0, tl.sum(g0, axis=0))
    tl.store(out + 1, tl.sum(g1, axis=0))
    tl.store(out + 2, tl.sum(g2, axis=0))
    tl.store(out + 3, tl.sum(g3, axis=0))
    tl.store(out + 4, tl.sum(g4, axis=0))
    tl.store(out + 5, tl.sum(g5, axis=0))
    tl.store(out + 6, tl.sum(g6, axis=0))
    tl.store(out + 7, tl.sum(gb, axis=0))
    tl.store(out + 8, tl.sum(ga, axis=0))


@triton.jit
def _unit_backward_input(
    x_ptr, a1_ptr, w_ptr, gu_ptr, gx_ptr, ga_ptr, channels, length,
    dilation: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Gradient at the unit's input through the convolution; this row's sum for the first snake."""
    row = tl.program_id(0).to(tl.int64)
    c = row % channels
    a1 = tl.load(a1_ptr + c).to(tl.float32)
    inverse1 = 1.0 / (a1 + 1e-9)
    ga = tl.zeros([block], tl.float32)
    for start in range(0, length, block):
        t = start + tl.arange(0, block)
        g = tl.zeros([block], tl.float32)
        for k in tl.static_range(7):
            at = t - (k - 3) * dilation
            inside = (at >= 0) & (at < length)
            gu = tl.load(gu_ptr + row * length + at, mask=inside, other=0.0).to(tl.float32)
            g += tl.load(w_ptr + c * 7 + k).to(tl.float32) * gu
        x = tl.load(x_ptr + row * length + t, mask=t < length, other=0.0).to(tl.float32)
        s = tl.sin(a1 * x)
        double = tl.sin(2.0 * a1 * x)
        ga += g * (x * double * inverse1 - s * s * inverse1 * inverse1)
        gx = g * (1.0 + double)
        tl.store(gx_ptr + row * length + t, gx.to(gx_ptr.dtype.element_ty), mask=t < length)
    tl.store(ga_ptr + row, tl.sum(ga, axis=0))


def _block(length: int) -> int:
    return min(_BLOCK, max(32, triton.next_power_of_2(length)))


class _Snake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, alpha: Tensor) -> Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        y = torch.empty_like(x)
        block = _block(length)
        grid = (batch * channels, triton.cdiv(length, block))
        _snake_forward[grid](x, alpha, y, channels, length, block=block)
        ctx.save_for_backward(x, alpha)
        return y

    @staticmethod
    def backward(ctx, gy: Tensor) -> tuple[Tensor, Tensor]:
        x, alpha = ctx.saved_tensors
        batch, channels, length = x.shape
        gx = torch.empty_like(x)
        ga = torch.empty(batch, channels, device=x.device, dtype=torch.float32)
        _snake_backward[(batch * channels,)](
            x, alpha, gy.contiguous(), gx, ga, channels, length, block=_block(length)
        )
        return gx, ga.sum(0).view_as(alpha)


class _SnakeConvSnake(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, x: Tensor, a1: Tensor, weight: Tensor, bias: Tensor, a2: Tensor, dilation: int
    ) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        batch, channels, length = x.shape
        y = torch.empty_like(x)
        block = _block(length)
        grid = (batch * channels, triton.cdiv(length, block))
        _unit_forward[grid](
            x, a1, weight, bias, a2, y, channels, length, dilation=dilation, block=block
        )
        ctx.save_for_backward(x, a1, weight, bias, a2)
        ctx.dilation = dilation
        return y

    @staticmethod
    def backward(ctx, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, a1, weight, bias, a2 = ctx.saved_tensors
        batch, channels, length = x.shape
        rows, block = batch * channels, _block(length)
        gu, gx = torch.empty_like(x), torch.empty_like(x)
        sums = torch.empty(batch, channels, TAPS + 2, device=x.device, dtype=torch.float32)
        ga1 = torch.empty(batch, channels, device=x.device, dtype=torch.float32)
        _unit_backward_conv[(rows,)](
            x, a1, weight, bias, a2, gy.contiguous(), gu, sums, channels, length,
            dilation=ctx.dilation, block=block,
        )  # fmt: skip
        _unit_backward_input[(rows,)](
            x, a1, weight, gu, gx, ga1, channels, length, dilation=ctx.dilation, block=block
        )
        sums = sums.sum(0)
        return (
            gx,
            ga1.sum(0).view_as(a1),
            sums[:, :TAPS].reshape(weight.shape),
            sums[:, TAPS].contiguous(),
            sums[:, TAPS + 1].reshape(a2.shape),
            None,
        )


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """Snake of x (batch, channels, samples) with one alpha (1, channels, 1) a channel."""
    return _Snake.apply(x, alpha)


def residual_unit(unit: ResidualUnit, x: Tensor) -> Tensor:
    """What `unit` (depthwise, 7 taps) computes of x (batch, channels, samples), fused."""
    first, depthwise, second, pointwise = unit.block
    y = _SnakeConvSnake.apply(
        x, first.alpha, depthwise.weight, depthwise.bias, second.alpha, depthwise.dilation[0]
    )
    weight = pointwise.weight[..., 0].to(y.dtype).expand(len(x), -1, -1)
    return torch.baddbmm(x + pointwise.bias.to(x.dtype)[:, None], weight, y)


def _noise_block(block: NoiseBlock, x: Tensor) -> Tensor:
    noise = torch.randn(len(x), 1, x.shape[-1], device=x.device, dtype=x.dtype)
    weight = block.linear.weight[..., 0].to(x.dtype).expand(len(x), -1, -1)
    return torch.baddbmm(x, weight, noise * x)


def fuse(model: nn.Module) -> nn.Module:
    """`model` with every snake, noise block and depthwise residual unit running fused, in place."""
    for module in model.modules():
        if (
            isinstance(module, ResidualUnit)
            and module.block[1].groups == module.block[1].in_channels
        ):
            module.forward = types.MethodType(residual_unit, module)
        elif isinstance(module, Snake1d):
            module.forward = types.MethodType(lambda self, x: snake(x, self.alpha), module)
        elif isinstance(module, NoiseBlock):
            module.forward = types.MethodType(_noise_block, module)
    return model
