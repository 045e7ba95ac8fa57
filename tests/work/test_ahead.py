"""Items made on a thread ahead: all of them, in order, no more than asked, and an end."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import pytest

from speech_assets.work.ahead import Ahead

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_all_items_come_in_order_and_the_end_stays_the_end() -> None:
    ahead = Ahead(range(100), 3)
    assert list(ahead) == list(range(100))
    assert list(ahead) == []
    ahead.close()


def test_an_error_comes_where_the_next_item_would_have() -> None:
    def two() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third is damaged")

    ahead = Ahead(two(), 8)
    assert [next(ahead), next(ahead)] == [1, 2]
    for _ in range(2):
        with pytest.raises(ValueError, match="the third is damaged"):
            next(ahead)
    ahead.close()


def test_no_more_is_made_ahead_than_was_asked_for_and_its_thread_ends() -> None:
    made: list[int] = []
    enough = threading.Event()

    def counting() -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            if len(made) >= 5:
                enough.set()
            yield number

    before = threading.active_count()
    ahead = Ahead(counting(), 4)
    assert enough.wait(60)  # Four in the queue, and one that waits for room.
    ahead.close()
    assert made == [0, 1, 2, 3, 4]
    assert threading.active_count() == before
    assert list(ahead) == [0, 1, 2, 3]  # What was made may be taken; then there is an end.
    assert list(ahead) == []


def test_whoever_waits_for_an_item_hears_that_it_was_closed() -> None:
    never = threading.Event()

    def nothing() -> Iterator[int]:
        never.wait(60)
        yield from ()

    ahead = Ahead(nothing(), 1)
    taken: list[list[int]] = []
    waiting = threading.Thread(target=lambda: taken.append(list(ahead)))
    waiting.start()
    threading.Timer(0.1, never.set).start()
    ahead.close()
    waiting.join(60)
    assert taken == [[]]
