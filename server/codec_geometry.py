"""Which positions each decoder layer must compute for one hop: interval arithmetic, no tensors.

The decoder's receptive field is 2.5 frames on either side, but only in its low-rate layers: at the
output a few samples do. Walking the layers from the last to the first gives the positions that each
must put out, and so those that it must be given. Positions are relative to the row's first latent,
at the layer's own rate; a row that starts at latent s adds s * rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Span:
    """Positions `low` to `high` (exclusive), of one rate."""

    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low

    def scaled(self, factor: int) -> Span:
        """The same stretch of time at `factor` times the rate."""
        return Span(self.low * factor, self.high * factor)

    def within(self, limit: Span | None) -> Span:
        """What of it lies inside `limit`."""
        if limit is None:
            return self
        return Span(max(self.low, limit.low), min(self.high, limit.high))

    def of(self, part: Span) -> slice:
        """Where `part` lies in an array that holds this span."""
        return slice(part.low - self.low, part.high - self.low)


@dataclass(frozen=True, slots=True)
class Reach:
    """How one layer's output positions follow from its input's; by default one from one.

    A convolution puts out at t what it sees from t - padding on, `kernel` taps `dilation` apart.
    With `upsampling` it is a transposed convolution of that stride.
    """

    kernel: int = 1
    dilation: int = 1
    padding: int = 0
    upsampling: int = 1

    def needs(self, output: Span) -> Span:
        """Input positions that `output` depends on."""
        first, last = output.low + self.padding, output.high - 1 + self.padding
        if self.upsampling > 1:
            low = -((self.kernel - 1 - first) // self.upsampling)
            return Span(low, last // self.upsampling + 1)
        return Span(
            output.low - self.padding,
            output.high - self.padding + (self.kernel - 1) * self.dilation,
        )


@dataclass(frozen=True, slots=True)
class LayerSpans:
    """What one layer is given and puts out for a hop."""

    given: Span
    output: Span
    given_rate: int  # positions per latent
    output_rate: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The spans of every layer for rows of one length."""

    latents: int  # emitted by a row
    layers: tuple[LayerSpans, ...]

    @property
    def codes(self) -> Span:
        """Latents whose codes a row is decoded from."""
        return self.layers[0].given

    def positions(self) -> int:
        """Output positions of all layers together: the work that the geometry leaves."""
        return sum(len(layer.output) for layer in self.layers)


def plan_geometry(reaches: Sequence[Reach], latents: int, window: Span | None = None) -> Geometry:
    """Spans for a row that emits `latents` latents' samples.

    Args:
        reaches: one per layer, first to last.
        latents: latents emitted, from the row's start.
        window: None crops every layer to what the row needs. A span of latents instead has every
            layer compute all of it and see zeros beyond, as decoding the window by itself does.
    """
    rates = [1]
    for reach in reaches:
        rates.append(rates[-1] * reach.upsampling)
    output = Span(0, latents).scaled(rates[-1])
    layers: list[LayerSpans] = []
    for index in range(len(reaches) - 1, -1, -1):
        if window is not None:
            output = window.scaled(rates[index + 1])
        limit = None if window is None else window.scaled(rates[index])
        given = reaches[index].needs(output).within(limit)
        layers.append(LayerSpans(given, output, rates[index], rates[index + 1]))
        output = given
    return Geometry(latents, tuple(reversed(layers)))
