"""A process that writes a folder and is killed in the middle, at a step that the test chooses."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def write_and_die(write: Callable[[], object], after: int) -> int:
    """Exit code of a process that runs `write` and is killed before step `after` of it.

    Steps are flushes, renames and removals of folders.
    """
    process = multiprocessing.get_context("fork").Process(target=_dying, args=(write, after))
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def _dying(write: Callable[[], object], after: int) -> None:
    left = after

    def deadly(step: Callable[..., Any]) -> Callable[..., Any]:
        def count_down(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return step(*arguments, **named)

        return count_down

    os.fsync = deadly(os.fsync)
    Path.rename = deadly(Path.rename)  # pyright: ignore[reportAttributeAccessIssue]
    shutil.rmtree = deadly(shutil.rmtree)  # pyright: ignore[reportAttributeAccessIssue]
    write()
