"""What else runs while decode steps are measured, and whether output goes where it went before.

A process that captures an engine's log beside it takes cores, locks and the interpreter from it. So
CPU time is counted apart: of the stepping thread, of the engine's threads, of all other threads of
the process, and of the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


@dataclass(frozen=True, slots=True)
class Quiet:
    """What else ran while steps did, in cores (CPU time over wall time); None where not known.

    Attributes:
        wall_s: of all runs.
        others: of the process beside the stepping thread: the engine's own threads, torch's, ours.
        foreign: of Python threads that the engine did not start.
        starter: of the process that started this one.
        sole_thread: the engine steps in this thread alone, so that `others` has to be nothing.
        foreign_threads: names of those threads.
        stream_faults: how standard output or error is not the starter's own.
    """

    wall_s: float
    others: float
    foreign: float
    starter: float | None
    sole_thread: bool
    foreign_threads: tuple[str, ...] = ()
    stream_faults: tuple[str, ...] = ()


def identity(fd: int) -> list[int] | None:
    """What a file descriptor is, the same for whoever inherits it; None: it is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return [found.st_dev, found.st_ino, found.st_rdev]


def stream_faults(expected: list[list[int] | None]) -> list[str]:
    """How standard output and error are not the starter's own, as they are now."""
    found: list[str] = []
    for fd, name, of_starter in zip((1, 2), ("stdout", "stderr"), expected, strict=True):
        if identity(fd) != of_starter:
            found.append(f"{name} of the measured process is not its starter's: it is redirected")
        stream, original = getattr(sys, name), getattr(sys, f"__{name}__")
        if stream is not original or (stream is not None and stream.fileno() != fd):
            found.append(f"sys.{name} of the measured process was replaced")
    return found


class Watch:
    """Adds up what else ran during several runs."""

    def __init__(
        self,
        streams_of: list[list[int] | None],
        starter_pid: int,
        of_engine: set[threading.Thread],
    ) -> None:
        self._streams_of = streams_of
        self._starter_pid = starter_pid
        self._of_engine = of_engine
        self._sums = {"wall": 0.0, "process": 0.0, "own": 0.0, "foreign": 0.0, "starter": 0.0}
        self._knows_starter = cpu_s(starter_pid) is not None
        self._names: set[str] = set()
        self._faults: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Add what runs while this is open."""
        before, foreign = self._now(), self._foreign()
        yield
        after = self._now()
        self._faults += stream_faults(self._streams_of)
        for name in self._sums:
            self._sums[name] += after[name] - before[name]
        for thread, cpu_s in self._foreign().items():
            self._sums["foreign"] += cpu_s - foreign.get(thread, 0.0)
            self._names.add(thread.name)

    def quiet(self, *, sole_thread: bool, stream_faults: list[str]) -> Quiet:
        """What was seen."""
        wall_s = self._sums["wall"]
        return Quiet(
            wall_s=wall_s,
            others=max(0.0, self._sums["process"] - self._sums["own"]) / wall_s,
            foreign=self._sums["foreign"] / wall_s,
            starter=self._sums["starter"] / wall_s if self._knows_starter else None,
            sole_thread=sole_thread,
            foreign_threads=tuple(sorted(self._names)),
            stream_faults=tuple(dict.fromkeys([*stream_faults, *self._faults])),
        )

    def _now(self) -> Mapping[str, float]:
        return {
            "wall": time.perf_counter(),
            "process": time.process_time(),
            "own": time.thread_time(),
            "foreign": 0.0,
            "starter": cpu_s(self._starter_pid) or 0.0,
        }

    def _foreign(self) -> dict[threading.Thread, float]:
        """CPU seconds of Python threads that the engine did not start."""
        return {
            thread: cpu_s(thread.native_id, of_thread=True) or 0.0
            for thread in threading.enumerate()
            if thread not in self._of_engine
            and thread is not threading.main_thread()
            and thread.native_id is not None
        }


def cpu_s(number: int, *, of_thread: bool = False) -> float | None:
    """CPU seconds of a process of this user, or of a thread of this process; None: not known.

    The clock's number is what Linux makes of a process' or thread's (posix-timers.h).
    """
    try:
        return time.clock_gettime(~number << 3 | (6 if of_thread else 2))
    except (OSError, OverflowError):
        return None
