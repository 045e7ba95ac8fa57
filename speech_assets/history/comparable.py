"""Which earlier results a result may be compared with, and what else has changed since.

What decides is how was measured: the device, the load or the judge, and how long. Weights, settings
and versions do not: that they made something worse is what a comparison is to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.errors import ConfigError
from speech_assets.results.provenance import utc_now
from speech_assets.results.result import slug
from speech_assets.results.stored import read_stored, stored_ids

if TYPE_CHECKING:
    from resources.store import Store

Stored = Mapping[str, Any]
"""A result as it was read."""
LAST_RUNS = 8
"""Earlier results that are looked at: two months of weekly ones."""
MEASURED_BY: Mapping[str, tuple[str, ...]] = {
    "load_tests": ("sweep", "client_shares_cores"),
    "wer": ("asr", "dnsmos", "speaker", "code_version"),
    "decode_speed": (*("measurement", "sampling", "prompt_tokens", "threads", "shape", "weights"),),
}
"""Kinds that are compared, and what of their config must be the same."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Results to compare with, oldest first, and of each that is left out one line that says why.

    Those left out are the ones after the last that was taken, newest first.
    """

    results: tuple[Stored, ...]
    left_out: tuple[str, ...] = ()


def earlier(store: Store, current: Stored, last: int = LAST_RUNS) -> Earlier:
    """The newest `last` results before `current` that it may be compared with.

    Those that lie in the future, which a clock that went wrong has left, are none of them.
    """
    now = utc_now()
    head = f"{current['kind']}/{slug(current['device']['name'])}/{slug(current['name'])}/"
    ids = [found for found in stored_ids(store, current["kind"]) if found.startswith(head)]
    taken: list[Stored] = []
    left_out: list[str] = []
    for found in sorted(ids, reverse=True):
        if len(taken) == last:
            break
        try:
            value = read_stored(store, found)
        except ConfigError as error:
            left_out += [] if taken else [str(error)]
            continue
        if value["name"] != current["name"] or value["started_at"] == current["started_at"]:
            continue
        if why := _later(value, current, now) or difference(value, current):
            left_out += [] if taken else [f"{value['started_at']}: {why}"]
        else:
            taken.append(value)
    return Earlier(tuple(reversed(taken)), tuple(left_out))


def difference(previous: Stored, current: Stored) -> str:
    """Why the two cannot be compared; empty where they can."""
    if previous["kind"] != current["kind"]:
        return f"it is of kind {previous['kind']}"
    if previous["status"] != "complete":
        return f"its status is {previous['status']}"
    if previous["reduced"] != current["reduced"]:
        return "it was shortened" if previous["reduced"] else "it was not shortened"
    if previous["config"].get("client_faults"):
        return "its client was late"
    for name in ("name", "cores"):
        if previous["device"].get(name) != current["device"].get(name):
            return f"another device ({name} {previous['device'].get(name)})"
    others = [
        name
        for name in MEASURED_BY[current["kind"]]
        if previous["config"].get(name) != current["config"].get(name)
    ]
    return f"measured otherwise ({', '.join(others)})" if others else ""


def _later(value: Stored, current: Stored, now: str) -> str:
    """Why a result is not one before `current`; empty where it is."""
    if value["started_at"] > now:
        return "it lies in the future; delete it, or measure it again where the clock is right"
    if value["started_at"] > current["started_at"]:
        return "it was started after this one"
    return ""


def changes(previous: Stored, current: Stored) -> list[str]:
    """What is not the same in two results that can be compared: where to look for a cause."""
    before, now = previous["config"], current["config"]
    found = [
        f"the preset's {word}"
        for word, names in (
            ("settings", ("settings", "preset_sha256")),
            ("weights", ("weights", "weights_sha256")),
        )
        if any(before.get(name) != now.get(name) for name in names)
    ]
    pairs = [(name, previous["software"], current["software"]) for name in current["software"]]
    pairs += [("driver", previous["device"], current["device"])]
    pairs += [("commit", previous["git"], current["git"])]
    for name, old, new in pairs:
        if name in old and name in new and old[name] != new[name]:
            # Of a commit and a driver the form of a result says nothing: they may be no text.
            found.append(f"{name} {old[name]!s:.12} -> {new[name]!s:.12}")
    return found
