"""The decoder by fused kernels: half precision on CUDA; spans, rows and noise of `codec_network`.

Where that network runs over its activations some hundred times, here a residual unit is two kernels
and an upsampling with its noise one. The layers before the first residual unit, whose activations
are a hundredth of all, stay PyTorch's.
"""

from __future__ import annotations

# Kernels are launched by an index, which a CPU's environment, without Triton, cannot type.
# pyright: reportIndexIssue=false
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F

from server import codec_kernels as kernels
from server import frames
from server.codec_geometry import Geometry, Span
from server.codec_network import (
    Convolution,
    DecoderNetwork,
    Masks,
    Noise,
    Residual,
    Snake,
    Upsampling,
)
from server.codec_noise import LAYER_STEP
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

    from server.codec import Codec
    from server.codec_geometry import LayerSpans
    from server.codec_network import Rows

# By number of channels, measured on an H200 at 64 rows of 4 frames. Of other numbers the nearest
# larger one's, cut to the channels there are.
_DEPTHWISE = {512: (32, 64, 4)}  # Positions and channels of a program, warps.
_POINTWISE = {  # Positions, channels out, channels in at once, warps, stages of loads.
    64: (64, 64, 64, 4, 1),
    128: (64, 128, 128, 4, 1),
    512: (64, 128, 64, 4, 3),
}
_UPSAMPLING = {
    64: (64, 64, 4),
    128: (64, 32, 4),
    256: (32, 128, 8),
}  # Positions, channels in, warps.
_LAST = (256, 8)  # Positions, warps.
_LEAST_CHANNELS, _MOST_CHANNELS = 16, 512
_MASK = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class _SnakeWeights:
    """A Snake's weights, float32 of shape (channels,)."""

    alpha: Tensor
    scale: Tensor

    @classmethod
    def of(cls, snake: Snake) -> _SnakeWeights:
        return cls(snake.alpha.float().flatten(), snake.scale.float().flatten())


class _Unit:
    """A residual unit; `following` is the Snake that its output meets next."""

    def __init__(self, unit: Residual, following: Snake, *, is_last: bool) -> None:
        self.channels, self.dilation = unit.pointwise.shape[0], unit.wide.dilation
        self.taps = unit.wide.weight[:, 0].float().t().contiguous()
        self.taps_bias = _bias(unit.wide.bias, self.taps)
        self.snake, self.following = _SnakeWeights.of(unit.snake_out), _SnakeWeights.of(following)
        self.weight = unit.pointwise[..., 0].t().contiguous()  # (in, out)
        self.bias = _bias(unit.bias, self.taps)
        self.is_last = is_last  # Of its block: what follows sees the Snake of its sum alone.

    def run(self, x: Tensor, y: Tensor, spans: LayerSpans, rows: Rows) -> tuple[Tensor, Tensor]:
        """The sum and what its next convolution sees, from those of the unit before."""
        count, given, channels = y.shape
        output, offset = len(spans.output), spans.output.low - spans.given.low
        h = y.new_empty(count, output, channels)
        block, columns, warps = _shape(_DEPTHWISE, channels)
        columns = min(columns, channels)
        kernels.depthwise[(_parts(output, block), channels // columns, count)](
            y, h, self.taps, self.taps_bias, self.snake.alpha, self.snake.scale,
            given, output, offset,
            CHANNELS=channels, DILATION=self.dilation, BLOCK=block, COLUMNS=columns,
            num_warps=warps,
        )  # fmt: skip
        y_out = torch.empty_like(h)
        x_out = y_out if self.is_last else torch.empty_like(h)
        block, columns, depth, warps, stages = _shape(_POINTWISE, channels)
        columns, depth = min(columns, channels), min(depth, channels)
        kernels.pointwise[(channels // columns, _parts(output, block), count)](
            h, x, x_out, y_out, self.weight, self.bias, self.following.alpha, self.following.scale,
            rows.starts, rows.ends, rows.starts.stride(0),
            given, output, offset, spans.output.low, spans.output_rate,
            CHANNELS=channels, BLOCK=block, COLUMNS=columns, DEPTH=depth, KEEP_X=not self.is_last,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return x_out, y_out


class _Up:
    """An upsampling with its noise layer; `following` is the Snake of the first unit."""

    def __init__(self, layer: Upsampling, noise: Noise | None, following: Snake) -> None:
        self.stride, self.padding = layer.reach.upsampling, layer.reach.padding
        self.input, self.output = layer.weight.shape[0], layer.weight.shape[1]
        self.weight = layer.weight.permute(2, 0, 1).contiguous()  # (taps, in, out)
        self.bias = _bias(layer.bias, self.weight.new_empty(self.output))
        self.has_noise = noise is not None
        self.noise_weight, self.table, self.noise_key = self.weight, self.bias, 0
        if noise is not None:
            self.noise_weight = noise.weight[..., 0].t().contiguous()
            self.table, self.noise_key = noise.table, (noise.number * LAYER_STEP) & _MASK
        self.following = _SnakeWeights.of(following)

    def run(self, y: Tensor, spans: LayerSpans, rows: Rows) -> tuple[Tensor, Tensor]:
        """Its output and what the first unit's convolution sees of it."""
        output = spans.output
        x_out = y.new_empty(y.shape[0], len(output), self.output)
        y_out = torch.empty_like(x_out)
        first = (output.low + self.padding) // self.stride
        last = (output.high - 1 + self.padding) // self.stride
        block, depth, warps = _shape(_UPSAMPLING, self.output)
        kernels.upsampling[(_parts(last + 1 - first, block), self.stride, y.shape[0])](
            y, x_out, y_out, self.weight, self.bias, self.noise_weight, self.table,
            self.following.alpha, self.following.scale,
            rows.starts, rows.ends, rows.seeds, rows.starts.stride(0),
            y.shape[1], spans.given.low, len(output), output.low, first, spans.output_rate,
            self.noise_key,
            INPUT=self.input, OUTPUT=self.output, STRIDE=self.stride, PADDING=self.padding,
            BLOCK=block, DEPTH=min(depth, self.input), NOISE=self.has_noise,
            num_warps=warps, num_stages=2,
        )  # fmt: skip
        return x_out, y_out


@dataclass(frozen=True, slots=True)
class _Block:
    """Indices of a block's layers, and what runs them."""

    layers: range
    up: _Up
    units: tuple[_Unit, ...]

    @property
    def first_unit(self) -> int:
        return self.layers.stop - len(self.units)


class FusedNetwork(DecoderNetwork):
    """`DecoderNetwork` by fused kernels, for float16 and bfloat16.

    Raises:
        ConfigurationError: the codec's decoder has another form than SNAC 24 kHz'.
    """

    def __init__(self, codec: Codec, dtype: torch.dtype, *, noise: bool) -> None:
        super().__init__(codec, dtype, noise=noise)
        ups = [i for i, layer in enumerate(self.layers) if isinstance(layer, Upsampling)]
        last = self.layers[-1]
        if not ups or not isinstance(last, Convolution) or last.weight.shape[0] != 1:
            raise _another_form("it does not end in one channel after upsampling")
        # Each block begins with the Snake before its upsampling; one more comes before the end.
        starts = [i - 1 for i in ups]
        stops = [*starts[1:], len(self.layers) - 2]
        self._blocks = [self._block(range(a, b)) for a, b in zip(starts, stops, strict=True)]
        self._last_taps = last.weight[0].float().t().contiguous()  # (7, channels)
        self._last_bias = _bias(last.bias, self._last_taps[0, :1])

    def run(self, geometry: Geometry, rows: Rows, unmasked: frozenset[int] = frozenset()) -> Tensor:
        """See `DecoderNetwork.run`."""
        x, y = self._begin(geometry, rows, unmasked)
        for number, block in enumerate(self._blocks):
            if number:
                x, y = block.up.run(y, geometry.layers[block.layers.start + 1], rows)
            for index, unit in enumerate(block.units, block.first_unit):
                x, y = unit.run(x, y, geometry.layers[index], rows)
        spans = geometry.layers[-1]
        emitted = Span(0, geometry.latents).scaled(spans.output_rate)
        audio = torch.empty(len(y), len(emitted), device=y.device)
        block, warps = _LAST
        kernels.last_convolution[(_parts(len(emitted), block), len(y))](
            y, audio, self._last_taps, self._last_bias, y.shape[1], len(emitted),
            emitted.low - spans.given.low, CHANNELS=y.shape[2], BLOCK=block, num_warps=warps,
        )  # fmt: skip
        return torch.tanh(audio)

    def _begin(
        self, geometry: Geometry, rows: Rows, unmasked: frozenset[int]
    ) -> tuple[Tensor, Tensor]:
        """The first unit's input, channels last: as it is, and as its convolution sees it."""
        count = self._blocks[0].first_unit
        first = cast("Residual", self.layers[count])
        spans = geometry.layers[count]
        part = Geometry(geometry.latents, geometry.layers[: count + 1])
        masks = Masks(part, self.layers[: count + 1], rows, self.dtype, unmasked)
        x = F.embedding(rows.codes[:, 0], self.tables[0])
        for level in range(1, frames.LEVELS):
            x = x + F.embedding(rows.codes[:, level], self.tables[level])
        x = x.transpose(1, 2)
        for layer, layer_spans in zip(self.layers[:count], geometry.layers, strict=False):
            x = layer.run(x, layer_spans, rows, masks)
        y = masks.apply(first.snake_in(x), spans.given, spans.given_rate)
        return x.transpose(1, 2).contiguous(), y.transpose(1, 2).contiguous()

    def _block(self, places: range) -> _Block:
        layers = [self.layers[i] for i in places]
        noise = next((layer for layer in layers if isinstance(layer, Noise)), None)
        units = [layer for layer in layers if isinstance(layer, Residual)]
        snake, up = layers[:2]
        if (
            not isinstance(snake, Snake)
            or not isinstance(up, Upsampling)
            or not units
            or len(layers) != 2 + (noise is not None) + len(units)
        ):
            raise _another_form("a block has other layers")
        channels = up.weight.shape[1]
        if channels & (channels - 1) or not _LEAST_CHANNELS <= channels <= _MOST_CHANNELS:
            raise _another_form(f"a block has {channels} channels")
        after = self.layers[places.stop]
        if up.groups != 1 or not isinstance(after, Snake):
            raise _another_form("its upsampling is in groups, or no Snake follows a block")
        followings = [*(unit.snake_in for unit in units[1:]), after]
        made = [
            _Unit(unit, following, is_last=unit is units[-1])
            for unit, following in zip(units, followings, strict=True)
        ]
        return _Block(places, _Up(up, noise, units[0].snake_in), tuple(made))


def _another_form(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the fused kernels do not know this codec's decoder: {why}; set codec_kernels = 'torch'"
    )


def _bias(bias: Tensor | None, like: Tensor) -> Tensor:
    """A bias in float32; zeros for the last dimension of `like` where there is none."""
    if bias is None:
        return torch.zeros(like.shape[-1], device=like.device)
    return bias.float().contiguous()


def _shape(shapes: dict[int, tuple[int, ...]], channels: int) -> Any:
    known = [size for size in shapes if size >= channels] or [max(shapes)]
    return shapes[min(known)]


def _parts(length: int, block: int) -> int:
    return -(-length // block)
