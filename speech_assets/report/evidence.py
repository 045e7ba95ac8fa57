"""What a report is made from: the newest results of every kind, manifests and samples, with hashes.

A page lists these sources; reading them again by their hashes gives the same page (`check.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resources.errors import StoreError
from speech_assets.errors import ConfigError
from speech_assets.results.result import parse_result, result_key, slug
from speech_assets.results.stored import id_of, stored_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from resources.store import Store

OF_A_PRESET = ("fidelity", "decode_speed", "load_tests", "wer")
"""Kinds of results that are a preset's; of each the newest counts."""
OF_A_NAME = ("ladder", "ab", "codec_checkpoint")
"""Kinds whose results have names of their own; of each name the newest counts."""

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """A result as it stands in the store. `sha256` is of its file."""

    id: str
    key: str
    sha256: str
    value: Mapping[str, Any]

    @property
    def commit(self) -> str:
        """The first seven digits of the commit that it was made at; `UNKNOWN` without one."""
        return str(self.value["git"].get("commit", ""))[:7] or UNKNOWN

    @property
    def device(self) -> str:
        """The device that it was made on."""
        return str(self.value["device"]["name"])


@dataclass(frozen=True, slots=True)
class Sheet:
    """A JSON file of the store that is no result: a manifest, or what says which samples exist."""

    key: str
    sha256: str
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a report is made from.

    Attributes:
        profile: name of the profile whose presets are shown.
        presets: in the profile's order; the first is the one that others are compared with.
        written_at: when the report was written.
        results: by kind and then by preset or name.
        manifests: of the corpus' splits that have one.
        samples: of the presets that have some, by preset.
        unreadable: results that were passed over, each with the reason.
    """

    profile: str
    presets: tuple[str, ...]
    written_at: str
    results: tuple[Found, ...] = ()
    manifests: tuple[Sheet, ...] = ()
    samples: Mapping[str, Sheet] = field(default_factory=dict[str, Sheet])
    unreadable: tuple[str, ...] = ()

    def of(self, kind: str, preset: str) -> Found | None:
        """The result of that kind and preset; None: there is none."""
        return next((found for found in self.all_of(kind) if is_of(found.value, preset)), None)

    def all_of(self, kind: str) -> list[Found]:
        """The results of that kind."""
        return [found for found in self.results if found.value["kind"] == kind]

    def without(self, kind: str) -> list[str]:
        """Presets that have no result of that kind."""
        return [preset for preset in self.presets if self.of(kind, preset) is None]

    @property
    def is_embedded(self) -> bool:
        """Whether anything is of the small voice that ships with the project."""
        ladders = [str(found.value["config"]["preset"]["name"]) for found in self.all_of("ladder")]
        compared = [str(found.value["name"]) for found in self.all_of("ab")]
        names = (*self.presets, *ladders, *compared)
        return any(name.startswith("embedded") or " vs embedded" in name for name in names)

    @property
    def device(self) -> str:
        """The device of most results; a result of another one says so."""
        return _usual([found.device for found in self.results])

    @property
    def commit(self) -> str:
        """The commit of most results; a result of another one says so."""
        return _usual([found.commit for found in self.results])

    def doubts(self, found: Found) -> list[str]:
        """What a reader must know beside a result's figures."""
        value, config = found.value, found.value["config"]
        words = [str(value["status"])] * (value["status"] != "complete")
        words += ["reduced run"] * bool(value["reduced"])
        words += ["the client was late"] * bool(config.get("client_faults"))
        words += ["random weights"] * (config.get("weights") == "random")
        words += ["a codec without training"] * (config.get("trained") is False)
        words += [f"on {found.device}"] * (found.device != self.device)
        words += [f"commit {found.commit}"] * (found.commit != self.commit)
        words += ["uncommitted changes"] * bool(value["git"].get("dirty"))
        return words


def is_of(value: Mapping[str, Any], preset: str) -> bool:
    """Whether a result is that preset's: by its name, or with random weights by its config."""
    return value["name"] == preset or (
        value["kind"] == "decode_speed" and value["config"].get("preset") == preset
    )


def gather(
    store: Store, profile: str, presets: Sequence[str], corpus: str, written_at: str
) -> Evidence:
    """The newest results of every kind for `presets`, and the manifests of `corpus`.

    A result that cannot be read is passed over, and the next older one is taken.
    """
    results: list[Found] = []
    unreadable: list[str] = []
    for kind in OF_A_PRESET:
        ids = stored_ids(store, kind)
        for preset in presets:
            near = [found for found in ids if _name(found).startswith(slug(preset))]
            # A result of that very name before one that only measured the preset's shape.
            near.sort(key=lambda found: (_name(found) == slug(preset), _run(found)), reverse=True)
            results += _first(store, near, preset, unreadable)
    for kind in OF_A_NAME:
        ids = sorted(stored_ids(store, kind), key=_run, reverse=True)
        for name in dict.fromkeys(sorted(map(_name, ids))):
            results += _first(store, [f for f in ids if _name(f) == name], "", unreadable)
    return Evidence(
        profile=profile,
        presets=tuple(presets),
        written_at=written_at,
        results=tuple(results),
        manifests=tuple(
            sheet
            for sheet in _sheets(store, store.keys("manifests"))
            if sheet.value["corpus"] == corpus
        ),
        samples={
            preset: sheet
            for preset in presets
            for sheet in _sheets(store, [f"samples/{preset}/samples.json"])
        },
        unreadable=tuple(dict.fromkeys(unreadable)),
    )


def record_of(evidence: Evidence) -> dict[str, Any]:
    """What a page says of its sources, for machines: enough to gather the same again."""
    return {
        "profile": evidence.profile,
        "presets": list(evidence.presets),
        "written_at": evidence.written_at,
        "results": [
            {
                "id": found.id,
                "key": found.key,
                "sha256": found.sha256,
                "content_sha256": found.value.get("content_sha256", ""),
            }
            for found in evidence.results
        ],
        "manifests": [{"key": s.key, "sha256": s.sha256} for s in evidence.manifests],
        "samples": [
            {"preset": preset, "key": sheet.key, "sha256": sheet.sha256}
            for preset, sheet in evidence.samples.items()
        ],
        "unreadable": list(evidence.unreadable),
    }


def gather_recorded(store: Store, record: Mapping[str, Any]) -> tuple[Evidence, list[str]]:
    """What a page's record names, read again; and what is not as the record says."""
    faults: list[str] = []
    results = [
        Found(id_of(row["key"]), row["key"], row["sha256"], json.loads(data))
        for row in record["results"]
        if (data := _as_recorded(store, row, faults)) is not None
    ]
    sheets = {
        row["key"]: Sheet(row["key"], row["sha256"], json.loads(data))
        for row in [*record["manifests"], *record["samples"]]
        if (data := _as_recorded(store, row, faults)) is not None
    }
    evidence = Evidence(
        profile=record["profile"],
        presets=tuple(record["presets"]),
        written_at=record["written_at"],
        results=tuple(results),
        manifests=tuple(sheets[r["key"]] for r in record["manifests"] if r["key"] in sheets),
        samples={r["preset"]: sheets[r["key"]] for r in record["samples"] if r["key"] in sheets},
        unreadable=tuple(record["unreadable"]),
    )
    return evidence, faults


def sha256_of(data: bytes) -> str:
    """Hash of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def _first(store: Store, ids: Iterable[str], preset: str, unreadable: list[str]) -> list[Found]:
    """The first of `ids` that is a result, of `preset` where one is given; [] where none is."""
    for name in ids:
        key = f"results/{name}.json"
        try:
            data = store.read_bytes(key)
            value = parse_result(data, key)
            if result_key(value) != key:
                raise ConfigError(f"{key} holds the result {result_key(value)}")
        except (ConfigError, FileNotFoundError) as error:
            unreadable.append(str(error))
            continue
        if not preset or is_of(value, preset):
            return [Found(name, key, sha256_of(data), value)]
    return []


def _sheets(store: Store, keys: Iterable[str]) -> list[Sheet]:
    sheets: list[Sheet] = []
    for key in keys:
        if store.exists(key):
            data = store.read_bytes(key)
            try:
                sheets.append(Sheet(key, sha256_of(data), json.loads(data)))
            except ValueError as error:
                raise StoreError(
                    f"{store.path(key)} is not JSON ({error}); delete it and make it again"
                ) from error
    return sheets


def _as_recorded(store: Store, row: Mapping[str, Any], faults: list[str]) -> bytes | None:
    try:
        data = store.read_bytes(row["key"])
    except FileNotFoundError:
        faults.append(f"{row['key']}, which the page shows, is not in the store")
        return None
    if sha256_of(data) != row["sha256"]:
        faults.append(f"{row['key']} is not the file that the page shows: it was changed since")
        return None
    return data


def _name(found: str) -> str:
    return found.split("/")[-2]


def _run(found: str) -> str:
    return found.rpartition("/")[2]


def _usual(words: Sequence[str]) -> str:
    return Counter(words).most_common(1)[0][0] if words else ""
