"""Files that are there whole or not at all, what one of JSON holds, and how one may be called."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, cast

from server.errors import ConfigurationError, WeightsError, shown

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
PLAIN_NAME = "1 to 100 letters, digits, '.', '-' and '_', the first a letter or digit"
"""What `is_plain_name` takes, in words."""
_LONGEST_PATH, _LONGEST_NAME = 4_095, 255  # Bytes, of Linux: it answers a longer one by an error.
_DEEPEST = 32  # Levels of a JSON value; what is read here has 6 at most.


def is_plain_name(text: str) -> bool:
    """Whether `text` can be a file's or folder's name on every system, hidden by none.

    No empty one, no path, nothing that begins as what lies beside a folder does (`.NAME.lock`).
    """
    return _PLAIN_NAME.fullmatch(text) is not None


def user_path(text: str) -> Path:
    """The path that somebody wrote: `~` and `~NAME` stand for homes.

    Raises:
        ConfigurationError: there is no such home, or the text is no path.
    """
    if "\0" in text:
        raise ConfigurationError(f"{shown(text)} is no path: a NUL is in it; take it out")
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) > _LONGEST_PATH or max(map(len, encoded.split(b"/"))) > _LONGEST_NAME:
        raise ConfigurationError(
            f"{shown(text)} is no path: it is longer than {_LONGEST_PATH:,} bytes, or a name in it "
            f"than {_LONGEST_NAME}; shorten it"
        )
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            f"{shown(text)}: {str(error).rstrip('.').lower()}; write the whole path"
        ) from error


def read_json(
    path: Path,
    *,
    absent: str = "is this the folder of a checkpoint?",
    remedy: str = "copy, download or make it again",
) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint or codec.

    Raises:
        WeightsError: there is no such file, or it holds something else.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise WeightsError(f"{path}: no such file; {absent}") from error
    except OSError as error:
        raise WeightsError(f"{path}: not readable as JSON: {error}; {remedy}") from error
    try:
        return parse_object(data)
    except ValueError as error:
        raise WeightsError(f"{path}: not readable as JSON: {error}; {remedy}") from error


def parse_object(data: bytes | str) -> dict[str, Any]:
    """The object that is all of a JSON text in UTF-8: every key once, every number finite.

    Raises:
        ValueError: `data` is none, or is nested deeper than anything that is read here.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value: object = json.loads(
            text,
            parse_float=_finite,
            parse_constant=_finite,
            object_pairs_hook=_once,
        )
    except RecursionError as error:
        raise ValueError(f"nested deeper than {_DEEPEST} levels") from error
    if not isinstance(value, dict):
        raise ValueError(f"it holds {type(value).__name__}, need an object")
    level: list[object] = [value]
    for _ in range(_DEEPEST):
        level = [item for holder in level for item in _items(holder)]
    if level:
        raise ValueError(f"nested deeper than {_DEEPEST} levels")
    return cast("dict[str, Any]", value)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands there twice")
    return value


def _items(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else []


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
