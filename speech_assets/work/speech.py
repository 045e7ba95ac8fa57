"""Archive shards to speech shards: decode, resample to 24 kHz, trim, or set aside with a reason.

Several worker processes decode; this one reads, keeps the order and writes. A row whose bytes crash
a decoder costs that row and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from resources.store import Store
from server.frames import SAMPLE_RATE_HZ
from speech_assets.cores import core_count
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
from speech_assets.corpus.speech_rows import SpeechRow, speech_row
from speech_assets.corpus.trim import TrimSettings
from speech_assets.errors import ShardError
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TASK_ROWS = 8
TASKS_AHEAD = 4  # Per worker: enough to keep it fed, few enough to bound memory.


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """What a speech shard depends on besides its input."""

    max_clip_s: float = 60.0
    trim: TrimSettings = field(default_factory=TrimSettings)


def main() -> None:
    """Entry point of `python -m speech_assets.work.speech`."""
    parser = worker.argument_parser("speech", __doc__ or "")
    parser.add_argument("--store", required=True, help="folder or fsspec URL of the store")
    parser.add_argument("--shards", nargs="+", required=True, help="shards, as train.000")
    parser.add_argument("--max-clip-s", type=float, default=60.0, help="longest clip that is kept")
    parser.add_argument(
        "--workers", type=int, default=None, help="decoding processes (default: one a core)"
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    options = SpeechOptions(max_clip_s=arguments.max_clip_s)
    shards = [Shard.parse(key) for key in arguments.shards]
    reporter.start(len(shards), "shards")
    failures: list[str] = []
    workers = core_count() if arguments.workers is None else max(1, arguments.workers)
    with DecodingPool(workers, options) as pool:
        for shard in shards:
            started_s = time.monotonic()
            try:
                statistics, made = make_shard(store, shard, options, pool)
            except ShardError as error:
                failures.append(str(error))
                reporter.result("failed", shard=shard.key, message=str(error))
                continue
            seconds = time.monotonic() - started_s
            reporter.result(
                "shard",
                shard=shard.key,
                made=made,
                seconds=seconds if made else 0.0,
                **statistics,
            )
            reporter.advance(1, shard=shard.key)
    if failures:
        raise ShardError(f"{len(failures)} of {len(shards)} shards failed: {'; '.join(failures)}")


def make_shard(
    store: Store, shard: Shard, options: SpeechOptions, pool: DecodingPool
) -> tuple[dict[str, Any], bool]:
    """Make the speech shard of `shard` unless a valid one is there: statistics, and whether made.

    Raises:
        ShardError: the archive shard is missing or damaged.
        StoreError: the store cannot be read or written.
    """
    source_key, key = shard.object_key("archives"), shard.object_key("speech")
    try:
        with store.open(source_key) as file:
            source_metadata, source_rows = read_footer(file, ARCHIVE_SCHEMA, store.path(source_key))
    except FileNotFoundError as error:
        raise ShardError(
            f"{store.path(source_key)} is not there; materialize archives of split "
            f"{shard.split!r} first"
        ) from error
    if "content_sha256" not in source_metadata:
        raise ShardError(
            f"{store.path(source_key)} was not made by this project; delete it and materialize "
            f"archives of split {shard.split!r}"
        )
    made_from = fingerprint(SPEECH_CODE_VERSION, source_metadata["content_sha256"], options)
    if (held := _held_statistics(store, shard, made_from)) is not None:
        return held, False
    set_aside: list[QuarantinedRow] = []
    kept: list[SpeechRow] = []
    with store.open(source_key) as file:
        seen: set[str] = set()
        for position, (row, outcome) in enumerate(
            pool.outcomes(
                iterate_rows(file, ARCHIVE_SCHEMA.names, TASK_ROWS, store.path(source_key))
            )
        ):
            if isinstance(outcome, SpeechRow) and outcome.id in seen:
                outcome = QuarantinedRow(
                    row["id"], position, row["path"], "duplicate_id", "the first usable row is kept"
                )
            if isinstance(outcome, SpeechRow):
                seen.add(outcome.id)
                kept.append(outcome)
            else:
                set_aside.append(replace(outcome, row=position))
    statistics = {
        "rows": source_rows,
        "kept_rows": len(kept),
        "kept_s": sum(row.sample_count for row in kept) / SAMPLE_RATE_HZ,
        "cut_s": sum(row.trim_start_samples + row.trim_end_samples for row in kept)
        / SAMPLE_RATE_HZ,
        "reasons": count_reasons(set_aside),
    }
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
        key,
        lambda file: write_rows(file, schema, (row.as_dict() for row in kept), compression_level=1),
    )
    return statistics, True


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


@dataclass(frozen=True, slots=True)
class _Task:
    rows: list[dict[str, Any]]
    executor: ProcessPoolExecutor
    future: Future[list[SpeechRow | QuarantinedRow]]


def decode_rows(
    rows: list[dict[str, Any]], options: SpeechOptions
) -> list[SpeechRow | QuarantinedRow]:
    """What becomes of archive rows; runs in a decoding process."""
    return [speech_row(row, options.max_clip_s, options.trim) for row in rows]


class DecodingPool:
    """Decoding processes; outcomes come back in the order of the rows.

    `decode` is what they run; whatever it does to its process costs the row it did it on, no more.
    """

    def __init__(
        self,
        workers: int,
        options: SpeechOptions,
        decode: Callable[
            [list[dict[str, Any]], SpeechOptions], list[SpeechRow | QuarantinedRow]
        ] = decode_rows,
    ) -> None:
        self._workers = workers
        self._options = options
        self._decode = decode
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> DecodingPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._shut_down()

    def outcomes(
        self, rows: Iterator[dict[str, Any]]
    ) -> Iterator[tuple[dict[str, Any], SpeechRow | QuarantinedRow]]:
        """Each row with what became of it, in order; a bounded number of rows is in memory."""
        waiting: deque[_Task] = deque()
        for task_rows in _chunks(rows, TASK_ROWS):
            waiting.append(self._submit(task_rows))
            if len(waiting) >= self._workers * TASKS_AHEAD:
                yield from self._collect(waiting.popleft())
        while waiting:
            yield from self._collect(waiting.popleft())

    def _submit(self, rows: list[dict[str, Any]]) -> _Task:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self._workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=worker.die_with_parent,
            )
        try:
            future = self._executor.submit(self._decode, rows, self._options)
        except BrokenProcessPool as error:
            future = Future()
            future.set_exception(error)
        return _Task(rows, self._executor, future)

    def _collect(self, task: _Task) -> Iterator[tuple[dict[str, Any], SpeechRow | QuarantinedRow]]:
        try:
            outcomes = task.future.result()
        except BrokenProcessPool:
            self._replace(task.executor)
            # Which row was it? Each goes alone through a fresh pool.
            outcomes = [self._alone(row) for row in task.rows]
        yield from zip(task.rows, outcomes, strict=True)

    def _alone(self, row: dict[str, Any]) -> SpeechRow | QuarantinedRow:
        # Twice: a process may also die of what others do to the machine's memory.
        for _ in range(2):
            task = self._submit([row])
            try:
                return task.future.result()[0]
            except BrokenProcessPool:
                self._replace(task.executor)
        return QuarantinedRow(
            row["id"], 0, row["path"], "decode_error", "these bytes kill the decoder's process"
        )

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        if self._executor is broken:
            self._shut_down()

    def _shut_down(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None


def _chunks(rows: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    while chunk := list(itertools.islice(rows, size)):
        yield chunk


if __name__ == "__main__":
    main()
