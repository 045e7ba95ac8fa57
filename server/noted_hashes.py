"""Hashes of large files, noted with what tells a file from a changed or copied one.

Hashing takes 1 to 2 s a GB, so what made a checkpoint's checks notes in the checkpoint's folder
(`.hashes.json`) which hash each large file had, and the server reads that note instead of all the
file again: while the file is the same by device, inode, size and both times. The time of change is
the system's, which no program sets back; who copies, moves between disks or touches a file has it
hashed again at each start, until its checks are made again.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from server.errors import WeightsError
from server.files import read_json, sha256_of, write_json

if TYPE_CHECKING:
    from pathlib import Path

NOTES_FILE = ".hashes.json"
SCHEMA_VERSION = 1
_SETTLED_NS = 2_000_000_000
"""A file that changed more recently may change again within one tick of its file system's clock."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What of a file is another once it was written, copied, moved to another disk or touched."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    device: int


@dataclass(frozen=True, slots=True)
class Note:
    """The hash of a file in that state."""

    state: FileState
    sha256: str


_known: dict[FileState, str] = {}
"""Files that this process has hashed itself."""


def hash_of(path: Path, note: Note | None = None) -> str:
    """Hash of all bytes of the file `path`: the one that `note` has, if the file is still that one.

    A file that this process has hashed already is not read again while it is the same.
    """
    state = _state(path)
    if note is not None and note.state == state:
        return note.sha256
    if state in _known:
        return _known[state]
    started_ns = time.time_ns()
    sha256 = sha256_of(path)
    if _state(path) == state and started_ns - state.changed_ns > _SETTLED_NS:
        _known[state] = sha256
    return sha256


def read_notes(folder: Path) -> dict[str, Note]:
    """Notes in `folder` by the file's name; none where there are none, or they are damaged."""
    try:
        value = read_json(folder / NOTES_FILE)
        if value["schema_version"] != SCHEMA_VERSION:
            return {}
        return {
            name: Note(FileState(**row["state"]), _sha256(row["sha256"]))
            for name, row in value["files"].items()
        }
    except (WeightsError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def note_hashes(folder: Path) -> None:
    """Note in `folder` what this process has hashed of it; where that cannot be written, nothing.

    A file that was hashed within two seconds of its making is left out: it is noted the next time.
    """
    files: dict[str, object] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and (sha256 := _known.get(state := _state(path))):
            files[path.name] = {"state": asdict(state), "sha256": sha256}
    if files:
        with contextlib.suppress(OSError):  # It would only have saved time.
            write_json(folder / NOTES_FILE, {"schema_version": SCHEMA_VERSION, "files": files})


def _state(path: Path) -> FileState:
    found = path.stat()
    return FileState(
        found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev
    )


def _sha256(text: object) -> str:
    if not isinstance(text, str) or len(bytes.fromhex(text)) != 32:
        raise ValueError(f"{text!r} is no hash")
    return text
