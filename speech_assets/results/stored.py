"""Results in the store, by id.

An id is a result's key without its ends: `load_tests/<device>/<preset>/<run>`. Any tail of it that
only one result has will do.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from speech_assets.errors import ConfigError
from speech_assets.results.result import parse_result, slug

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resources.store import Store

_HEAD, _TAIL = "results/", ".json"


def stored_ids(store: Store, kind: str = "") -> list[str]:
    """Ids of all results in the store, or of those of a kind, by kind, device, name and time."""
    keys = store.keys(f"results/{kind}" if kind else "results")
    return [id_of(key) for key in keys if key.endswith(_TAIL)]


def newest(store: Store, kind: str, name: str, device: str = "") -> dict[str, Any] | None:
    """The result of that kind and name that was started last; None: there is none.

    On the device of that name; without one, on whatever device.
    """
    ids = [found for found in stored_ids(store, kind) if found.split("/")[-2] == slug(name)]
    if device:
        ids = [found for found in ids if found.split("/")[-3] == slug(device)]
    for found in sorted(ids, key=lambda found: found.rpartition("/")[2], reverse=True):
        value = read_stored(store, found)
        if value["name"] == name:
            return value
    return None


def newest_complete(store: Store, kind: str) -> list[dict[str, Any]]:
    """Of each device and name the newest complete result of that kind; damaged ones are left out.

    Complete is what counts; whether it was shortened, a result says itself.
    """
    found: dict[str, dict[str, Any]] = {}
    for known in reversed(stored_ids(store, kind)):  # Of one device and name by time.
        place = known.rpartition("/")[0]
        if place in found:
            continue
        with contextlib.suppress(ConfigError):
            value = read_stored(store, known)
            if value["status"] == "complete":
                found[place] = value
    return [found[place] for place in sorted(found)]


def stored_key(store: Store, wanted: str) -> str:
    """Key of the result of that id, or of which it is the tail.

    Raises:
        ConfigError: there is none, or more than one.
    """
    ids = stored_ids(store)
    found = [name for name in ids if name == wanted or name.endswith(f"/{wanted}")]
    if len(found) != 1:
        known = ", ".join(found or ids[-5:]) or "none"
        raise ConfigError(
            f"{wanted!r} is {'the tail of more than one' if found else 'neither a file nor'} "
            f"result of {store.path('results')}; there are: {known} (list --stored shows all)"
        )
    return f"{_HEAD}{found[0]}{_TAIL}"


def read_stored(store: Store, name: str) -> dict[str, Any]:
    """The result of that id.

    Raises:
        ConfigError: it is not a result of this schema, or it was edited.
    """
    key = f"{_HEAD}{name}{_TAIL}"
    return parse_result(store.read_bytes(key), store.path(key))


def marks(value: Mapping[str, Any]) -> str:
    """What a reader of a list must know of a result: not complete, shortened, or a late client."""
    words = [str(value["status"])] * (value["status"] != "complete")
    words += ["reduced"] * bool(value["reduced"])
    words += ["client late"] * bool(value["config"].get("client_faults"))
    return f"  ({', '.join(words)})" if words else ""


def id_of(key: str) -> str:
    """Id of the result of that key."""
    return key.removeprefix(_HEAD).removesuffix(_TAIL)
