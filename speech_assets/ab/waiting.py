"""How long a server's threads could run and had no core: whether its times are its own.

Seen from outside, unlike decode speed's (`quantize.quiet`): a server has several threads, so that
their waiting is set against their own time and not the wall's. They and the client that asks want
the same cores, so that on few of them a tenth of the time is waited where nothing else runs at all
(docs/decisions.md); a comparison bears that, for both arms do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speech_assets.ab.memory import process_tree

WAITED_LIMIT = 0.25
"""Of a server's time: beyond it other processes have its cores."""

APART_LIMIT = 0.05
"""Between both arms: beyond it one was slowed and the other not."""

_PROC = Path("/proc")
_NS = 1e9


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Seconds that threads ran, and in which they could run and had no core."""

    ran_s: float = 0.0
    waited_s: float = 0.0


Threads = Mapping[tuple[int, int], CoreTime]
"""By process and thread, since each began."""


def core_times(pid: int) -> Threads:
    """Of the threads of the process and its descendants; empty where the system does not tell.

    The first two numbers of each thread's schedstat, in nanoseconds (Linux,
    Documentation/scheduler/sched-stats).
    """
    found: dict[tuple[int, int], CoreTime] = {}
    for process in process_tree(pid):
        for stat in (_PROC / str(process) / "task").glob("[0-9]*/schedstat"):
            try:
                ran, waited = map(int, stat.read_text("ascii").split()[:2])
            except (OSError, ValueError):
                continue  # It has ended meanwhile, or the kernel counts nothing.
            found[process, int(stat.parent.name)] = CoreTime(ran / _NS, waited / _NS)
    return found


def passed(before: Threads, after: Threads) -> CoreTime | None:
    """What was added meanwhile, of the threads that are there after; None where none is."""
    if not after:
        return None
    start = {thread: before.get(thread, CoreTime()) for thread in after}
    return CoreTime(
        sum(time.ran_s - start[thread].ran_s for thread, time in after.items()),
        sum(time.waited_s - start[thread].waited_s for thread, time in after.items()),
    )


def time_faults(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Why the times of a comparison do not count, a clause for each arm; empty where they do.

    Audio, words and voices do not depend on how long something took: they count all the same.
    """
    shares = {
        letter: figures[f"waited_share_{letter}"]["value"]
        for letter in ("a", "b")
        if f"waited_share_{letter}" in figures
    }
    faults = [
        f"the server of arm {letter.upper()} waited for a core in {share:.1%} of its time (limit "
        f"{WAITED_LIMIT:.0%}): other processes had it"
        for letter, share in shares.items()
        if share > WAITED_LIMIT
    ]
    if not faults and len(shares) == 2 and abs(shares["a"] - shares["b"]) > APART_LIMIT:
        faults = [
            f"the server of arm A waited for a core in {shares['a']:.1%} of its time, B's in "
            f"{shares['b']:.1%} (limit {APART_LIMIT:.0%} apart): other processes slowed one more"
        ]
    return faults
