"""How much memory a server takes: its processes together, or what they hold of a GPU."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Measure = Literal["device memory", "peak resident memory"]
_PROC = Path("/proc")
_QUERY = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB, and of what: a GPU's, now, or the resident memory of all processes at its highest.

    Pages that processes share (libraries) count in each, so that two servers of one machine are
    measured alike whether the other runs or not.
    """

    mib: float
    measure: Measure


def memory_of(pid: int, device: str) -> Memory | None:
    """Memory of the process and its descendants; None where the system does not tell.

    On a GPU it is what the driver says that they hold there, where it knows them by the numbers
    that we know (in a container it may not), else their resident memory.
    """
    pids = process_tree(pid)
    if device != "cpu" and (mib := device_mib(pids)) is not None:
        return Memory(mib, "device memory")
    mib = sum(peak_resident_mib(each) for each in pids)
    return Memory(mib, "peak resident memory") if mib else None


def process_tree(pid: int) -> list[int]:
    """The process and all that descend from it, as they are now."""
    parents: dict[int, int] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # It has ended meanwhile.
        # The program's name, in brackets, may hold spaces and brackets.
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    tree = [pid]
    for each in tree:
        tree += [child for child, parent in parents.items() if parent == each]
    return tree


def peak_resident_mib(pid: int) -> float:
    """The most memory that a process has had resident; 0 where the system does not tell."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", (_PROC / str(pid) / "status").read_text(), re.M)
    except OSError:
        return 0.0
    return int(found[1]) / 1_024 if found else 0.0


def device_mib(pids: list[int], command: str = "nvidia-smi") -> float | None:
    """What the driver says that these processes hold of all GPUs; None where it knows none."""
    try:
        done = subprocess.run(
            [command, *_QUERY], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    held = [
        float(memory)
        for process, memory in re.findall(r"^\s*(\d+),\s*([\d.]+)\s*$", done.stdout, re.M)
        if int(process) in pids
    ]
    return sum(held) if held else None
