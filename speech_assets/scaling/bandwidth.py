"""How fast one stream can decode where reading the weights is all that takes time: a prediction.

    tokens/s <= memory bandwidth / bytes of weights that a step reads

At batch 1 every token reads every weight once. Keys and values, activations, the codec and the time
between kernels come on top, so this is the most that a device can do, not what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.quantize.shapes import SHAPES, step_bytes
from speech_assets.scaling.fleet import says_nothing_of_orpheus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from speech_assets.scaling.assumptions import Assumptions

_GROUP_SIZE = 128


@dataclass(frozen=True, slots=True)
class Step:
    """A measured decode step of Orpheus 3B's shape at batch 1; `floor_share` is its part of what
    the bandwidth measured beside it allows."""

    preset: str
    bytes_per_step: int
    device: str
    tokens_per_s: float
    floor_share: float


@dataclass(frozen=True, slots=True)
class Held:
    """A speed that others published, and the most that the bandwidth of the data sheet allows."""

    precision: str
    device: str
    bytes_per_step: int
    tokens_per_s: float
    most_tokens_per_s: float
    source: str

    @property
    def share(self) -> float:
        """Part of the most that was reached."""
        return self.tokens_per_s / self.most_tokens_per_s


def most_tokens_per_s(bandwidth_gb_per_s: float, bytes_per_step: float) -> float:
    """Tokens/s at which reading `bytes_per_step` each takes all of the bandwidth (1e9 bytes/s)."""
    return bandwidth_gb_per_s * 1e9 / bytes_per_step


def measured_steps(results: Iterable[Mapping[str, Any]]) -> list[Step]:
    """Steps of results of `decode_speed`, most bytes first; the embedded voice is left out."""
    found: list[Step] = []
    for result in results:
        figures, config = result["figures"], result["config"]
        preset = str(config["preset"])
        if config["measurement"]["streams"] != 1 or says_nothing_of_orpheus(preset):
            continue
        found.append(
            Step(
                preset=preset + " (reduced)" * bool(result["reduced"]),
                bytes_per_step=int(figures["bytes_per_step"]["value"]),
                device=result["device"]["name"],
                tokens_per_s=float(figures["tokens_per_s"]["value"]),
                floor_share=float(figures["floor_share"]["value"]),
            )
        )
    return sorted(found, key=lambda step: (-step.bytes_per_step, step.preset, step.device))


def held_against_others(assumptions: Assumptions) -> list[Held]:
    """Speeds of Orpheus 3B with its whole head that others published, beside the prediction."""
    shape = SHAPES["orpheus-3b"]
    found: list[Held] = []
    for speed in assumptions.speeds_by_others:
        size = step_bytes(shape, speed.scheme, _GROUP_SIZE, head_rows=shape.vocabulary_size)
        bandwidth = assumptions.device(speed.device).bandwidth_gb_per_s
        most = most_tokens_per_s(bandwidth, size)
        found.append(
            Held(speed.precision, speed.device, size, speed.tokens_per_s, most, speed.source)
        )
    return found
