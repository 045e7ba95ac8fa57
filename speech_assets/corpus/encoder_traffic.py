"""What bounds an encoder: bytes that each layer moves through the device's memory, and operations.

Per second of audio, from the codec's configuration alone. Weights are left out: a batch reads them
once, and they are 0.1 % of its activations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from server.frames import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TAPS, UNITS = 7, 3  # Of a residual unit's wide convolution; units of a block.
_SNAKE_FLOPS = (
    20  # A product, the reduction to +-pi/2, a polynomial of degree 9, its square, a sum.
)


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """One layer, per second of audio.

    `least_bytes`: its input is read once and its output written once. `fused_bytes`: what the fused
    kernels move, which also store what the next convolution sees, so that its seven taps need not
    compute a Snake each. `product_flops` are of products of matrices, `other_flops` of the rest.
    """

    name: str
    rate_hz: float
    channels: int
    least_bytes: float
    fused_bytes: float
    product_flops: float
    other_flops: float


def traffic(config: Mapping[str, Any], element_bytes: int = 4) -> list[LayerTraffic]:
    """Layers of SNAC's encoder whose config.json is `config`, activations of `element_bytes`."""
    channels: int = config["encoder_dim"]
    rates: Sequence[int] = config["encoder_rates"]
    rate_hz = float(SAMPLE_RATE_HZ)
    values = rate_hz * channels  # Of one tensor, a second.
    size = element_bytes
    audio_bytes = 4 * rate_hz
    layers = [
        LayerTraffic(
            "first",
            rate_hz,
            channels,
            audio_bytes + size * values,
            audio_bytes + 2 * size * values,
            0.0,
            values * (2 * TAPS + _SNAKE_FLOPS),
        )
    ]
    for number, stride in enumerate(rates):
        for unit in range(UNITS):
            is_last = unit == UNITS - 1  # Nothing adds to its sum: x is not stored.
            layers.append(
                LayerTraffic(
                    f"block {number} unit {unit}",
                    rate_hz,
                    channels,
                    2 * size * values,
                    (3 if is_last else 4) * size * values,
                    2.0 * values * channels,
                    values * (2 * TAPS + 2 * _SNAKE_FLOPS),
                )
            )
        made = rate_hz / stride * 2 * channels
        is_last = number == len(rates) - 1
        layers.append(
            LayerTraffic(
                f"block {number} downsampling",
                rate_hz,
                channels,
                size * (values + made),
                size * (values + (1 if is_last else 2) * made),
                2.0 * made * 2 * stride * channels,
                made * _SNAKE_FLOPS,
            )
        )
        rate_hz, channels = rate_hz / stride, 2 * channels
        values = made
    last_bytes = size * values + 4 * values  # Latents are float32.
    layers.append(
        LayerTraffic("last", rate_hz, channels, last_bytes, last_bytes, 0.0, values * 2 * TAPS)
    )
    return layers


def hours_per_min(layers: Sequence[LayerTraffic], bytes_per_s: float) -> float:
    """Audio hours a minute of wall clock at which the fused kernels' bytes fill `bytes_per_s`."""
    return bytes_per_s / math.fsum(layer.fused_bytes for layer in layers) / 60
