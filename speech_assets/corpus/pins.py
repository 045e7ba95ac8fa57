"""What was learnt of a published split, kept in the store: from then on it must stay so.

One object a split, `sources/<split>.json`. What is published may be moved to another server, so an
ETag and a date are kept by address; size, checksums, revision and number of rows are of the content
and hold for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from resources.errors import ChangedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from resources.store import Store

SCHEMA_VERSION = 1
_PREFIX = "sources/"
_LOCK_TIMEOUT_S = 60  # It is held while one small object is read and written.


class _Pins(TypedDict, total=False):
    """Types of what is kept; what is not among them is of a later version, and left alone."""

    schema_version: int
    origin: str
    repository: str
    revision: str
    size_bytes: int
    md5: str
    rows: int
    version: str
    servers: dict[str, dict[str, str]]
    files: dict[str, dict[str, int | str]]


_PINS = TypeAdapter(_Pins)


def pins_key(split: str) -> str:
    """Key in the store of what is known of a split's source."""
    return f"{_PREFIX}{split}.json"


def read_pins(store: Store, split: str) -> dict[str, Any]:
    """What is known of a split, {} when nothing was observed yet.

    Raises:
        StoreError: the object is damaged. It is not made again: it says what must stay so.
    """
    key = pins_key(split)
    pins: dict[str, Any] = {}
    try:
        pins = json.loads(store.read_bytes(key))
        _PINS.validate_python(pins, strict=True)
        fault = "" if pins.get("schema_version") == SCHEMA_VERSION else "another schema version"
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{': '.join(map(str, first['loc']))} is {first['input']!r:.50}"
    except (ValueError, RecursionError):
        fault = "no JSON"
    if fault:
        raise StoreError(
            f"{store.path(key)} is not what this version writes (schema version {SCHEMA_VERSION}): "
            f"{fault}; delete it to observe the source anew",
            retryable=False,
        )
    return pins


def learn(store: Store, split: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Add `facts` to what is known of a split and return all of it; None is "not known".

    Raises:
        ChangedError: a fact contradicts what was known: the message has both values.
        StoreError: what is known cannot be read or written.
    """
    with _alone(store, split):
        known = read_pins(store, split)
        learnt = _joined(known, facts, store.path(pins_key(split)), "")
        learnt["schema_version"] = SCHEMA_VERSION
        if learnt != known:
            store.write_json(pins_key(split), learnt)
    return learnt


@contextmanager
def _alone(store: Store, split: str) -> Generator[None]:
    """One at a time in a store of this machine: of two, the later would drop what the other learnt.

    An object store has no lock; there, observe a split while nothing fetches it.
    """
    if not store.is_local:
        yield
        return
    path = Path(store.path(pins_key(split)))
    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), timeout=_LOCK_TIMEOUT_S)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise StoreError(
            f"{path}: another process has held its lock for {_LOCK_TIMEOUT_S} s; end that process, "
            "then run again"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; set SPEECH_STORE to a folder that "
            "this user can write",
            retryable=False,
        ) from error
    try:
        yield
    finally:
        lock.release()


def _joined(
    known: Mapping[str, Any], facts: Mapping[str, Any], where: str, place: str
) -> dict[str, Any]:
    joined = dict(known)
    for name, value in facts.items():
        if value is None:
            continue
        before = known.get(name)
        if isinstance(value, Mapping):
            joined[name] = _joined(before or {}, value, where, f"{place}{name}: ")
        elif before is not None and before != value:
            raise ChangedError(
                f"{where}: {place}{name} was {before}, is {value}: what is published has changed; "
                "if you mean to take it as it is now, delete that object and what was made from it"
            )
        else:
            joined[name] = value
    return joined
