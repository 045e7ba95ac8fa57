"""A folder that is filled beside its place and then put there: whole, the older one, or not there.

It is filled as `.NAME.part`. The older one goes away by a rename before the new one comes in by
another, so that a process that is killed between the two leaves none, and the older one under
`.NAME.old`: `restore` puts it back. All of it happens under the lock `.NAME.lock`.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from typing import TYPE_CHECKING

from filelock import FileLock

from server.files import sync

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextlib.contextmanager
def locked(target: Path, wait_s: float) -> Generator[None]:
    """Keep other processes from making `target`, once what killed ones left of it is mended.

    Raises:
        filelock.Timeout: another process has had it for `wait_s`; it is an OSError.
        OSError: `target` holds folders of others (`replace`).
    """
    _check_alone(target)  # Before anything is made, and before `restore` removes anything.
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(_beside(target, "lock"), timeout=wait_s):
        restore(target)
        yield


def part_of(target: Path) -> Path:
    """Where `target` is filled, by who holds its lock; not there after `locked`."""
    return _beside(target, "part")


def restore(target: Path) -> None:
    """Put back what a process had renamed away when it was killed, and drop what it had begun."""
    old = _beside(target, "old")
    if old.exists() and not target.exists():
        old.rename(target)
    for leftover in (old, part_of(target)):
        if leftover.exists():
            shutil.rmtree(leftover)


def replace(target: Path) -> None:
    """Make `target` what `part_of(target)` is, all of it on the disk first; the lock is held.

    The older one goes away, so that it must not be a folder of which others are made: it may hold
    no lock, and no folder that the new one does not have.

    Raises:
        OSError: the disk is full or cannot be written, or `target` holds folders of others; it is
            the older one or not there.
    """
    part, old = part_of(target), _beside(target, "old")
    _check_alone(target, part)
    for path in [*part.rglob("*"), part]:
        sync(path)
    if target.exists():
        target.rename(old)
    part.rename(target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)  # The next one that has the lock tries again.


def _check_alone(target: Path, part: Path | None = None) -> None:
    """Refuse a folder in which others are made: by their locks, and by folders besides its own.

    `part` is what would take its place; without it only locks tell.
    """
    if target.name in ("", ".", ".."):
        raise OSError(errno.EINVAL, "not the name of a folder", str(target))
    held = list(target.iterdir()) if target.is_dir() else []
    others = [
        path.name
        for path in held
        if (path.name.startswith(".") and path.name.endswith(".lock"))
        or (part is not None and path.is_dir() and not (part / path.name).is_dir())
    ]
    if others:
        raise OSError(
            errno.ENOTEMPTY, f"it holds {min(others)!r}, which is not its own", str(target)
        )


def _beside(target: Path, end: str) -> Path:
    return target.with_name(f".{target.name}.{end}")
