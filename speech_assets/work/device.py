"""Taking a device for one process at a time, by lock file: free again however its holder ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from filelock import FileLock, Timeout

from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

POLL_S = 0.5
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # From malloc.h.
DeviceChoice = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that this process holds: torch's name of it, the chip's name, and its lock's.

    torch counts the devices that CUDA_VISIBLE_DEVICES shows, so that one chip is `cuda:0` to one
    process and `cuda:1` to another; its UUID is the same to both.
    """

    torch_name: str
    chip: str
    lock_name: str


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
        return [HeldDevice("cpu", "CPU", "cpu")]
    return [
        HeldDevice(f"cuda:{i}", properties.name, f"cuda-{properties.uuid}")
        for i, properties in enumerate(map(torch.cuda.get_device_properties, range(cuda)))
    ]


@contextlib.contextmanager
def hold_device(choice: DeviceChoice, say: Callable[[str], None]) -> Generator[HeldDevice]:
    """One of the devices that `choice` allows, for this process alone; waits while all are held.

    The operating system drops the lock when the process ends, also after SIGKILL.
    """
    devices = candidates(choice)
    folder = Path(tempfile.gettempdir()) / f"speech-assets-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    said = False
    while True:
        for device in devices:
            lock = FileLock(folder / f"{device.lock_name}.lock")
            try:
                lock.acquire(blocking=False)
            except Timeout:
                continue
            try:
                yield device
            finally:
                lock.release()
            return
        if not said:
            names = ", ".join(device.torch_name for device in devices)
            say(f"waiting for a device: {names} held by other work (locks in {folder})")
            said = True
        time.sleep(POLL_S)
