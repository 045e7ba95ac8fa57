"""A split's rows, in whatever files they come, as shards sorted by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.corpus import sources, stored_split
from speech_assets.corpus.dealing import dealt_rows, remove_abandoned_spools, spool_folder
from speech_assets.corpus.shards import fingerprint
from speech_assets.corpus.stored_split import held_shards, store_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from resources.store import Store
    from speech_assets.corpus.sources import SourceFile
    from speech_assets.corpus.stored_split import ArchivedShard
    from speech_assets.profiles import Corpus


def shard_count(rows: int, shard_rows: int) -> int:
    """Shards that `rows` make, at least one, at most `shard_rows` rows in each."""
    return max(1, -(-rows // shard_rows))


def source_fingerprint(corpus: Corpus, split: str, files: Sequence[SourceFile], shards: int) -> str:
    """Changes when a source file, the corpus row or this code does."""
    return fingerprint(
        stored_split.CODE_VERSION,
        corpus.name,
        corpus.kind,
        list(corpus.columns),
        corpus.delimiter,
        corpus.split,
        corpus.source,
        corpus.licence,
        shards,
        [file.token() for file in files],
        sources.audio_tokens(corpus, split, files),
    )


def repack_split(
    corpus: Corpus,
    split: str,
    files: Sequence[SourceFile],
    shards: int,
    store: Store,
    report: Callable[[str], None],
) -> tuple[list[ArchivedShard], bool]:
    """Store the shards of `split`; returns them and whether anything had to be done.

    Raises:
        CorpusError: a source file is not what a corpus needs.
        StoreError: the store cannot be written.
    """
    remove_abandoned_spools()
    made_from = source_fingerprint(corpus, split, files, shards)
    if (held := held_shards(store, split, shards, made_from, report)) is not None:
        return held, False
    return repack_files(corpus, split, files, shards, store, report, made_from), True


def repack_files(
    corpus: Corpus,
    split: str,
    files: Sequence[SourceFile],
    shards: int,
    store: Store,
    report: Callable[[str], None],
    made_from: str,
    folder: Path | None = None,
) -> list[ArchivedShard]:
    """Store the shards of `split` from its files; rows are dealt out below `folder` meanwhile.

    Raises:
        CorpusError: a source file is not what a corpus needs.
        StoreError: the store cannot be written.
    """
    ids = sources.read_ids(corpus, split, files)
    with spool_folder(folder) as spools:
        rows = dealt_rows(sources.read_rows(corpus, split, files), ids, shards, spools)
        return store_shards(corpus.name, split, rows, store, report, made_from)
