"""The lifeline of a process that the server starts: it ends when its starter does."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Let this process end when the thread that started it does, however that ends.

    A socket's end tells that, too, but only to who reads it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def leave_signals_to_parent() -> None:
    """Ignore Ctrl-C, which goes to the whole group, and SIGTERM, which a supervisor sends to all.

    What they mean is for the server's first process to say.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
