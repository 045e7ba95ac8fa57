"""The lifeline of a process that the server starts: it ends when its starter does."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(by: signal.Signals = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Let this process end, by that signal, when the thread that started it does, however it ends.

    A socket's end tells that, too, but only to who reads it. `parent` is the id of the process that
    started it, where it is known: had that ended before this was asked for, Linux would tell of
    another one's end, so this process then ends at once.

    Raises:
        OSError: Linux does not do it.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, by) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG, {by}): {os.strerror(number)}")
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), by)


def leave_signals_to_parent() -> None:
    """Ignore Ctrl-C, which goes to the whole group, and SIGTERM, which a supervisor sends to all.

    What they mean is for the server's first process to say.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
