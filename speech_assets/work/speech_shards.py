"""Speech shards from archive shards: read, decoded, stored, or found to be valid already."""

from __future__ import annotations

import json
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from server.frames import SAMPLE_RATE_HZ
from speech_assets.corpus.quarantine import (
    QuarantinedRow,
    count_reasons,
    read_quarantine,
    write_quarantine,
)
from speech_assets.corpus.shards import (
    ARCHIVE_SCHEMA,
    SPEECH_CODE_VERSION,
    SPEECH_SCHEMA,
    Shard,
    fingerprint,
    iterate_rows,
    read_footer,
    with_metadata,
    write_rows,
)
from speech_assets.corpus.speech_rows import SpeechRow
from speech_assets.errors import ShardError
from speech_assets.work.ahead import Ahead
from speech_assets.work.decoding_pool import TASK_ROWS
from speech_assets.work.speech_rate import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from resources.store import Store
    from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions

SHARDS_AHEAD = 1  # That are read while one is decoded,
ROWS_AHEAD = 256  # so many rows of each.
WRITERS = 2  # Shards that are compressed and stored beside it.


@dataclass(frozen=True, slots=True)
class Speech:
    """A speech shard that is there: its statistics, whether it was made now, and in what time.

    `stored_s` is when it was stored, of the monotonic clock; 0 where it was there already.
    """

    statistics: dict[str, Any]
    made: bool
    seconds: float = 0.0
    stored_s: float = 0.0


def make_shards(
    store: Store, shards: Iterable[Shard], options: SpeechOptions, pool: DecodingPool
) -> Iterator[tuple[Shard, Speech | ShardError]]:
    """Make the speech shards that no valid one is there of; what became of each, in order.

    Rows of the next shard are read, and the last shards compressed and stored, while one is
    decoded: beside sixteen decoding processes each of these alone would be what bounds them.

    Raises:
        StoreError: the store cannot be read or written.
    """
    todo = deque(shards)
    opened: deque[tuple[Shard, _Archive | Speech | ShardError]] = deque()
    behind: deque[tuple[Shard, Future[Speech] | Speech | ShardError]] = deque()
    with ThreadPoolExecutor(WRITERS, "store") as writers:
        try:
            while todo or opened:
                while todo and len(opened) < 1 + SHARDS_AHEAD:
                    shard = todo.popleft()
                    opened.append((shard, _opened(store, shard, options)))
                shard, archive = opened.popleft()
                if isinstance(archive, _Archive):
                    behind.append((shard, _decoded(store, shard, archive, pool, writers)))
                else:
                    behind.append((shard, archive))
                while len(behind) > WRITERS:
                    yield _settled(behind.popleft())
            while behind:
                yield _settled(behind.popleft())
        finally:
            for _, archive in opened:
                if isinstance(archive, _Archive):
                    archive.rows.close()


def stored_speech(
    store: Store,
    shards: Sequence[Shard],
    options: SpeechOptions,
    pool: DecodingPool,
    made_one: Callable[[], None] = lambda: None,
) -> list[Stored]:
    """Make speech shards that are not there; when each was stored, by the monotonic clock.

    `made_one` is called after each.

    Raises:
        ShardError: an archive shard is missing or damaged.
        StoreError: the store cannot be read or written.
    """
    stored: list[Stored] = []
    for _, found in make_shards(store, shards, options, pool):
        if isinstance(found, ShardError):
            raise found
        stored.append(Stored(found.stored_s, found.statistics["kept_s"]))
        made_one()
    return stored


def make_shard(
    store: Store, shard: Shard, options: SpeechOptions, pool: DecodingPool
) -> tuple[dict[str, Any], bool]:
    """Make one speech shard unless a valid one is there: its statistics, and whether it was made.

    Raises:
        ShardError: the archive shard is missing or damaged.
        StoreError: the store cannot be read or written.
    """
    [(_, found)] = make_shards(store, [shard], options, pool)
    if isinstance(found, ShardError):
        raise found
    return found.statistics, found.made


@dataclass(frozen=True, slots=True)
class _Archive:
    """An archive shard that is being read; `made_from` is the fingerprint of its speech."""

    made_from: str
    row_count: int
    rows: Ahead[dict[str, Any]]


def _opened(store: Store, shard: Shard, options: SpeechOptions) -> _Archive | Speech | ShardError:
    """The archive of a shard whose speech is to be made, or the speech where it is valid."""
    source_key = shard.object_key("archives")
    where = store.path(source_key)
    try:
        with store.open(source_key) as file:
            metadata, row_count = read_footer(file, ARCHIVE_SCHEMA, where)
    except FileNotFoundError:
        return ShardError(
            f"{where} is not there; materialize archives of split {shard.split!r} first"
        )
    except ShardError as error:
        return error
    if "content_sha256" not in metadata:
        return ShardError(
            f"{where} was not made by this project; delete it and materialize archives of split "
            f"{shard.split!r}"
        )
    made_from = fingerprint(SPEECH_CODE_VERSION, metadata["content_sha256"], options)
    if (held := _held_statistics(store, shard, made_from)) is not None:
        return Speech(held, made=False)

    def rows() -> Iterator[dict[str, Any]]:
        with store.open(source_key) as file:
            yield from iterate_rows(file, ARCHIVE_SCHEMA.names, TASK_ROWS, where)

    return _Archive(made_from, row_count, Ahead(rows(), ROWS_AHEAD))


def _decoded(
    store: Store, shard: Shard, archive: _Archive, pool: DecodingPool, writers: ThreadPoolExecutor
) -> Future[Speech] | ShardError:
    """Decode a shard and have it stored."""
    began_s = time.monotonic()
    set_aside: list[QuarantinedRow] = []
    kept: list[SpeechRow] = []
    seen: set[str] = set()
    try:
        for position, (row, outcome) in enumerate(pool.outcomes(archive.rows)):
            if isinstance(outcome, SpeechRow) and outcome.id in seen:
                outcome = QuarantinedRow(
                    row["id"], position, row["path"], "duplicate_id", "the first usable row is kept"
                )
            if isinstance(outcome, SpeechRow):
                seen.add(outcome.id)
                kept.append(outcome)
            else:
                set_aside.append(replace(outcome, row=position))
    except ShardError as error:
        return error
    finally:
        archive.rows.close()
    statistics = {
        "rows": archive.row_count,
        "kept_rows": len(kept),
        "kept_s": sum(row.sample_count for row in kept) / SAMPLE_RATE_HZ,
        "cut_s": sum(row.trim_start_samples + row.trim_end_samples for row in kept)
        / SAMPLE_RATE_HZ,
        "reasons": count_reasons(set_aside),
    }
    decoding_s = time.monotonic() - began_s

    def stored() -> Speech:
        began_s = time.monotonic()
        _store(store, shard, archive.made_from, statistics, kept, set_aside)
        now_s = time.monotonic()
        return Speech(statistics, True, decoding_s + now_s - began_s, stored_s=now_s)

    return writers.submit(stored)


def _store(
    store: Store,
    shard: Shard,
    made_from: str,
    statistics: dict[str, Any],
    kept: list[SpeechRow],
    set_aside: list[QuarantinedRow],
) -> None:
    # The quarantine first: a shard that is there says that its quarantine is there too.
    store.write(shard.quarantine_key("speech"), lambda file: write_quarantine(set_aside, file))
    schema = with_metadata(
        SPEECH_SCHEMA,
        {
            "fingerprint": made_from,
            "code_version": SPEECH_CODE_VERSION,
            "statistics": json.dumps(statistics, sort_keys=True),
        },
    )
    store.write(
        shard.object_key("speech"),
        lambda file: write_rows(file, schema, (row.as_dict() for row in kept), compression_level=1),
    )


def _settled(
    pending: tuple[Shard, Future[Speech] | Speech | ShardError],
) -> tuple[Shard, Speech | ShardError]:
    shard, found = pending
    if not isinstance(found, Future):
        return shard, found
    try:
        return shard, found.result()
    except ShardError as error:
        return shard, error


def _held_statistics(store: Store, shard: Shard, made_from: str) -> dict[str, Any] | None:
    key = shard.object_key("speech")
    try:
        with store.open(key) as file:
            metadata, rows = read_footer(file, SPEECH_SCHEMA, store.path(key))
        with store.open(shard.quarantine_key("speech")) as file:
            set_aside = len(read_quarantine(file))
    except (FileNotFoundError, ShardError):
        return None
    if metadata.get("fingerprint") != made_from:
        return None
    statistics: dict[str, Any] = json.loads(metadata["statistics"])
    whole = rows == statistics["kept_rows"] and rows + set_aside == statistics["rows"]
    return statistics if whole else None
