"""Processes that decode archive rows: what bytes do to one of them costs their row, no more."""

from __future__ import annotations

import itertools
import multiprocessing
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from speech_assets.corpus.quarantine import QuarantinedRow
from speech_assets.corpus.speech_rows import SpeechRow, speech_row
from speech_assets.corpus.trim import TrimSettings
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
