"""What else runs while decode steps are measured, and whether output goes where it went before.

A process that captures an engine's log beside it takes cores, locks and the interpreter from it. So
CPU time is counted apart: of the stepping thread, of the engine's threads, of all other threads of
the process, and of the process that started it. What other processes take is seen by how long the
stepping thread could have run and had no core.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True)
class Quiet:
    """What else ran while steps did, in cores (CPU time over wall time); None where not known.

    Attributes:
        wall_s: of all runs.
        others_cores: of the process beside the stepping thread: the engine's own threads, torch's,
            ours.
        foreign_cores: of Python threads that the engine did not start, and of any thread that ended
            during a run, which the engine's do not.
        starter_cores: of the process that started this one.
        waited_share: share of the time in which the stepping thread could run and had no core.
        sole_thread: the engine steps in this thread alone, so that others have to be nothing.
        foreign_threads: names of those threads.
        stream_faults: how standard output or error is not the starter's own.
    """

    wall_s: float
    others_cores: float
    foreign_cores: float
    starter_cores: float | None
    sole_thread: bool
    waited_share: float | None = None
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
    """Adds up what else ran during several runs.

    `std_identities` are the `identity` of the starter's standard output and error.
    """

    def __init__(
        self,
        std_identities: list[list[int] | None],
        starter_pid: int,
        of_engine: set[threading.Thread],
    ) -> None:
        self._std_identities = std_identities
        self._starter_pid = starter_pid
        self._of_engine = of_engine
        self._sums = _Times()
        self._foreign_s = 0.0
        self._knows_starter = cpu_s(starter_pid) is not None
        self._knows_wait = waited_s() is not None
        self._names: set[str] = set()
        self._faults: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Add what runs while this is open."""
        foreign, threads, before = self._foreign(), _thread_cpu_s(), self._now()
        yield
        after, still, threads_after = self._now(), self._foreign(), _thread_cpu_s()
        self._faults += stream_faults(self._std_identities)
        passed = after.less(before)
        self._sums = self._sums.plus(passed)
        for thread, taken_s in still.items():
            self._foreign_s += taken_s - foreign.get(thread, 0.0)
            self._names.add(thread.name)
        # Python knows one that has ended no more; the system may, for a moment.
        for thread in foreign.keys() - still.keys():
            self._names.add(thread.name)
            taken_s = (threads_after or {}).get(thread.native_id or 0, foreign[thread])
            self._foreign_s += taken_s - foreign[thread]
        self._foreign_s += _ended_s(passed, threads, threads_after)

    def quiet(self, *, sole_thread: bool, faults_at_start: list[str]) -> Quiet:
        """What was seen."""
        sums = self._sums
        return Quiet(
            wall_s=sums.wall_s,
            others_cores=max(0.0, sums.process_s - sums.own_s) / sums.wall_s,
            foreign_cores=self._foreign_s / sums.wall_s,
            starter_cores=sums.starter_s / sums.wall_s if self._knows_starter else None,
            sole_thread=sole_thread,
            waited_share=sums.waited_s / sums.wall_s if self._knows_wait else None,
            foreign_threads=tuple(sorted(self._names)),
            stream_faults=tuple(dict.fromkeys([*faults_at_start, *self._faults])),
        )

    def _now(self) -> _Times:
        return _Times(
            wall_s=time.perf_counter(),
            process_s=time.process_time(),
            own_s=time.thread_time(),
            starter_s=cpu_s(self._starter_pid) or 0.0,
            waited_s=waited_s() or 0.0,
        )

    def _foreign(self) -> dict[threading.Thread, float]:
        """CPU seconds of Python threads that the engine did not start."""
        return {
            thread: cpu_s(thread.native_id, of_thread=True) or 0.0
            for thread in threading.enumerate()
            if thread not in self._of_engine
            and thread is not threading.main_thread()
            and thread.native_id is not None
        }


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds: of the wall, CPU time of this process, this thread and the starter, and those in
    which this thread waited for a core."""

    wall_s: float = 0.0
    process_s: float = 0.0
    own_s: float = 0.0
    starter_s: float = 0.0
    waited_s: float = 0.0

    def plus(self, other: _Times) -> _Times:
        return _Times(*(a + b for a, b in zip(self._all(), other._all(), strict=True)))

    def less(self, other: _Times) -> _Times:
        return _Times(*(a - b for a, b in zip(self._all(), other._all(), strict=True)))

    def _all(self) -> tuple[float, ...]:
        return self.wall_s, self.process_s, self.own_s, self.starter_s, self.waited_s


def waited_s() -> float | None:
    """Seconds in which this thread could run and had no core, since it began; None: not known.

    The second number of the thread's schedstat (Linux, Documentation/scheduler/sched-stats).
    """
    try:
        return int(_SCHEDSTAT.read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def _thread_cpu_s() -> dict[int, float] | None:
    """CPU seconds of every live thread of the process but this one, by id; None: not on Linux."""
    try:
        ids = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    except OSError:
        return None
    own = threading.get_native_id()
    found = {number: cpu_s(number, of_thread=True) for number in ids if number != own}
    return {number: taken_s for number, taken_s in found.items() if taken_s is not None}


def _ended_s(
    passed: _Times, before: dict[int, float] | None, after: dict[int, float] | None
) -> float:
    """CPU seconds of threads that ended meanwhile: what the process took, and no live thread."""
    if before is None or after is None:
        return 0.0
    living_s = sum(taken_s - before.get(number, 0.0) for number, taken_s in after.items())
    return max(0.0, passed.process_s - passed.own_s - living_s)


def cpu_s(number: int, *, of_thread: bool = False) -> float | None:
    """CPU seconds of a process of this user, or of a thread of this process; None: not known.

    The clock's number is what Linux makes of a process' or thread's (posix-timers.h).
    """
    try:
        return time.clock_gettime(~number << 3 | (6 if of_thread else 2))
    except (OSError, OverflowError):
        return None
