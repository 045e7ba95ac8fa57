"""The form of packed weights: int8 rows with their scales, a manifest, and the way back to float16.

``packed.safetensors`` holds each matrix as int8 with one float16 scale a row (named after it, with
`SCALE`), the rest as float16. Rows that are the same are stored once, and `runs` of the manifest
``packed.json`` say which id has which: a vocabulary with many codes that the codec never gives
needs one row for all of them. The manifest carries the hash of every *expanded* tensor, so an
expansion proves itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from server.errors import WeightsError
from server.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SCHEMA_VERSION = 1
MANIFEST = "packed.json"
WEIGHTS = "packed.safetensors"
_REMEDY = "fetch the checkpoint again"
Form = Literal["int8", "float16"]
SCALE = ":scale"  # What follows a matrix' name in the name of its scales.


@dataclass(frozen=True, slots=True)
class Run:
    """`count` ids on end: they take stored rows `row`, `row + step`, ... (`step` is 0 or 1)."""

    row: int
    count: int
    step: int


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """One tensor of the manifest; `shape` and `sha256` are those of its float16 expansion."""

    form: Form
    shape: tuple[int, ...]
    sha256: str
    runs: tuple[Run, ...] = ()  # Empty: every row is stored, in order.


def read_manifest(folder: Path) -> dict[str, PackedTensor]:
    """Tensors of a packed folder by name.

    Raises:
        WeightsError: `packed.json` is missing, or not a manifest of this schema.
    """
    path = folder / MANIFEST
    value = read_json(path, absent="not a packed checkpoint", remedy=_REMEDY)
    if value.get("schema_version") != SCHEMA_VERSION:
        raise WeightsError(
            f"{path}: schema version {value.get('schema_version')!r}, this program reads "
            f"{SCHEMA_VERSION}; install the version that the checkpoint was made for"
        )
    try:
        return {name: _packed_tensor(row) for name, row in value["tensors"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{path}: not a manifest of packed weights ({type(error).__name__}: {error}); {_REMEDY}"
        ) from error


def _packed_tensor(row: dict[str, Any]) -> PackedTensor:
    """A row of the manifest.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is none.
    """
    shape, runs = tuple(row["shape"]), tuple(Run(*run) for run in row.get("runs", []))
    if row["form"] not in get_args(Form) or not isinstance(row["sha256"], str):
        raise ValueError(f"form {row['form']!r}, sha256 {row['sha256']!r}")
    if not all(_is_size(size) for size in shape):
        raise ValueError(f"shape {shape}")
    if not all(_is_size(n) for run in runs for n in (run.row, run.count, run.step)):
        raise ValueError("runs of rows are no whole numbers")
    if runs and sum(run.count for run in runs) != (shape or (0,))[0]:
        raise ValueError(f"runs of {sum(run.count for run in runs)} rows, of shape {shape}")
    return PackedTensor(form=row["form"], shape=shape, sha256=row["sha256"], runs=runs)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32


def write_manifest(folder: Path, tensors: Mapping[str, PackedTensor]) -> None:
    """Write `packed.json` into `folder`."""
    rows: dict[str, Any] = {}
    for name, tensor in tensors.items():
        rows[name] = {"form": tensor.form, "shape": tensor.shape, "sha256": tensor.sha256}
        if tensor.runs:
            rows[name]["runs"] = [(run.row, run.count, run.step) for run in tensor.runs]
    value = {"schema_version": SCHEMA_VERSION, "tensors": rows}
    write_json(folder / MANIFEST, value)


def expanded_tensors(
    folder: Path, manifest: Mapping[str, PackedTensor]
) -> dict[str, NDArray[np.float16]]:
    """Every tensor of a packed folder in float16.

    Raises:
        WeightsError: the weights are damaged or not those of `manifest`.
    """
    path = folder / WEIGHTS
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not readable ({error}); fetch the checkpoint again") from error
    made: dict[str, NDArray[np.float16]] = {}
    for name, tensor in manifest.items():
        try:
            whole = (
                dequantized(stored[name], stored[name + SCALE])
                if (tensor.form == "int8")
                else stored[name]
            )
            value = gathered(whole, tensor.runs)
        except (KeyError, IndexError, ValueError) as error:
            raise WeightsError(
                f"{path}: {name} does not follow its manifest ({type(error).__name__}: {error}); "
                "fetch the checkpoint again"
            ) from error
        if value.shape != tensor.shape or sha256_of(value) != tensor.sha256:
            raise WeightsError(
                f"{path}: {name} expands to other weights than {MANIFEST} says; fetch the "
                "checkpoint again"
            )
        made[name] = value
    return made


def dequantized(values: NDArray[np.int8], scales: NDArray[np.float16]) -> NDArray[np.float16]:
    """float16 of the shape of `values`, each row times its scale (rows,).

    The product of 8 and 11 significant bits is exact in float32, so every machine rounds alike.
    """
    factors = scales.astype(np.float32).reshape(-1, *[1] * (values.ndim - 1))
    return (values.astype(np.float32) * factors).astype(np.float16)


def gathered(stored: NDArray[np.float16], runs: Sequence[Run]) -> NDArray[np.float16]:
    """The rows of `stored` in the order of `runs`; all of them when there are none.

    Raises:
        IndexError: a run asks for a row that is not there.
    """
    if not runs:
        return np.ascontiguousarray(stored)
    order = np.concatenate([run.row + run.step * np.arange(run.count) for run in runs])
    return stored[order]


def sha256_of(value: NDArray[np.float16]) -> str:
    """Hash of a tensor's bytes, little-endian, row by row."""
    return hashlib.sha256(np.ascontiguousarray(value, "<f2").data).hexdigest()
