"""What a safetensors file holds, by its header alone: each tensor's dtype, shape and bytes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from server.errors import WeightsError
from server.files import parse_object

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST_HEADER = 100_000_000  # The format's own limit, bytes.
_METADATA = "__metadata__"
_REMEDY = "copy or download the file again, or make the checkpoint again"
_OF_BITS = {
    64: ("F64", "I64", "U64", "C64"),
    32: ("F32", "I32", "U32"),
    16: ("F16", "BF16", "I16", "U16"),
    8: ("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    6: ("F6_E2M3", "F6_E3M2"),
    4: ("F4",),
}
BITS = {dtype: bits for bits, dtypes in _OF_BITS.items() for dtype in dtypes}
"""Of a number of each dtype that safetensors 0.6 and later know."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file; its bytes are those from `start` to `end`."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Tensors of a safetensors file by name, in the order of their bytes.

    They are as many bytes as dtype and shape say, and lie on end, from the header to the last byte
    of the file: none overlaps another, none is cut off, and nothing lies between.

    Raises:
        WeightsError: it is not so, or the file is none.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else _LONGEST_HEADER
        if length >= _LONGEST_HEADER:
            raise WeightsError(f"{path}: not a safetensors file; {_REMEDY}")
        try:
            header = parse_object(file.read(length))
        except ValueError as error:
            raise WeightsError(f"{path}: the header is damaged ({error}); {_REMEDY}") from error
    metadata: object = header.pop(_METADATA, {})
    if not isinstance(metadata, dict):
        raise WeightsError(f"{path}: the header is damaged at {_METADATA!r}; {_REMEDY}")
    data = 8 + length
    tensors: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        try:
            tensors[name] = _tensor(entry, data)
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsError(
                f"{path}: the header is damaged at {name!r} ({error}); {_REMEDY}"
            ) from error
    ordered = dict(sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)))
    end = data
    for name, tensor in ordered.items():
        if tensor.start != end:
            what = "begins within the one before it" if tensor.start < end else "leaves a gap"
            raise WeightsError(f"{path}: the header is damaged: {name!r} {what}; {_REMEDY}")
        end = tensor.end
    if size != end:
        raise WeightsError(
            f"{path}: {size} bytes, its header says {end}; the file is cut short or damaged, "
            f"{_REMEDY}"
        )
    return ordered


def _tensor(entry: object, data: int) -> StoredTensor:
    """The tensor of a header's entry, whose data begin at byte `data` of the file.

    Raises:
        KeyError, TypeError, ValueError: it cannot be one.
    """
    if not isinstance(entry, dict):
        raise TypeError(f"it is {entry!r}")
    value = cast("dict[str, Any]", entry)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f"dtype {dtype!r} is unknown")
    if not _are_sizes(shape):
        raise ValueError(f"shape is {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"data_offsets are {offsets!r}")
    first, last = offsets
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or last - first != bits // 8:
        raise ValueError(
            f"{dtype} of shape {shape} are {bits / 8:g} bytes, its data_offsets have {last - first}"
        )
    return StoredTensor(dtype, tuple(shape), data + first, data + last)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 48
        for item in cast("list[object]", value)
    )
