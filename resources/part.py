"""The first bytes of a file that is being downloaded, and the note that says whose they are."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from server.files import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from resources.remote import RemoteFile


def part_of(target: Path) -> Path:
    """Where the first bytes of `target` lie until it is whole."""
    return target.with_name(f"{target.name}.part")


def held_bytes(wanted: RemoteFile, target: Path, md5: str | None) -> int:
    """Bytes of `wanted` that are on this machine already, as `target` or as its first part."""
    with contextlib.suppress(OSError):
        return target.stat().st_size
    part = part_of(target)
    with contextlib.suppress(OSError):
        if why_foreign(part, wanted, md5) is None:
            return part.stat().st_size
    return 0


def why_foreign(part: Path, wanted: RemoteFile, md5: str | None) -> str | None:
    """Why a part cannot be gone on with, in words; None when it can.

    It can where the server says, by ETag or date, that it has that very content; or where the same
    `md5` was wanted of as many bytes before, be it of another mirror: the checksum judges the
    whole.
    """
    note = _note_of(part)
    if not note:
        return "nothing says whose they are"
    before = note.get("md5")
    if md5 is not None and before == md5 and note.get("size_bytes") == wanted.size_bytes:
        return None
    for name, now in asdict(wanted).items():
        if note.get(name) != now:
            return f"the file's {name} was {note.get(name)}, is {now}"
    if before not in (None, md5):
        return f"the file's md5 was {before}, is {md5}"
    if wanted.validator is None:
        return "the server gives neither ETag nor date, by which they could be told apart"
    return None


def is_noted(part: Path) -> bool:
    """Whether a part has a note, and so is one of a download."""
    return bool(_note_of(part))


def write_note(part: Path, wanted: RemoteFile, md5: str | None) -> None:
    """Before the first byte, so that there is never a part of which nobody knows whose it is."""
    write_json(_note_path(part), {**asdict(wanted), "md5": md5})


def delete_part(part: Path) -> None:
    """Delete a part and its note."""
    part.unlink(missing_ok=True)
    delete_note(part)


def delete_note(part: Path) -> None:
    """Delete the note of a part that is whole, and no part any more."""
    _note_path(part).unlink(missing_ok=True)


def _note_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _note_of(part: Path) -> dict[str, Any]:
    """What the note of a part says, {} when there is none that can be read."""
    try:
        note = json.loads(_note_path(part).read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
