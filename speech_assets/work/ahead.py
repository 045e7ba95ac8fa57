"""An iterator whose items are made on a thread of its own, a bounded number of them ahead."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
_LOOK_EVERY_S = 0.2
_END = object()


class Ahead(Generic[T]):
    """Items of `source`, at most `most` made and not taken.

    An error of the source is raised where its next item would have been taken. The thread ends with
    the source, or by `close`.
    """

    def __init__(self, source: Iterable[T], most: int) -> None:
        self._queue: queue.Queue[object] = queue.Queue(most)
        self._left = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._make, args=(source,), name="ahead", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more: the thread ends once the item that it is at is made."""
        self._left.set()
        self._thread.join()
        with contextlib.suppress(queue.Full):  # What is there may be taken; then there is an end.
            self._queue.put_nowait(_END)

    def __iter__(self) -> Ahead[T]:
        return self

    def __next__(self) -> T:
        if self._left.is_set() and self._queue.empty():
            raise StopIteration
        item = self._queue.get()
        if item is not _END:
            return cast("T", item)
        self._queue.put(_END)  # Asked again, it has ended still.
        if self._error is not None:
            raise self._error
        raise StopIteration

    def _make(self, source: Iterable[T]) -> None:
        try:
            for item in source:
                if not self._put(item):
                    return
        except BaseException as error:
            self._error = error
        self._put(_END)

    def _put(self, item: object) -> bool:
        while not self._left.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_EVERY_S)
            except queue.Full:
                continue
            return True
        return False
