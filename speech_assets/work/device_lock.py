"""Locks of devices: one holder at a time, free again however it ends. Nothing here loads torch."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from filelock import FileLock, Timeout

from speech_assets.cores import cpu_device_count
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

POLL_S = 0.5
DeviceChoice = Literal["auto", "cpu", "cuda"]
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_BUS_ORDER = "PCI_BUS_ID"  # That of nvidia-smi's numbers.


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that this process holds: torch's name of it, the chip's name, and its lock's.

    torch counts the devices that CUDA_VISIBLE_DEVICES shows, so that one chip is `cuda:0` to one
    process and `cuda:1` to another; its UUID is the same to both.
    """

    torch_name: str
    chip: str
    lock_name: str


CPU = HeldDevice("cpu", "CPU", "cpu")


def cpu_devices() -> list[HeldDevice]:
    """The CPU, as often as SPEECH_CPU_DEVICES says: each has a lock, all share the cores.

    Raises:
        ConfigError: SPEECH_CPU_DEVICES is not a whole number from 1 to 1,024.
    """
    more = (HeldDevice("cpu", "CPU", f"cpu-{number}") for number in range(1, cpu_device_count()))
    return [CPU, *more]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: what CUDA_VISIBLE_DEVICES calls it, its UUID ("GPU-..."), and the chip's name."""

    word: str
    uuid: str
    name: str


@contextlib.contextmanager
def hold_one_of(devices: Sequence[HeldDevice], say: Callable[[str], None]) -> Generator[HeldDevice]:
    """One of `devices`, for this process alone; waits while all are held, and says so once.

    The operating system drops the lock when the process ends, also after SIGKILL. Locks lie in the
    temporary folder, in one of this user's own: processes of another user, machine or temporary
    folder (TMPDIR, a container) are not kept apart from this one.

    Raises:
        ConfigError: where the locks are to lie is something else, or may not be written.
    """
    folder = Path(tempfile.gettempdir()) / f"speech-assets-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:  # A file or a dangling link of that name.
        raise _no_place(folder, "the folder of device locks", error) from error
    said = False
    while True:
        for device in devices:
            path = folder / f"{device.lock_name}.lock"
            lock = FileLock(path)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                continue
            except OSError as error:  # A folder or a link of that name.
                raise _no_place(path, "a device's lock", error) from error
            try:
                yield device
            finally:
                lock.release()
            return
        if not said:
            names = ", ".join(map(_said, devices))
            say(f"waiting for a device: {names} held by other work (locks in {folder})")
            said = True
        time.sleep(POLL_S)


@contextlib.contextmanager
def hold_engine_device(choice: DeviceChoice, say: Callable[[str], None]) -> Generator[HeldDevice]:
    """As `work.device.hold_device`, for a process or its children that open an engine.

    vLLM takes the first GPU that CUDA shows. Where there are several, CUDA_VISIBLE_DEVICES is set
    to the held one, for this process and those that it starts: before CUDA starts, which reads it
    then, so that GPUs are those that nvidia-smi lists. Numbers that the variable has already are
    taken as nvidia-smi's.

    Where nvidia-smi lists none, a GPU that is asked for has one lock: whether it is there, torch
    says (`find_device`).
    """
    gpus = [] if choice == "cpu" or not _torch_has_cuda() else visible_gpus(os.environ, list_gpus())
    devices = [HeldDevice(f"cuda:{gpu.word}", gpu.name, lock_name(gpu.uuid)) for gpu in gpus]
    unlisted = [HeldDevice("cuda:0", "GPU", "cuda-unlisted")]
    others = unlisted if choice == "cuda" else cpu_devices()
    with hold_one_of(devices or others, say) as held:
        if len(devices) < 2:  # The engine takes the right one by itself.
            yield held
            return
        before = {name: os.environ.get(name) for name in (VISIBLE, ORDER)}
        os.environ |= {VISIBLE: held.torch_name.removeprefix("cuda:"), ORDER: _BUS_ORDER}
        try:
            yield held
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def lock_name(uuid: str) -> str:
    """Name of a GPU's lock by its UUID, as nvidia-smi ("GPU-...") or torch (without) writes it."""
    return f"cuda-{uuid.removeprefix('GPU-')}"


def list_gpus(command: str = "nvidia-smi") -> list[Gpu]:
    """All GPUs, in nvidia-smi's order; none where there is no driver or it does not answer."""
    query = [command, "--query-gpu=index,uuid,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split(", ", 2) for line in done.stdout.splitlines() if line.count(", ") >= 2]
    return [Gpu(index, uuid, name.strip()) for index, uuid, name in rows]


def visible_gpus(environment: Mapping[str, str], gpus: Sequence[Gpu]) -> list[Gpu]:
    """Those of `gpus` that CUDA_VISIBLE_DEVICES leaves, by number or UUID, in its order.

    What nvidia-smi does not list so (a part of a GPU, "MIG-...") is taken by its word.
    """
    text = environment.get(VISIBLE)
    if text is None or not gpus:
        return list(gpus)
    found: list[Gpu] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word == "-1":  # CUDA looks no further.
            break
        fitting = [g for g in gpus if word == g.word or g.uuid.startswith(word)]
        found.append(fitting[0] if fitting else Gpu(word, word, word))
    return found


def _no_place(path: Path, what: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path}: {what} cannot be made: {error.strerror}; remove what is there, or set TMPDIR to "
        "another folder"
    )


def _said(device: HeldDevice) -> str:
    """What a user calls it: the CPU is `cpu` to torch, however many devices it is taken for."""
    return device.lock_name if device.torch_name == "cpu" else device.torch_name


def _torch_has_cuda() -> bool:
    try:
        return not importlib.metadata.version("torch").endswith("+cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
