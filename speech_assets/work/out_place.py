"""Whether what `--out` names can be written, asked before minutes of work that would be lost."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # A path has lost one of the two strokes.


def check_out(out: Path, *, is_file: bool) -> None:
    """Nothing, if the folder `out` (or the file, where `is_file`) is there or can be made.

    Raises:
        ConfigError: it cannot, or it is no place of this machine.
    """
    what = "file" if is_file else "folder"
    if _URL.match(str(out)):
        raise ConfigError(f"--out {out}: it is a URL; give a {what} of this machine")
    if "\0" in str(out):
        raise ConfigError(f"--out {str(out)!r}: no name has a NUL in it; give another {what}")
    try:
        if is_file and out.is_dir():
            raise ConfigError(f"--out {out}: it is a folder; give a file")
        place = out.absolute().parent if is_file else out.absolute()
        there = next(path for path in (place, *place.parents) if path.exists())
        is_folder, may_write = there.is_dir(), os.access(there, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"--out {str(out)!r}: {why}; give a {what} that can be made") from error
    if not is_folder:
        raise ConfigError(f"--out {out}: {there} is no folder; give a {what} that can be made")
    if not may_write:
        raise ConfigError(f"--out {out}: {there} cannot be written; give a {what} that can be made")
