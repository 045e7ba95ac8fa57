"""What a report is made from: the newest results of every kind, manifests and samples, with hashes.

A page lists these sources; reading them again by their hashes gives the same page (`check.py`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from speech_assets.errors import ConfigError
from speech_assets.quality.samples import samples_key
from speech_assets.report.sheets import Sheet, parse_manifest, parse_samples
from speech_assets.results.result import parse_result, result_key, slug
from speech_assets.results.stored import id_of, stored_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from resources.store import Store

    Parse = Callable[[bytes, str], dict[str, Any]]

OF_A_PRESET = ("fidelity", "decode_speed", "load_tests", "wer")
"""Kinds of results that are a preset's; of each the newest counts that is complete and whole, else
the newest: a demo does not take the place of a measurement."""
OF_A_NAME = ("ladder", "ab", "codec_checkpoint")
"""Kinds whose results have names of their own; of each name one counts, chosen alike."""

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

    @property
    def is_valid(self) -> bool:
        """Whether it counts by its own rules."""
        return self.value["status"] == "complete"

    @property
    def faults(self) -> str:
        """What went wrong with the measuring, in the result's own words; empty if nothing did."""
        config = self.value["config"]
        found = (*(config.get("faults") or ()), *(config.get("client_faults") or ()))
        return "; ".join(" ".join(str(fault).split()) for fault in found)


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
        unreadable: files that were passed over, each with the reason.
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

    @property
    def measured(self) -> tuple[str, ...]:
        """Presets that have a result of any kind, or samples."""
        return tuple(
            preset
            for preset in self.presets
            if preset in self.samples or any(self.of(kind, preset) for kind in OF_A_PRESET)
        )

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
        """What a reader must know beside a result's figures; why it is invalid, `Found.faults`."""
        value, config = found.value, found.value["config"]
        words = [str(value["status"])] * (not found.is_valid)
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
    """The results of every kind that count for `presets`, and the manifests of `corpus`.

    A result that cannot be read is passed over, and the next older one is taken; a damaged
    manifest or description of samples is passed over, too.
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
    manifests = _sheets(store, store.keys("manifests"), parse_manifest, unreadable)
    samples = {
        preset: sheet
        for preset in presets
        for sheet in _sheets(store, [samples_key(preset)], parse_samples, unreadable)
    }
    return Evidence(
        profile=profile,
        presets=tuple(presets),
        written_at=written_at,
        results=tuple(results),
        manifests=tuple(sheet for sheet in manifests if sheet.value["corpus"] == corpus),
        samples=samples,
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
    presets: list[str] = record["presets"]
    results = [
        Found(id_of(row["key"]), row["key"], row["sha256"], value)
        for row in record["results"]
        if (value := _as_recorded(store, row, _parse_kept, faults)) is not None
    ]
    for found in results:
        if found.value["kind"] in OF_A_PRESET and not any(is_of(found.value, p) for p in presets):
            faults.append(
                f"{found.key} is of none of the presets that the page names: {', '.join(presets)}"
            )
    manifests = [
        Sheet(row["key"], row["sha256"], value)
        for row in record["manifests"]
        if (value := _as_recorded(store, row, parse_manifest, faults)) is not None
    ]
    samples = {
        row["preset"]: Sheet(row["key"], row["sha256"], value)
        for row in record["samples"]
        if (value := _as_recorded(store, row, parse_samples, faults)) is not None
    }
    evidence = Evidence(
        profile=record["profile"],
        presets=tuple(presets),
        written_at=record["written_at"],
        results=tuple(results),
        manifests=tuple(manifests),
        samples=samples,
        unreadable=tuple(record["unreadable"]),
    )
    return evidence, faults


def sha256_of(data: bytes) -> str:
    """Hash of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def _first(store: Store, ids: Iterable[str], preset: str, unreadable: list[str]) -> list[Found]:
    """Of `ids`, of `preset` where one is given, the first result that is complete and whole, else
    the first; [] where none is one."""
    found: list[Found] = []
    for name in ids:
        key = f"results/{name}.json"
        try:
            data = store.read_bytes(key)
            value = _parse_kept(data, key)
        except (ConfigError, FileNotFoundError) as error:
            unreadable.append(str(error))
            continue
        if not preset or is_of(value, preset):
            found.append(Found(name, key, sha256_of(data), value))
            if value["status"] == "complete" and not value["reduced"]:
                return found[-1:]
    return found[:1]


def _parse_kept(data: bytes, key: str) -> dict[str, Any]:
    """The result that `key` holds.

    Raises:
        ConfigError: it holds none, or another's.
    """
    value = parse_result(data, key)
    if result_key(value) != key:
        raise ConfigError(f"{key} holds the result {result_key(value)}")
    return value


def _sheets(store: Store, keys: Iterable[str], parse: Parse, unreadable: list[str]) -> list[Sheet]:
    """Of `keys` those that are there; one that `parse` refuses is passed over with the reason."""
    sheets: list[Sheet] = []
    for key in keys:
        if store.exists(key):
            data = store.read_bytes(key)
            try:
                sheets.append(Sheet(key, sha256_of(data), parse(data, key)))
            except ConfigError as error:
                unreadable.append(str(error))
    return sheets


def _as_recorded(
    store: Store, row: Mapping[str, Any], parse: Parse, faults: list[str]
) -> dict[str, Any] | None:
    try:
        data = store.read_bytes(row["key"])
    except FileNotFoundError:
        faults.append(f"{row['key']}, which the page shows, is not in the store")
        return None
    if sha256_of(data) != row["sha256"]:
        faults.append(f"{row['key']} is not the file that the page shows: it was changed since")
        return None
    try:
        return parse(data, row["key"])
    except ConfigError as error:
        faults.append(str(error))
        return None


def _name(found: str) -> str:
    return found.split("/")[-2]


def _run(found: str) -> str:
    return found.rpartition("/")[2]


def _usual(words: Sequence[str]) -> str:
    return Counter(words).most_common(1)[0][0] if words else ""
