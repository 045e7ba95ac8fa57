"""A split's rows, in whatever files they come, as shards sorted by id.

An external sort in constant memory: the ids alone decide which shard each row belongs to; one pass
over the source deals the rows out to a spool per shard; each spool is sorted and stored.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import StoreError
from resources.process import is_gone, process_name
from speech_assets.corpus import sources
from speech_assets.corpus.shards import (
    ARCHIVE_SCHEMA,
    Shard,
    fingerprint,
    iterate_rows,
    read_footer,
    with_metadata,
    write_rows,
)
from speech_assets.errors import CorpusError, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from resources.store import Store
    from speech_assets.corpus.sources import SourceFile
    from speech_assets.profiles import Corpus

CODE_VERSION = "1"
_SPOOL_PREFIX = "speech-assets-repack-"
_SPOOL_ROWS = 16  # Rows held per shard before they go to its spool.
_ROW_GROUP_ROWS = 16  # Audio is large: a reader holds a group at a time.


@dataclass(frozen=True, slots=True)
class ArchivedShard:
    """One stored shard: its rows, bytes of audio and the hash of its content."""

    key: str
    rows: int
    audio_bytes: int
    content_sha256: str


def shard_count(rows: int, shard_rows: int) -> int:
    """Shards that `rows` make, at least one, at most `shard_rows` rows in each."""
    return max(1, -(-rows // shard_rows))


def assign_shards(ids: Sequence[str], shards: int) -> list[int]:
    """Shard of each row: sorted by id, dealt out evenly, rows of one id never parted.

    Rows of one id must meet in one shard, where the second is found to be a duplicate.
    """
    order = sorted(range(len(ids)), key=lambda row: ids[row])
    assigned = [0] * len(ids)
    for position, row in enumerate(order):
        same = position > 0 and ids[row] == ids[order[position - 1]]
        assigned[row] = assigned[order[position - 1]] if same else position * shards // len(ids)
    return assigned


def source_fingerprint(corpus: Corpus, split: str, files: Sequence[SourceFile], shards: int) -> str:
    """Changes when a source file, the corpus row or this code does."""
    return fingerprint(
        CODE_VERSION,
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


def index_key(split: str) -> str:
    """Key of the object that says what the shards of a split are."""
    return f"archives/{split}/index.json"


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
    if corpus.kind == "libritts-r":
        raise CorpusError(
            f"corpora.{corpus.name}: downloading LibriTTS-R is not built yet; fetch its "
            'parquet files yourself and describe them by a row of kind "parquet" in your '
            "SPEECH_PROFILES file"
        )
    _remove_abandoned_spools()
    made_from = source_fingerprint(corpus, split, files, shards)
    if (held := _held_shards(store, split, shards, made_from)) is not None:
        _remove_surplus(store, split, shards, report)
        return held, False
    ids = sources.read_ids(corpus, split, files)
    assigned = assign_shards(ids, shards)
    with tempfile.TemporaryDirectory(prefix=f"{_SPOOL_PREFIX}{process_name()}-") as folder:
        spools = [Path(folder) / f"{index}.parquet" for index in range(shards)]
        _deal(sources.read_rows(corpus, split, files), assigned, spools)
        archived = []
        for index, spool in enumerate(spools):
            shard = Shard(split, index)
            archived.append(_store_shard(store, shard, spool))
            spool.unlink(missing_ok=True)
            report(f"{shard.key}: {archived[-1].rows} rows")
    store.write_json(
        index_key(split),
        {
            "corpus": corpus.name,
            "fingerprint": made_from,
            "shards": [
                {
                    "key": shard.key,
                    "rows": shard.rows,
                    "audio_bytes": shard.audio_bytes,
                    "content_sha256": shard.content_sha256,
                }
                for shard in archived
            ],
        },
    )
    _remove_surplus(store, split, shards, report)
    return archived, True


def check_owner(store: Store, corpus: str) -> None:
    """Refuse a store that holds another corpus: the two would be mixed in card and dataset.

    Raises:
        CorpusError: the store holds another corpus.
    """
    for key in store.keys("archives"):
        if not key.endswith("/index.json"):
            continue
        index = _read_index(store, key)
        if index is not None and index["corpus"] != corpus:
            raise CorpusError(
                f"the store {store.root} holds corpus {index['corpus']!r} ({key}), not {corpus!r};"
                " set SPEECH_STORE to another place, or delete that store if you no longer need it"
            )


def _read_index(store: Store, key: str) -> dict[str, Any] | None:
    """A split's index, or None when it is not one: it can be made again from the source."""
    try:
        index = store.read_json(key)
        if not isinstance(index["corpus"], str) or not isinstance(index["fingerprint"], str):
            return None
        shards = [ArchivedShard(**row) for row in index["shards"]]
    except (FileNotFoundError, StoreError, TypeError, KeyError):
        return None
    return {**index, "shards": shards}


def _held_shards(
    store: Store, split: str, shards: int, made_from: str
) -> list[ArchivedShard] | None:
    """The stored shards when all are there and made from the same source; else None."""
    index = _read_index(store, index_key(split))
    if index is None or index["fingerprint"] != made_from:
        return None
    held: list[ArchivedShard] = index["shards"]
    if [row.key for row in held] != [Shard(split, number).key for number in range(shards)]:
        return None
    for row in held:
        key = Shard.parse(row.key).object_key("archives")
        try:
            with store.open(key) as file:
                metadata, rows = read_footer(file, ARCHIVE_SCHEMA, store.path(key))
        except (FileNotFoundError, ShardError):
            return None
        if rows != row.rows or metadata.get("content_sha256") != row.content_sha256:
            return None
    return held


def _remove_surplus(store: Store, split: str, shards: int, report: Callable[[str], None]) -> None:
    """Delete what an earlier, larger form of the split left: it would load beside the new one."""
    wanted = {Shard(split, number).key for number in range(shards)}
    keys = [
        key for asset in ("archives", "speech", "tokens") for key in store.keys(f"{asset}/{split}")
    ]
    keys += [key for key in store.keys("quarantine/speech") if Shard.is_of(split, Path(key).stem)]
    for key in keys:
        if key.endswith(".parquet") and Path(key).stem not in wanted:
            store.delete(key)
            report(f"removed {key}: the split has {shards} shards now")


def _remove_abandoned_spools() -> None:
    """Delete what killed processes left; a corpus' spools can be as large as the corpus."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SPOOL_PREFIX}*"):
        if is_gone(folder.name.removeprefix(_SPOOL_PREFIX).rpartition("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)


def _deal(rows: Iterable[dict[str, Any]], assigned: Sequence[int], spools: Sequence[Path]) -> None:
    """Append each row to the spool of its shard."""
    pending: list[list[dict[str, Any]]] = [[] for _ in spools]
    writers: dict[int, pq.ParquetWriter] = {}

    def flush(shard: int) -> None:
        if shard not in writers:
            writers[shard] = pq.ParquetWriter(spools[shard], ARCHIVE_SCHEMA, compression="none")
        writers[shard].write_table(pa.Table.from_pylist(pending[shard], ARCHIVE_SCHEMA))
        pending[shard].clear()

    try:
        for row, shard in zip(rows, assigned, strict=True):
            pending[shard].append(row)
            if len(pending[shard]) == _SPOOL_ROWS:
                flush(shard)
        for shard in range(len(spools)):
            flush(shard)
    finally:
        for writer in writers.values():
            writer.close()


def _store_shard(store: Store, shard: Shard, spool: Path) -> ArchivedShard:
    """Sort a spool by id and store it; a shard's rows (at most 1,000 clips) are held in memory."""
    with spool.open("rb") as file:
        rows = list(iterate_rows(file, ARCHIVE_SCHEMA.names, where=str(spool)))
    # Stable: of rows with one id, the first of the source stays first and is the one kept.
    rows.sort(key=lambda row: row["id"])
    digest = hashlib.sha256()
    audio_bytes = 0
    for row in rows:
        data = row["audio"]["bytes"]
        texts = {name: value for name, value in row.items() if name != "audio"}
        header = json.dumps([texts, data is None], sort_keys=True).encode()
        digest.update(struct.pack("<QQ", len(header), len(data or b"")))
        digest.update(header)
        digest.update(data or b"")
        audio_bytes += len(data or b"")
    content_sha256 = digest.hexdigest()
    schema = with_metadata(
        ARCHIVE_SCHEMA, {"content_sha256": content_sha256, "code_version": CODE_VERSION}
    )
    store.write(
        shard.object_key("archives"),
        lambda file: write_rows(
            file, schema, rows, row_group_rows=_ROW_GROUP_ROWS, compression_level=1
        ),
    )
    return ArchivedShard(shard.key, len(rows), audio_bytes, content_sha256)
