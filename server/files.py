"""Files that are there whole or not at all, and how one is known by its bytes."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_json(path: Path, value: object) -> None:
    """Make the file `path` from a JSON value; its folder is made if need be.

    A reader sees the old file or the new one, also after the machine went down: it is written under
    a name of this process, flushed to the disk and renamed.

    Raises:
        OSError: it cannot be written there.
        TypeError, ValueError: `value` is none that JSON has.
    """
    text = json.dumps(value, indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    # By the process' number: two that write one file at once must not write into each other's.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk: a rename alone is not there yet."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Hash of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
