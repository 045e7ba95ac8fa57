"""LibriTTS-R from where it is published: downloaded, and repacked into shards.

Downloads stay in the corpus' folder, so that only what is missing is fetched another time.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from resources.download import download
from resources.errors import DownloadError
from resources.hub import HubFile, Repository, fetch_file, remove_incomplete
from resources.part import held_bytes
from resources.remote import RemoteFile
from speech_assets.corpus import stored_split, tarball
from speech_assets.corpus.catalogue import corpus_catalogue
from speech_assets.corpus.dealing import assign_shards, remove_abandoned_spools
from speech_assets.corpus.download_folder import download_folder, refusal
from speech_assets.corpus.observation import Means, archive_url, check_known, observe_split
from speech_assets.corpus.pins import learn, pins_key, read_pins
from speech_assets.corpus.repack import repack_files
from speech_assets.corpus.room import UNPACKED_PER_PACKED, check_room
from speech_assets.corpus.shards import fingerprint
from speech_assets.corpus.sources import SourceFile, row_count
from speech_assets.corpus.stored_split import held_shards, store_shards
from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from resources.store import Store
    from speech_assets.corpus.stored_split import ArchivedShard
    from speech_assets.profiles import Corpus

CODE_VERSION = "1"


def code_version() -> str:
    """Changes when the same published content would give other shards."""
    return f"{CODE_VERSION}.{tarball.CODE_VERSION}.{stored_split.CODE_VERSION}"


def archive_split(
    corpus: Corpus, split: str, shards: int, store: Store, means: Means
) -> tuple[list[ArchivedShard], bool]:
    """Store the shards of `split`, fetching what is missing; returns them and whether any was made.

    Raises:
        ChangedError: what is published differs from the catalogue or from before.
        DownloadError: it cannot be had, or there is no room for it.
        CorpusError: it is damaged, or not what a corpus needs.
        StoreError: the store cannot be written.
    """
    known = read_pins(store, split)
    if known.get("rows") is not None and known.get("origin") == corpus.origin:
        check_known(corpus, split, known, store.path(pins_key(split)))
        _check_count(corpus, split, known["rows"], store.path(pins_key(split)))
        made_from = _made_from(corpus, known, shards)
        held = held_shards(store, split, shards, made_from, means.report)
        if held is not None:
            return held, False
    folder = download_folder(corpus, store)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / f".{split}.lock", timeout=0):
            known = observe_split(corpus, split, store, means)
            if corpus.origin == "openslr":
                return _from_archive(corpus, split, shards, store, folder, known, means), True
            return _from_hub(corpus, split, shards, store, folder, known, means), True
    except filelock.Timeout as error:
        raise DownloadError(
            f"{folder}: split {split} is being fetched by another process; wait for it, then run "
            "again",
            retryable=True,
        ) from error
    except OSError as error:
        raise refusal(corpus, folder, error) from error


def _from_archive(
    corpus: Corpus,
    split: str,
    shards: int,
    store: Store,
    folder: Path,
    known: Mapping[str, Any],
    means: Means,
) -> list[ArchivedShard]:
    entry = corpus_catalogue(corpus).archived[split]
    source, licence = _source_and_licence(corpus)
    url = archive_url(corpus, entry)
    server = known["servers"][url]
    remote = RemoteFile(
        url, known.get("size_bytes"), server.get("etag"), server.get("last_modified")
    )
    target, spool = folder / entry.file, folder / f"{entry.file}.spool"
    spool.unlink(missing_ok=True)  # A killed run's would take the room that is asked for.
    if remote.size_bytes is not None:
        held = held_bytes(remote, target, known.get("md5"))
        _check_room(folder, store, remote.size_bytes, held, split, means)
    else:
        means.report(
            f"{split}: neither {entry.file}'s server nor the catalogue says how large it is; "
            "whether there is room was not asked"
        )
    done = download(
        remote, target, md5=known.get("md5"), report=means.report, patience=means.patience
    )
    try:
        spooled = tarball.spool_archive(
            target,
            split,
            spool,
            source=source,
            licence=licence,
            report=means.report,
        )
        _check_count(corpus, split, len(spooled.clips), str(target))
        # Not before: of a damaged archive nothing is kept that a whole one would contradict.
        known = learn(
            store,
            split,
            {"md5": done.md5, "size_bytes": done.size_bytes, "rows": len(spooled.clips)},
        )
        ids = sorted(spooled.clips)
        rows = _in_shards(ids, shards, spooled.rows)
        made_from = _made_from(corpus, known, shards)
        return store_shards(corpus.name, split, rows, store, means.report, made_from)
    finally:
        spool.unlink(missing_ok=True)


def _from_hub(
    corpus: Corpus,
    split: str,
    shards: int,
    store: Store,
    folder: Path,
    known: Mapping[str, Any],
    means: Means,
) -> list[ArchivedShard]:
    catalogue = corpus_catalogue(corpus)
    entry = catalogue.on_hub[split]
    source, licence = _source_and_licence(corpus)
    repository = Repository(catalogue.repository, known["revision"], corpus.url)
    files = [
        HubFile(path, file["size_bytes"], file.get("sha256"))
        for path, file in sorted(known["files"].items())
    ]
    remove_abandoned_spools(folder)
    remove_incomplete(folder, entry.folder)
    here = [file for file in files if (folder / file.path).exists()]
    size_bytes = sum(file.size_bytes for file in files)
    held = sum(file.size_bytes for file in here)
    _check_room(folder, store, size_bytes, held, split, means)
    for number, file in enumerate(files, 1):
        fetch_file(repository, file, folder, means.patience, means.report)
        means.report(f"{split}: {number} of {len(files)} files")
    parquet = dataclasses.replace(
        corpus,
        kind="parquet",
        path=str(folder),
        source=source,
        licence=licence,
    )
    files_here = [SourceFile(folder / file.path) for file in files]
    rows = row_count(parquet, split, files_here)
    _check_count(corpus, split, rows, str(repository))
    known = learn(store, split, {"rows": rows})
    made_from = _made_from(corpus, known, shards)
    return repack_files(parquet, split, files_here, shards, store, means.report, made_from, folder)


def _check_count(corpus: Corpus, split: str, rows: int, where: str) -> None:
    """Compare a split's rows with what is published of them.

    Raises:
        CorpusError: they differ; the message has both numbers.
    """
    entry = corpus_catalogue(corpus).splits(corpus.origin)[split]
    if not rows:
        raise CorpusError(
            f"{where}: split {split} has no row; leave it out of corpora.{corpus.name}.take, or "
            "take another origin"
        )
    if entry.rows is not None and rows != entry.rows:
        raise CorpusError(
            f"{where}: split {split} has {rows} rows, the catalogue says {entry.rows}; if it was "
            "published anew, correct a catalogue of yours (corpora.NAME.catalogue)"
        )
    if entry.rows_at_most is not None and rows > entry.rows_at_most:
        raise CorpusError(
            f"{where}: split {split} has {rows} rows, the catalogue says at most "
            f"{entry.rows_at_most}, by which its shards were counted; correct a catalogue of yours "
            "(corpora.NAME.catalogue)"
        )


def _in_shards(
    ids: Sequence[str],
    shards: int,
    rows: Callable[[Sequence[str]], Iterator[dict[str, Any]]],
) -> Iterator[list[dict[str, Any]]]:
    """Rows of each shard in turn, of sorted ids; one shard's are in memory."""
    assigned = assign_shards(ids, shards)  # Ascending, as the ids are.
    for shard in range(shards):
        begin, end = bisect_left(assigned, shard), bisect_left(assigned, shard + 1)
        yield list(rows(ids[begin:end]))


def _made_from(corpus: Corpus, known: Mapping[str, Any], shards: int) -> str:
    """Changes when the published content, the corpus row or this code does; not with a mirror."""
    return fingerprint(
        code_version(),
        corpus.name,
        *_source_and_licence(corpus),
        shards,
        {name: known.get(name) for name in ("origin", "md5", "revision", "files", "rows")},
    )


def _source_and_licence(corpus: Corpus) -> tuple[str, str]:
    """What every row says of these: the corpus row's, or the catalogue's."""
    catalogue = corpus_catalogue(corpus)
    return corpus.source or catalogue.source, corpus.licence or catalogue.licence


def _check_room(
    folder: Path,
    store: Store,
    size_bytes: int,
    held: int,
    split: str,
    means: Means,
) -> None:
    """Room for what is yet to come, the spool, and the shards where they lie on this machine."""
    unpacked = size_bytes * UNPACKED_PER_PACKED
    needed: dict[Path, float] = {folder: size_bytes - held + unpacked}
    if store.is_local:
        root = Path(store.path(""))
        needed[root] = needed.get(root, 0.0) + unpacked
    check_room(needed, f"split {split}", means.free)
