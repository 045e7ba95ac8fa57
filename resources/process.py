"""The name of a process, by which what it left behind is known to be abandoned when it is gone."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def process_name() -> str:
    """`<host>-<pid>-<start>`: no later process of this machine has it, whatever its number."""
    return f"{socket.gethostname()}-{os.getpid()}-{_started_ticks(os.getpid())}"


def is_gone(name: str) -> bool:
    """Whether `name` is of a process of this machine that has ended; False for any other text."""
    host, _, rest = name.rpartition("-")[0].rpartition("-")
    started = name.rpartition("-")[2]
    if host != socket.gethostname() or not rest.isdigit() or not started.isdigit():
        return False
    return _started_ticks(int(rest)) != int(started)


def _started_ticks(pid: int) -> int:
    """Clock ticks from the machine's start to the process'; -1 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    # The name of the program, in brackets, may hold spaces and brackets. A zombie has ended.
    fields = stat.rpartition(")")[2].split()
    return -1 if fields[0] in ("Z", "X") else int(fields[19])
