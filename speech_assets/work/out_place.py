"""Whether what `--out` names can be written, asked before minutes of work that would be lost."""

from __future__ import annotations

import os
import re
from pathlib import Path

from resources.errors import ResourceError, StoreError
from resources.process import process_name
from resources.store import Store
from speech_assets.errors import ConfigError

_PROBE = b"whether this place can be written\n"
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


def check_store(root: str) -> None:
    """Nothing, if the store at `root`, a folder or an fsspec URL, takes what is written to it.

    A folder is only looked at. Elsewhere an object is written and deleted: nobody else can say
    whether bucket, credentials and permissions are there.

    Raises:
        ConfigError: a folder cannot be written, or `root` is no place.
        StoreError: another place cannot.
    """
    if "://" not in root:
        if _URL.match(root):
            raise ConfigError(f"--out {root}: give a folder, or a URL such as s3://bucket/prefix")
        check_out(Path(root), is_file=False)
        return
    store = Store(root)
    try:
        if store.is_local:
            check_out(Path(store.path("")), is_file=False)
            return
        key = f".{process_name()}.probe"
        store.write_bytes(key, _PROBE)
        store.delete(key)
    except ResourceError as error:
        why = str(error).removeprefix(f"SPEECH_STORE={root!r} ")
        raise StoreError(f"--out {root}: {why}", retryable=error.retryable) from error
