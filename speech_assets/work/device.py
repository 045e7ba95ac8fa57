"""The device of a process that holds torch: taken by lock file, described, its memory kept."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import TYPE_CHECKING, Any, Literal

import torch

from speech_assets.errors import ConfigError
from speech_assets.quantize.schemes import DeviceFacts
from speech_assets.results.provenance import cpu_device
from speech_assets.work.device_lock import CPU, DeviceChoice, HeldDevice, hold_one_of, lock_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # From malloc.h.


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory.

    A clip's activations are megabytes; giving each back to the kernel cost a fifth of the encoder's
    time on the CPU in page faults (docs/decisions.md).
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
            libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def candidates(choice: DeviceChoice) -> list[HeldDevice]:
    """Devices that `choice` allows.

    Raises:
        ConfigError: CUDA is asked for and there is none.
    """
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if choice == "cuda" and not cuda:
        raise ConfigError(
            "device is 'cuda' but torch sees no GPU; check nvidia-smi and that the GPU lock is "
            "installed (make doctor), or use device = 'auto'"
        )
    if choice == "cpu" or not cuda:
        return [CPU]
    return [
        HeldDevice(f"cuda:{i}", properties.name, lock_name(str(properties.uuid)))
        for i, properties in enumerate(map(torch.cuda.get_device_properties, range(cuda)))
    ]


@contextlib.contextmanager
def hold_device(choice: DeviceChoice, say: Callable[[str], None]) -> Generator[HeldDevice]:
    """One of the devices that `choice` allows, for this process alone; waits while all are held.

    It asks torch, which starts CUDA: a process that opens an engine takes `hold_engine_device`.

    Raises:
        ConfigError: CUDA is asked for and there is none.
    """
    with hold_one_of(candidates(choice), say) as device:
        yield device


def device_facts(kind: Literal["cpu", "cuda"]) -> DeviceFacts:
    """What decides which schemes run on the device of that kind that this process has."""
    if kind == "cpu":
        # vLLM's kernels ask torch so, which has no public name for it.
        has_avx512 = torch.cpu._is_avx512_supported()  # pyright: ignore[reportPrivateUsage]
        return DeviceFacts("cpu", avx512=bool(has_avx512))
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    return DeviceFacts("cuda", name, capability)


def device_row(device: HeldDevice) -> dict[str, Any]:
    """The device as results show it."""
    if device.torch_name == "cpu":
        return cpu_device()
    return {"name": device.chip, "host": cpu_device(), "cuda": torch.version.cuda}
