"""The encoder by fused kernels, on CUDA: a residual unit is one pass, a downsampling another.

Same masks as `codec_encoder`'s eager path, inside the kernels. Activations are float32 unless a
half precision is asked for.
"""

from __future__ import annotations

# Kernels are launched by an index, which a CPU's environment, without Triton, cannot type.
# pyright: reportIndexIssue=false
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
from snac.layers import EncoderBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

from server import codec_encoder_kernels as kernels
from server import frames
from server.codec_encoder_shapes import Product, Shape, shape_of
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.codec import Codec

_LARGEST_WEIGHT = 256.0  # A split weight's smaller half must not be a subnormal float16.


@dataclass(frozen=True, slots=True)
class _Snake:
    """A Snake's alpha and 1 / alpha, float32 of shape (channels,)."""

    alpha: Tensor
    scale: Tensor

    @classmethod
    def of(cls, layer: nn.Module) -> _Snake:
        alpha = cast("Snake1d", layer).alpha.float().flatten()
        return cls(alpha, (alpha + 1e-9).reciprocal())


@dataclass(frozen=True, slots=True)
class _Weight:
    """A product's weight (in, out), divided by `unscale`, and its smaller half where split."""

    high: Tensor
    low: Tensor
    unscale: float

    @classmethod
    def of(cls, weight: Tensor, product: Product, dtype: torch.dtype) -> _Weight:
        weight = weight.float().contiguous()
        if product == "half":
            half = weight.to(dtype)
            return cls(half, half, 1.0)
        if product != "fp16x3":
            return cls(weight, weight, 1.0)
        largest = max(float(weight.abs().max()), 1e-20)
        scale = 2.0 ** math.floor(math.log2(_LARGEST_WEIGHT / largest))
        high = (weight * scale).half()
        return cls(high, (weight * scale - high.float()).half(), 1 / scale)


@dataclass(frozen=True, slots=True)
class _Unit:
    channels: int
    dilation: int
    taps: Tensor  # (7, channels)
    taps_bias: Tensor
    snake: _Snake
    weight: _Weight
    bias: Tensor
    following: _Snake
    is_last: bool  # Of its block: what follows sees the Snake of its sum alone.


@dataclass(frozen=True, slots=True)
class _Down:
    input: int
    output: int
    stride: int
    weight: _Weight  # (2 * stride * input, output)
    bias: Tensor
    following: _Snake | None


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer with the channels that name its shape, those of its input, and its input's
    positions a frame."""

    kind: Literal["residual", "downsampling"]
    channels: int
    input: int
    rate: int
    layer: _Unit | _Down


class FusedEncoder:
    """Latents of a batch of clips by fused kernels.

    Args:
        codec: the codec, on its device.
        product: how activations are multiplied with weights; "half" needs a half `dtype`.
        dtype: of the activations in memory.
        shapes: tuned shapes of programs, where there are any.

    Raises:
        ConfigurationError: the codec's encoder has another form than SNAC 24 kHz'.
    """

    def __init__(
        self,
        codec: Codec,
        product: Product,
        dtype: torch.dtype = torch.float32,
        shapes: Mapping[str, Shape] | None = None,
    ) -> None:
        self.product: Product = product
        self.dtype = dtype
        self.shapes = dict(shapes or {})
        first, *blocks, last = list(codec.model.encoder.block)
        if not blocks or not all(isinstance(block, EncoderBlock) for block in blocks):
            raise _another_form("a layer between its first and last is no block of units")
        self._first_taps, self._first_bias = self._taps(first, groups=1)
        if cast("nn.Conv1d", first).in_channels != 1:
            raise _another_form("it takes more than one channel of audio")
        channels = self._first_taps.shape[1]
        self._blocks: list[tuple[list[_Unit], _Down]] = []
        heads = [_Snake.of(_units(block)[0].block[0]) for block in blocks]
        for block, after in zip(blocks, [*heads[1:], None], strict=True):
            self._blocks.append(self._block(cast("EncoderBlock", block), channels, after))
            channels = self._blocks[-1][1].output
        self._first_snake = heads[0]
        self._last_taps, self._last_bias = self._taps(last, groups=channels)

    def latents(self, audio: Tensor, frame_counts: Tensor | None) -> Tensor:
        """Float32 (clips, channels, latents) of audio (clips, samples), zero beyond each clip."""
        with torch.cuda.device_of(audio):
            return self._latents(audio, frame_counts)

    def _latents(self, audio: Tensor, frame_counts: Tensor | None) -> Tensor:
        count, length = audio.shape
        if frame_counts is None:
            whole = length // frames.SAMPLES_PER_FRAME
            frame_counts = torch.full((count,), whole, dtype=torch.int64, device=audio.device)
        rate, channels = frames.SAMPLES_PER_FRAME, self._first_taps.shape[1]
        x = audio.new_empty(count, length, channels, dtype=self.dtype)
        y = torch.empty_like(x)
        shape = shape_of(self.shapes, "first", channels, self.product)
        kernels.first_convolution[(_parts(length, shape.block), count)](
            audio, x, y, self._first_taps, self._first_bias,
            self._first_snake.alpha, self._first_snake.scale, frame_counts, length, rate,
            CHANNELS=channels, BLOCK=shape.block, COLUMNS=_power(channels),
            num_warps=shape.warps,
        )  # fmt: skip
        for units, down in self._blocks:
            spare = torch.empty_like(y)
            for unit in units:
                self.run_unit(unit, x, y, spare, frame_counts, length, rate)
                y, spare = spare, y
            x, y = self.run_down(down, y, frame_counts, length, rate)
            length, rate = length // down.stride, rate // down.stride
        channels = y.shape[2]
        latents = torch.empty(count, channels, length, device=y.device)
        shape = shape_of(self.shapes, "last", channels, self.product)
        grid = (_parts(length, shape.block), _parts(channels, shape.columns), count)
        kernels.last_convolution[grid](
            y, latents, self._last_taps, self._last_bias, length,
            CHANNELS=channels, BLOCK=shape.block, COLUMNS=shape.columns, num_warps=shape.warps,
        )  # fmt: skip
        return latents

    def layers(self) -> list[Layer]:
        """One residual unit and the downsampling of each block, for tuning."""
        found: list[Layer] = []
        rate = frames.SAMPLES_PER_FRAME
        for units, down in self._blocks:
            found += [Layer("residual", units[0].channels, units[0].channels, rate, units[0])]
            found += [Layer("downsampling", down.output, down.input, rate, down)]
            rate //= down.stride
        return found

    def run(self, layer: Layer, x: Tensor, y: Tensor, y_out: Tensor, ends: Tensor) -> Tensor:
        """What the convolution after `layer` sees; a unit's is written to `y_out`, its sum to x."""
        if isinstance(layer.layer, _Down):
            return self.run_down(layer.layer, y, ends, y.shape[1], layer.rate)[1]
        self.run_unit(layer.layer, x, y, y_out, ends, y.shape[1], layer.rate)
        return y_out

    def run_unit(
        self, unit: _Unit, x: Tensor, y: Tensor, y_out: Tensor, ends: Tensor, length: int, rate: int
    ) -> None:
        """The sum, in the place of x, and what the next convolution sees of it, in `y_out`."""
        shape = shape_of(self.shapes, "residual", unit.channels, self.product)
        parts = _parts(length, shape.block) * _parts(unit.channels, shape.columns)
        kernels.residual_unit[(parts, len(y))](
            y, x, y_out, unit.taps, unit.taps_bias, unit.snake.alpha, unit.snake.scale,
            unit.weight.high, unit.weight.low, unit.bias, unit.weight.unscale,
            unit.following.alpha, unit.following.scale, ends, length, rate, unit.dilation,
            CHANNELS=unit.channels, BLOCK=shape.block, COLUMNS=shape.columns, DEPTH=shape.depth,
            PRODUCT=self.product, KEEP_X=not unit.is_last, num_warps=shape.warps,
        )  # fmt: skip

    def run_down(
        self, down: _Down, y: Tensor, ends: Tensor, length: int, rate: int
    ) -> tuple[Tensor, Tensor]:
        """Its output and what the next convolution sees of it."""
        shape = shape_of(self.shapes, "downsampling", down.output, self.product)
        output = length // down.stride
        y_out = y.new_empty(len(y), output, down.output)
        x_out = y_out if down.following is None else torch.empty_like(y_out)
        snake = _Snake(down.bias, down.bias) if down.following is None else down.following
        parts = _parts(output, shape.block) * _parts(down.output, shape.columns)
        kernels.downsampling[(parts, len(y))](
            y, x_out, y_out, down.weight.high, down.weight.low, down.bias, down.weight.unscale,
            snake.alpha, snake.scale, ends, length, output, rate // down.stride,
            INPUT=down.input, OUTPUT=down.output, STRIDE=down.stride,
            PADDING=math.ceil(down.stride / 2), BLOCK=shape.block, COLUMNS=shape.columns,
            DEPTH=shape.depth, STAGES=shape.stages, PRODUCT=self.product,
            SNAKE=down.following is not None, num_warps=shape.warps,
        )  # fmt: skip
        return x_out, y_out

    def _block(
        self, block: EncoderBlock, channels: int, after: _Snake | None
    ) -> tuple[list[_Unit], _Down]:
        *found, snake, conv = list(block.block)
        units = [unit for unit in found if isinstance(unit, ResidualUnit)]
        if len(units) != len(found) or not isinstance(snake, Snake1d):
            raise _another_form("a block is not units, a Snake and a convolution")
        followings = [*(_Snake.of(unit.block[0]) for unit in units[1:]), _Snake.of(snake)]
        made = [
            self._unit(unit, channels, following, is_last=unit is units[-1])
            for unit, following in zip(units, followings, strict=True)
        ]
        conv = cast("nn.Conv1d", conv)
        (stride,), (kernel,), padding = conv.stride, conv.kernel_size, conv.padding
        if (kernel, padding, conv.groups) != (2 * stride, (math.ceil(stride / 2),), 1):
            raise _another_form("a downsampling is not as wide as two of its steps")
        weight = conv.weight.permute(2, 1, 0).reshape(kernel * channels, -1)
        down = _Down(
            channels,
            conv.out_channels,
            stride,
            _Weight.of(weight, self.product, self.dtype),
            _bias(conv),
            after,
        )
        return made, down

    def _unit(
        self, unit: ResidualUnit, channels: int, following: _Snake, *, is_last: bool
    ) -> _Unit:
        _, wide, snake, pointwise = unit.block.children()
        taps, bias = self._taps(wide, groups=channels)
        pointwise = cast("nn.Conv1d", pointwise)
        weight = _Weight.of(pointwise.weight[..., 0].t(), self.product, self.dtype)
        dilation = cast("nn.Conv1d", wide).dilation[0]
        made = _Snake.of(snake)
        return _Unit(
            channels, dilation, taps, bias, made, weight, _bias(pointwise), following, is_last
        )

    @staticmethod
    def _taps(layer: nn.Module, *, groups: int) -> tuple[Tensor, Tensor]:
        """Taps (7, channels) and bias of a convolution that sees one channel for each output."""
        conv = cast("nn.Conv1d", layer)
        if not isinstance(layer, nn.Conv1d) or conv.kernel_size != (7,) or conv.groups != groups:
            raise _another_form("a convolution of 7 taps is not depthwise, or not of 7 taps")
        return conv.weight[:, 0].float().t().contiguous(), _bias(conv)


def _units(block: nn.Module) -> list[ResidualUnit]:
    units = [u for u in cast("EncoderBlock", block).block if isinstance(u, ResidualUnit)]
    if not units:
        raise _another_form("a block has no residual units")
    return units


def _another_form(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the fused kernels do not know this codec's encoder: {why}; set kernels = 'torch'"
    )


def _bias(conv: nn.Conv1d) -> Tensor:
    """A bias in float32; zeros where there is none."""
    if conv.bias is None:
        return torch.zeros(conv.out_channels, device=conv.weight.device)
    return conv.bias.float().contiguous()


def _power(channels: int) -> int:
    return max(16, 1 << (channels - 1).bit_length())


def _parts(length: int, block: int) -> int:
    return -(-length // block)
