"""The device of a process that holds torch: taken by lock file, described, its memory kept."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from speech_assets.errors import ConfigError
from speech_assets.quantize.schemes import DeviceFacts
from speech_assets.results.provenance import cpu_device
from speech_assets.work.device_lock import (
    DeviceChoice,
    HeldDevice,
    cpu_devices,
    hold_one_of,
    lock_name,
)

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


def take_turns_often() -> None:
    """Let Python's threads take turns every 0.2 ms instead of 5.

    The thread that launches kernels asks for the interpreter after each; where another reads or
    checks beside it, every launch could wait for 5 ms while the device has nothing to do.
    """
    sys.setswitchinterval(2e-4)


def keep_compiled() -> None:
    """Keep what torch.compile builds in the user's cache folder, not in the temporary one."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache / "speech-assets" / "compiled"))


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
        return cpu_devices()
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
