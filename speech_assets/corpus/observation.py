"""What is published of LibriTTS-R now, beside the catalogue and what was seen before."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resources.errors import ChangedError
from resources.hub import Repository, commit_of, list_files
from resources.patience import Patience
from resources.remote import look
from speech_assets.corpus.catalogue import (
    ArchivedSplit,
    HubSplit,
    corpus_catalogue,
    taken_splits,
)
from speech_assets.corpus.pins import learn, pins_key, read_pins
from speech_assets.corpus.room import free_bytes
from speech_assets.corpus.shards import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from resources.store import Store
    from speech_assets.profiles import Corpus


@dataclass(frozen=True, slots=True)
class Means:
    """By what a split is fetched: how patiently, where to say it, and how free space is told."""

    report: Callable[[str], None]
    patience: Patience = dataclasses.field(default_factory=Patience)
    free: Callable[[Path], int] = free_bytes


def observe_split(corpus: Corpus, split: str, store: Store, means: Means) -> dict[str, Any]:
    """What is published of `split` now, and all that is known of it.

    What was seen is kept in the store. What the catalogue says is not: it may be corrected.

    Raises:
        ChangedError: it differs from the catalogue or from what was observed before.
        DownloadError: it cannot be reached, or is not there.
    """
    entry = corpus_catalogue(corpus).splits(corpus.origin)[split]
    if isinstance(entry, ArchivedSplit):
        known = _observe_archive(corpus, split, entry, store, means)
    else:
        known = _observe_hub(corpus, split, entry, store, means)
    return learn(store, split, {"version": content_token(known)}) | known


def check_known(corpus: Corpus, split: str, known: Mapping[str, Any], where: str) -> None:
    """Compare what is known of `split` with the catalogue, which may have been corrected since.

    Raises:
        ChangedError: they differ; the message has both values.
    """
    catalogue = corpus_catalogue(corpus)
    entry = catalogue.splits(corpus.origin)[split]
    said: dict[str, object] = {"rows": entry.rows}
    if isinstance(entry, ArchivedSplit):
        said |= {"size_bytes": entry.size_bytes, "md5": entry.md5}
    else:
        said |= {"repository": catalogue.repository, "revision": catalogue.revision}
    for name, value in said.items():
        if value is not None and known.get(name) not in (None, value):
            raise ChangedError(
                f"{where}: {name} of split {split} is {known[name]}, the catalogue says {value}; "
                "correct a catalogue of yours (corpora.NAME.catalogue), or delete that object to "
                "take what it says, and run again"
            )


def content_token(known: Mapping[str, Any]) -> str:
    """A hash that changes when what is published does, of what is known of a split.

    It is that of the first observation: what is learnt later (an md5, where nobody publishes one)
    is of the same content, which is the one that was observed as long as its object is there.
    """
    if "version" in known:
        return known["version"]
    content = {name: known.get(name) for name in ("origin", "md5", "revision", "files")}
    if known.get("md5") is None and "servers" in known:
        content["servers"] = known["servers"]
    return fingerprint(content, known.get("size_bytes"))


def archive_url(corpus: Corpus, entry: ArchivedSplit) -> str:
    """Address of a split's archive: the corpus row's mirror, or the catalogue's."""
    return f"{(corpus.url or corpus_catalogue(corpus).url).rstrip('/')}/{entry.file}"


def _observe_archive(
    corpus: Corpus, split: str, entry: ArchivedSplit, store: Store, means: Means
) -> dict[str, Any]:
    url = archive_url(corpus, entry)
    now = look(url, means.patience, means.report)
    if entry.size_bytes is not None and now.size_bytes not in (None, entry.size_bytes):
        raise ChangedError(
            f"{url} has {now.size_bytes} bytes, the catalogue says {entry.size_bytes}; if it was "
            "published anew, correct a catalogue of yours (corpora.NAME.catalogue)"
        )
    # One of them: computers behind one address may date the same bytes differently.
    told = {"etag": now.etag} if now.etag else {"last_modified": now.last_modified}
    server = {name: value for name, value in told.items() if value}
    facts: dict[str, Any] = {"origin": corpus.origin, "size_bytes": now.size_bytes}
    before = read_pins(store, split).get("servers", {}).get(url, server)
    if entry.md5 is None or before == server:
        facts["servers"] = {url: server}
    else:  # It judges every download; computers behind one address may tag the same bytes apart.
        means.report(
            f"{url}: ETag or Last-Modified was {_only(before)}, is {_only(server)}; its md5 "
            "is published, by which a download is judged"
        )
    said = {"size_bytes": entry.size_bytes, "md5": entry.md5}
    known = learn(store, split, facts)
    check_known(corpus, split, known, store.path(pins_key(split)))
    servers = {**known["servers"], url: server}
    return {**{name: value for name, value in said.items() if value}, **known, "servers": servers}


def _only(server: Mapping[str, str]) -> str:
    return ", ".join(server.values()) or "not told"


def _observe_hub(
    corpus: Corpus, split: str, entry: HubSplit, store: Store, means: Means
) -> dict[str, Any]:
    catalogue = corpus_catalogue(corpus)
    repository = Repository(catalogue.repository, catalogue.revision or "main", corpus.url)
    check_known(corpus, split, read_pins(store, split), store.path(pins_key(split)))
    if catalogue.revision is None:
        revision = commit_of(repository, means.patience, means.report)
        repository = dataclasses.replace(repository, revision=revision)
    _check_one_revision(corpus, split, repository, store)
    # Before files are listed: a branch that went on is said so, not by its files.
    learn(store, split, {"origin": corpus.origin, "revision": repository.revision})
    files = list_files(repository, entry.folder, means.patience, means.report)
    if entry.files is not None and len(files) != entry.files:
        raise ChangedError(
            f"{repository}: {entry.folder} has {len(files)} parquet files, the catalogue says "
            f"{entry.files}"
        )
    facts = {
        "repository": repository.name,
        "files": {
            file.path: {"size_bytes": file.size_bytes, "sha256": file.sha256} for file in files
        },
    }
    known = learn(store, split, facts)
    if gone := sorted(known["files"].keys() - {file.path for file in files}):
        raise ChangedError(
            f"{repository}: {gone[0]} was there and is not; the split has {len(files)} files, had "
            f"{len(known['files'])}"
        )
    return known


def _check_one_revision(corpus: Corpus, split: str, repository: Repository, store: Store) -> None:
    """A revision is of the whole repository: of two, one dataset would be mixed."""
    for other in taken_splits(corpus):
        known = read_pins(store, other)
        before = known.get("revision")
        if other != split and before not in (None, repository.revision):
            raise ChangedError(
                f"{repository}: split {split} would be of revision {repository.revision}, split "
                f"{other} is of {before} ({store.path(pins_key(other))}); give one of them as the "
                "revision in a catalogue of yours (corpora.NAME.catalogue), and delete the objects "
                "of splits that are of the other"
            )
