"""SNAC's decoder on a part of each layer: what a hop needs, for rows of many utterances at once.

The layers are SNAC's own with their weights; what differs is where they run. A layer computes the
positions that the geometry asks for, from an input that covers just what those depend on, so that
nothing is padded. Where an utterance ends the codec pads with zeros: activations outside it are
set to zero, row by row, before every layer that looks at neighbours (Snake keeps zeros, biases do
not). So one call serves the head, the middle and the tail of different utterances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from snac.layers import DecoderBlock, NoiseBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

from server import frames
from server.codec_geometry import Geometry, LayerSpans, Reach, Span, plan_geometry
from server.codec_noise import position_noise, quantile_table
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from snac.vq import VectorQuantize

    from server.codec import Codec


@dataclass(frozen=True, slots=True)
class Rows:
    """What one call decodes: int64 tensors on the device."""

    codes: Tensor  # (rows, levels, latents): the three codes of each latent of Geometry.codes
    starts: Tensor  # (rows, 1): the utterance's latent at which each row starts
    ends: Tensor  # (rows, 1): first latent without codes, known or final
    seeds: Tensor  # (rows, 1): noise seeds, unsigned 32-bit values


class DecoderNetwork:
    """A codec's quantizer tables and decoder layers, of one dtype, on the codec's device.

    Args:
        codec: the codec, with weight norm folded in (as `load_codec` gives it).
        dtype: of weights and activations; Snake's argument is float32 at least.
        noise: False leaves the noise layers out.

    Raises:
        ConfigurationError: the codec has attention, which no crop can serve.
    """

    def __init__(self, codec: Codec, dtype: torch.dtype, *, noise: bool) -> None:
        if cast("int | None", codec.model.attn_window_size) is not None:
            raise ConfigurationError(
                f"codec {codec.identity.name} has attention windows; its decoder cannot be cropped:"
                " use SNAC 24 kHz (attn_window_size null)"
            )
        self.device, self.dtype = codec.device, dtype
        self.tables = _premultiplied_tables(codec, dtype)
        noise_table = quantile_table(codec.device, dtype) if noise else None
        self.layers = list(_layers(codec.model.decoder.model, dtype, noise_table))

    def geometry(self, latents: int, window: Span | None = None) -> Geometry:
        """Spans of all layers for rows that emit `latents` latents (see `plan_geometry`)."""
        return plan_geometry([layer.reach for layer in self.layers], latents, window)

    def run(self, geometry: Geometry, rows: Rows, unmasked: frozenset[int] = frozenset()) -> Tensor:
        """Audio in -1..1, at least float32, of shape (rows, 512 * geometry.latents).

        Args:
            unmasked: rates (positions per latent) at which no row touches its utterance's ends, so
                that masks can be left out. A captured graph, which serves any rows, masks always.
        """
        masks = Masks(geometry, self.layers, rows, self.dtype, unmasked)
        x = F.embedding(rows.codes[:, 0], self.tables[0])
        for level in range(1, frames.LEVELS):
            x = x + F.embedding(rows.codes[:, level], self.tables[level])
        x = x.transpose(1, 2)
        for layer, spans in zip(self.layers, geometry.layers, strict=True):
            x = layer.run(x, spans, rows, masks)
        emitted = Span(0, geometry.latents).scaled(geometry.layers[-1].output_rate)
        audio = x[:, 0, geometry.layers[-1].output.of(emitted)]
        return torch.tanh(audio if self.dtype == torch.float64 else audio.float())


def masked_spans(geometry: Geometry, layers: list[Layer]) -> dict[int, Span]:
    """For each rate, the positions that masks must cover."""
    spans: dict[int, Span] = {}
    for layer, layer_spans in zip(layers, geometry.layers, strict=True):
        if layer.reach.kernel > 1:
            rate, given = layer_spans.given_rate, layer_spans.given
            known = spans.get(rate, given)
            spans[rate] = Span(min(known.low, given.low), max(known.high, given.high))
    return spans


class Masks:
    """1 inside each row's utterance and 0 outside, made once a rate."""

    def __init__(
        self,
        geometry: Geometry,
        layers: list[Layer],
        rows: Rows,
        dtype: torch.dtype,
        unmasked: frozenset[int],
    ) -> None:
        self._masks: dict[int, tuple[Span, Tensor]] = {}
        for rate, span in masked_spans(geometry, layers).items():
            if rate not in unmasked:
                positions = _positions(rows, span, rate)
                inside = (positions >= 0) & (positions < rows.ends * rate)
                self._masks[rate] = span, inside[:, None].to(dtype)

    def apply(self, x: Tensor, span: Span, rate: int) -> Tensor:
        """`x` with zeros outside the utterances."""
        if rate not in self._masks:
            return x
        covered, mask = self._masks[rate]
        return x * mask[..., covered.of(span)]


class Layer:
    """One step of the decoder: a reach, and what to do on given spans. The base passes on."""

    reach = Reach()

    def run(self, x: Tensor, spans: LayerSpans, rows: Rows, masks: Masks) -> Tensor:
        """Output positions `spans.output` of shape (rows, channels, positions)."""
        raise NotImplementedError


class Convolution(Layer):
    def __init__(self, module: nn.Conv1d, dtype: torch.dtype) -> None:
        self.weight, self.bias = _parameters(module, dtype)
        self.dilation, self.groups = module.dilation[0], module.groups
        self.reach = Reach(module.kernel_size[0], self.dilation, cast("int", module.padding[0]))

    def run(self, x: Tensor, spans: LayerSpans, rows: Rows, masks: Masks) -> Tensor:
        needed = self.reach.needs(spans.output)
        if self.reach.kernel > 1:
            x = masks.apply(x, spans.given, spans.given_rate)
        if needed != spans.given:  # a window's edge: beyond it are zeros
            x = F.pad(x, (spans.given.low - needed.low, needed.high - spans.given.high))
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation, groups=self.groups)


class Upsampling(Layer):
    def __init__(self, module: nn.ConvTranspose1d, dtype: torch.dtype) -> None:
        self.weight, self.bias = _parameters(module, dtype)
        self.groups = module.groups
        padding = cast("int", module.padding[0])
        self.reach = Reach(module.kernel_size[0], 1, padding, module.stride[0])

    def run(self, x: Tensor, spans: LayerSpans, rows: Rows, masks: Masks) -> Tensor:
        x = masks.apply(x, spans.given, spans.given_rate)
        stride = self.reach.upsampling
        x = F.conv_transpose1d(x, self.weight, self.bias, stride=stride, groups=self.groups)
        first = spans.given.low * stride - self.reach.padding
        return x[..., Span(first, first + x.shape[-1]).of(spans.output)]


class Noise(Layer):
    def __init__(self, module: NoiseBlock, dtype: torch.dtype, table: Tensor, number: int) -> None:
        self.weight = cast("nn.Conv1d", module.linear).weight.detach().to(dtype)
        self.table, self.number = table, number

    def run(self, x: Tensor, spans: LayerSpans, rows: Rows, masks: Masks) -> Tensor:
        positions = _positions(rows, spans.output, spans.output_rate)
        noise = position_noise(self.table, rows.seeds, self.number, positions)
        return torch.addcmul(x, F.conv1d(x, self.weight), noise[:, None])


class Snake(Layer):
    def __init__(self, module: Snake1d, dtype: torch.dtype) -> None:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        alpha = module.alpha.detach().to(wide)
        self.alpha, self.scale = alpha, (alpha + 1e-9).reciprocal()

    def run(self, x: Tensor, spans: LayerSpans, rows: Rows, masks: Masks) -> Tensor:
        return self(x)

    def __call__(self, x: Tensor) -> Tensor:
        # In half precision a rounded argument would turn the sine: only the sum is rounded.
        wide = x.to(self.alpha.dtype)
        sine = (wide * self.alpha).sin_().square_()
        return torch.addcmul(wide, sine, self.scale).to(x.dtype)


class Residual(Layer):
    def __init__(self, module: ResidualUnit, dtype: torch.dtype) -> None:
        snake_in, wide, snake_out, pointwise = module.block.children()
        self.snake_in = Snake(cast("Snake1d", snake_in), dtype)
        self.wide = Convolution(cast("nn.Conv1d", wide), dtype)
        self.snake_out = Snake(cast("Snake1d", snake_out), dtype)
        self.pointwise, self.bias = _parameters(cast("nn.Conv1d", pointwise), dtype)
        self.reach = self.wide.reach

    def run(self, x: Tensor, spans: LayerSpans, rows: Rows, masks: Masks) -> Tensor:
        y = self.wide.run(self.snake_in(x), spans, rows, masks)
        y = F.conv1d(self.snake_out(y), self.pointwise, self.bias)
        return y.add_(x[..., spans.given.of(spans.output)])


def _layers(modules: nn.Sequential, dtype: torch.dtype, noise: Tensor | None) -> Iterator[Layer]:
    """The decoder's layers in order. Its last, tanh, is the network's own."""
    number = 0
    for module in modules:
        parts = module.block if isinstance(module, DecoderBlock) else [module]
        for part in parts:
            if isinstance(part, Snake1d):
                yield Snake(part, dtype)
            elif isinstance(part, ResidualUnit):
                yield Residual(part, dtype)
            elif isinstance(part, NoiseBlock):
                if noise is not None:
                    yield Noise(part, dtype, noise, number)
                number += 1
            elif isinstance(part, nn.ConvTranspose1d):
                yield Upsampling(part, dtype)
            elif isinstance(part, nn.Conv1d):
                yield Convolution(part, dtype)
            elif not isinstance(part, nn.Tanh):
                raise ConfigurationError(
                    f"the codec's decoder has a layer {type(part).__name__} that cropping does not"
                    " know; use snac 1.2.1's SNAC 24 kHz"
                )


def _premultiplied_tables(codec: Codec, dtype: torch.dtype) -> list[Tensor]:
    """Per level a table (codebook, channels) of what a code adds to a latent.

    SNAC looks a code up in 8 dimensions and projects it; the product is taken once instead.
    """
    tables: list[Tensor] = []
    for module in codec.model.quantizer.quantizers:
        quantizer = cast("VectorQuantize", module)
        weight, bias = _parameters(quantizer.out_proj, torch.float64)
        codebook = quantizer.codebook.weight.detach().double()
        tables.append(F.linear(codebook, weight[..., 0], bias).to(dtype))
    return tables


def _parameters(module: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    bias = cast("Tensor | None", module.bias)
    weight = cast("Tensor", module.weight).detach().to(dtype)
    return weight, None if bias is None else bias.detach().to(dtype)


def _positions(rows: Rows, span: Span, rate: int) -> Tensor:
    """Absolute positions, int64 of shape (rows, positions), of a relative span."""
    steps = torch.arange(span.low, span.high, device=rows.starts.device)
    return rows.starts * rate + steps
