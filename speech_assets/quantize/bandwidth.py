"""Memory bandwidth as this process gets it: the rate at which torch reads a large buffer.

On a CPU with as many threads as the engine has. A decode step reads all its weights once, so the
time that such a read takes is the floor of the step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MIB = 1 << 20
REPEATS = 5
"""Reads of a buffer, the best of which counts: what disturbs one only makes it slower."""
# Several times the caches of a CPU (32 MiB is common) and of a GPU (50 MiB on an H200).
CPU_SIZES = (64 * _MIB, 256 * _MIB)
CUDA_SIZES = (512 * _MIB, 2_048 * _MIB)
_VALUE_BYTES = 4
_FREE_SHARE = 0.5  # Of the free memory, that a buffer may take.


@dataclass(frozen=True, slots=True)
class Read:
    """The best of several reads of a buffer of `size_bytes`."""

    size_bytes: int
    operation: str
    gb_per_s: float


def sizes_for(
    bytes_per_step: int, defaults: Sequence[int], free_bytes: int | None = None
) -> list[int]:
    """Sizes of buffers, bytes: those of a step's weights and the default ones that are larger.

    Smaller ones would stand in caches that the weights do not fit; where the weights fit, a buffer
    of their size does, too. At most half of `free_bytes` is taken, where that is known.
    """
    wanted = {bytes_per_step, *(size for size in defaults if size >= bytes_per_step)}
    if free_bytes is not None:
        most = int(free_bytes * _FREE_SHARE)
        wanted = {min(size, most) for size in wanted}
    return sorted({size // _VALUE_BYTES * _VALUE_BYTES for size in wanted})


def read_bandwidth(device: Literal["cpu", "cuda"], bytes_per_step: int) -> list[Read]:
    """The best read of each size, by a sum and by a product of the buffer with itself.

    Raises:
        ConfigError: there is no memory for a buffer.
    """
    if device == "cuda":
        torch.cuda.empty_cache()
        sizes = sizes_for(bytes_per_step, CUDA_SIZES, int(torch.cuda.mem_get_info()[0]))
    else:
        sizes = sizes_for(bytes_per_step, CPU_SIZES)
    reads: list[Read] = []
    for size in sizes:
        try:
            buffer = torch.empty(size // _VALUE_BYTES, dtype=torch.float32, device=device)
            buffer.uniform_(-1, 1)  # Not zeros: those can be faster than data, and pages untouched.
        except RuntimeError as error:
            raise ConfigError(
                f"no memory for a buffer of {size >> 20} MiB on {device}, to measure bandwidth; "
                "free some, end what else uses the device"
            ) from error
        for name, operation in _operations(buffer).items():
            seconds = _best_s(operation, device)
            reads.append(Read(size, name, size / seconds / 1e9))
        del buffer
    return reads


def best(reads: Sequence[Read]) -> float:
    """The highest rate of several reads, GB/s (1e9 bytes)."""
    return max(read.gb_per_s for read in reads)


def _operations(buffer: torch.Tensor) -> dict[str, Callable[[], object]]:
    return {"sum": buffer.sum, "dot": lambda: torch.dot(buffer, buffer)}


def _best_s(operation: Callable[[], object], device: Literal["cpu", "cuda"]) -> float:
    operation()
    times_s: list[float] = []
    for _ in range(REPEATS):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            operation()
            end.record()
            end.synchronize()
            times_s.append(float(start.elapsed_time(end)) / 1e3)
        else:
            began_s = time.perf_counter()
            operation()
            times_s.append(time.perf_counter() - began_s)
    return min(times_s)
