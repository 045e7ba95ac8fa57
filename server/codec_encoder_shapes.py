"""How programs of the encoder's kernels are shaped: from a table, or as a device was tuned.

A shape changes no code beyond the order of a sum, only the time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from server.errors import ConfigurationError
from server.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Product = Literal["ieee", "tf32", "tf32x3", "bf16x6", "fp16x3", "half"]
"""How activations are multiplied with weights (`codec_encoder_kernels`)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Positions and output channels of a program, input values at once, warps, stages of loads."""

    block: int
    columns: int
    depth: int
    warps: int
    stages: int = 1


# By channels of the unit. Those first in a list are taken where nothing was tuned, and of other
# numbers the nearest larger one's.
RESIDUAL = {
    32: [Shape(128, 32, 32, 4), Shape(64, 32, 32, 4), Shape(256, 32, 16, 8)],
    48: [
        Shape(64, 64, 64, 4),
        Shape(64, 64, 16, 4),
        Shape(128, 64, 16, 8),
        Shape(128, 64, 64, 8),
        Shape(64, 16, 16, 4),
    ],
    96: [
        Shape(64, 128, 32, 4),
        Shape(64, 32, 32, 4),
        Shape(128, 128, 32, 8),
        Shape(64, 128, 16, 4),
        Shape(64, 128, 128, 8),
    ],
    192: [
        Shape(64, 64, 32, 4),
        Shape(64, 256, 32, 8),
        Shape(128, 64, 32, 8),
        Shape(64, 256, 64, 8),
        Shape(64, 64, 64, 4),
    ],
    384: [
        Shape(64, 128, 32, 4),
        Shape(64, 128, 64, 8),
        Shape(64, 64, 32, 4),
        Shape(64, 64, 64, 4),
    ],
}
# By output channels of the downsampling.
DOWNSAMPLING = {
    96: [
        Shape(64, 128, 32, 4, 3),
        Shape(128, 32, 32, 4, 3),
        Shape(128, 128, 32, 8, 2),
        Shape(64, 32, 64, 4, 2),
    ],
    192: [
        Shape(128, 64, 32, 4, 3),
        Shape(64, 64, 32, 4, 3),
        Shape(128, 64, 64, 8, 2),
        Shape(64, 256, 32, 8, 2),
        Shape(128, 64, 32, 8, 3),
    ],
    384: [
        Shape(64, 128, 32, 4, 3),
        Shape(128, 128, 32, 8, 3),
        Shape(128, 64, 32, 4, 3),
        Shape(64, 64, 64, 4, 2),
    ],
    768: [
        Shape(64, 128, 32, 4, 3),
        Shape(64, 64, 32, 4, 4),
        Shape(128, 128, 32, 8, 3),
        Shape(64, 64, 64, 4, 3),
    ],
}
FIRST, LAST = Shape(64, 0, 1, 4), Shape(32, 32, 1, 4)  # The first has all channels at once.
Shapes = dict[str, Shape]
"""By `layer_key`."""


def layer_key(kind: str, channels: int, product: str) -> str:
    """Name of a layer's shape: `residual-48-tf32x3`."""
    return f"{kind}-{channels}-{product}"


def candidates(kind: str, channels: int) -> list[Shape]:
    """Shapes that may suit a layer, the one to take untuned first."""
    if kind in ("first", "last"):
        return [FIRST if kind == "first" else LAST]
    table = RESIDUAL if kind == "residual" else DOWNSAMPLING
    known = [size for size in table if size >= channels] or [max(table)]
    return table[min(known)]


def shape_of(shapes: Mapping[str, Shape], kind: str, channels: int, product: str) -> Shape:
    """The tuned shape of a layer, or the table's."""
    return shapes.get(layer_key(kind, channels, product), candidates(kind, channels)[0])


def write_shapes(path: Path, shapes: Mapping[str, Shape]) -> None:
    """Keep tuned shapes."""
    write_json(path, {key: asdict(shape) for key, shape in sorted(shapes.items())})


def read_shapes(path: Path) -> Shapes:
    """Tuned shapes from their file.

    Raises:
        ConfigurationError: the file is not what `write_shapes` writes.
    """
    value: dict[str, Any] = read_json(
        path, absent="a file of tuned shapes", remedy="tune the encoder again"
    )
    try:
        return {key: Shape(**shape) for key, shape in value.items()}
    except TypeError as error:
        raise ConfigurationError(f"{path}: {error}; tune the encoder again") from error
