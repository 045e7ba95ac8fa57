"""A split's shards in the store, and the index that says what they were made from.

The index is written last: shards without it, or with that of another source, are made again.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.errors import StoreError
from speech_assets.corpus.shards import (
    ARCHIVE_SCHEMA,
    Shard,
    read_footer,
    with_metadata,
    write_rows,
)
from speech_assets.errors import CorpusError, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from resources.store import Store

CODE_VERSION = "1"  # Bump when the same rows would give other shards.
_ROW_GROUP_ROWS = 16  # Audio is large: a reader holds a group at a time.


@dataclass(frozen=True, slots=True)
class ArchivedShard:
    """One stored shard: its rows, bytes of audio and the hash of its content."""

    key: str
    rows: int
    audio_bytes: int
    content_sha256: str


def index_key(split: str) -> str:
    """Key of the object that says what the shards of a split are."""
    return f"archives/{split}/index.json"


def store_shards(
    corpus: str,
    split: str,
    rows_of_shards: Iterable[Sequence[dict[str, Any]]],
    store: Store,
    report: Callable[[str], None],
    made_from: str,
) -> list[ArchivedShard]:
    """Store one shard for each sequence of rows, then the index that makes them valid."""
    archived: list[ArchivedShard] = []
    for index, rows in enumerate(rows_of_shards):
        shard = Shard(split, index)
        archived.append(_store_shard(store, shard, rows))
        report(f"{shard.key}: {archived[-1].rows} rows")
    store.write_json(
        index_key(split),
        {
            "corpus": corpus,
            "fingerprint": made_from,
            "shards": [asdict(shard) for shard in archived],
        },
    )
    _remove_surplus(store, split, len(archived), report)
    return archived


def held_shards(
    store: Store, split: str, shards: int, made_from: str, report: Callable[[str], None]
) -> list[ArchivedShard] | None:
    """The stored shards when all are there and made from the same source; else None.

    What an earlier, larger form of the split left is then deleted.
    """
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
    _remove_surplus(store, split, shards, report)
    return held


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


def _store_shard(store: Store, shard: Shard, rows: Sequence[dict[str, Any]]) -> ArchivedShard:
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
