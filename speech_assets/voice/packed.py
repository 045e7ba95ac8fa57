"""Packing a checkpoint's weights: int8 rows, each row once, in the form that the server expands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from server.packed_weights import (
    SCALE,
    WEIGHTS,
    PackedTensor,
    Run,
    dequantized,
    gathered,
    sha256_of,
    write_manifest,
)

LARGEST = 127  # Symmetric: -128 is not used.
SMALLEST_SCALE = np.float16(2.0**-14)
"""The smallest float16 with all its bits; a row of smaller values is next to nothing anyway."""
SMALLEST_MATRIX = 1_024
"""Values below which a tensor stays float16: nothing would be saved."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What packing gave: bytes of the files, and the signal-to-noise ratio of int8 by matrix."""

    bytes: int
    snr_db: Mapping[str, float]


def pack(
    folder: Path, tensors: Mapping[str, NDArray[np.floating]], *, keep: tuple[str, ...] = ()
) -> Packing:
    """Write `tensors` into `folder` as ``packed.safetensors`` and ``packed.json``, that one last.

    Tensors whose names begin with one of `keep` stay float16.

    Raises:
        ValueError: a tensor is not finite in float16.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored: dict[str, np.ndarray] = {}
    manifest: dict[str, PackedTensor] = {}
    snr_db: dict[str, float] = {}
    for name, given in tensors.items():
        value = np.ascontiguousarray(given, np.float16)
        if not np.isfinite(value).all():
            raise ValueError(
                f"{name}: {int((~np.isfinite(value)).sum())} values are not finite in float16; "
                "train again, or scale the layer"
            )
        if value.ndim < 2 or value.size < SMALLEST_MATRIX or name.startswith(keep):
            stored[name] = value
            manifest[name] = PackedTensor("float16", value.shape, sha256_of(value))
            continue
        rows, runs = distinct_rows(value)
        steps, scales = quantized(rows)
        stored[name], stored[name + SCALE] = steps, scales
        whole = gathered(dequantized(steps, scales), runs)
        manifest[name] = PackedTensor("int8", value.shape, sha256_of(whole), runs)
        snr_db[name] = _snr_db(value, whole)
    temporary = folder / f".{WEIGHTS}.part"
    save_file(stored, temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(folder / WEIGHTS)
    write_manifest(folder, manifest)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return Packing(size, snr_db)


def quantized(value: NDArray[np.float16]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """int8 of the shape of `value`, and one scale a row, float16 (rows,)."""
    rows = value.reshape(len(value), -1).astype(np.float32)
    scales = np.maximum((np.abs(rows).max(1) / LARGEST).astype(np.float16), SMALLEST_SCALE)
    steps = np.rint(rows / scales.astype(np.float32)[:, None])
    return np.clip(steps, -LARGEST, LARGEST).astype(np.int8).reshape(value.shape), scales


def distinct_rows(value: NDArray[np.float16]) -> tuple[NDArray[np.float16], tuple[Run, ...]]:
    """Rows of `value` without repeats, in order of appearance, and the runs that give it back.

    The runs are empty when no row is repeated.
    """
    flat = np.ascontiguousarray(value.reshape(len(value), -1))
    keys = flat.view(np.dtype((np.void, flat.shape[1] * flat.itemsize)))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(value):
        return value, ()
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return value[first[order]], runs_of(place[inverse.reshape(-1)])


def runs_of(rows: NDArray[np.integer]) -> tuple[Run, ...]:
    """The fewest runs, found from the left, that say which row each id has."""
    steps = np.diff(rows)
    runs: list[Run] = []
    start = 0
    while start < len(rows):
        step = int(steps[start]) if start < len(steps) else 0
        if step not in (0, 1):
            runs.append(Run(int(rows[start]), 1, 0))
            start += 1
            continue
        other = np.flatnonzero(steps[start:] != step)
        count = 1 + (int(other[0]) if len(other) else len(steps) - start)
        runs.append(Run(int(rows[start]), count, step))
        start += count
    return tuple(runs)


def _snr_db(value: NDArray[np.float16], made: NDArray[np.float16]) -> float:
    signal, other = value.astype(np.float64), made.astype(np.float64)
    noise = np.square(signal - other).sum()
    return float(10 * np.log10(np.square(signal).sum() / noise)) if noise else float("inf")
