"""Long audio in windows that overlap, and their words joined so that none is lost or doubled.

Whisper hears 30 s at a time. Windows overlap by 5 s, so that a word cut at the end of one stands
whole in the next; where both heard the same words at the same time, one hands over to the other.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_S = 30.0  # What Whisper was trained with, and pads to.
OVERLAP_S = 5.0  # About 12 spoken words: several whole ones, wherever the borders cut.
SAME_TIME_S = 0.6
"""Two hearings of a word may differ so much in time.

Whisper's attention gives a word's times to a few tenths of a second, and gives a pause now to the
word before it, now to the one after."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as heard, punctuation with it, and when: seconds from the start of the audio."""

    text: str
    start_s: float
    end_s: float


def windows(sample_count: int, rate_hz: int) -> list[tuple[int, int]]:
    """First and end samples of the windows of a clip: one up to 30 s, none for no samples."""
    length, step = round(WINDOW_S * rate_hz), round((WINDOW_S - OVERLAP_S) * rate_hz)
    starts = itertools.chain([0], range(step, sample_count - length + step, step))
    return [(at, min(at + length, sample_count)) for at in starts if at < sample_count]


def join(earlier: Sequence[Word], later: Sequence[Word], from_s: float, to_s: float) -> list[Word]:
    """The words of two windows that share the time from `from_s` to `to_s`.

    The run of the same words at the same times counts most that is longest and closest in time:
    up to its end the earlier window is believed, then the later one. So a word cut at either border
    gives way to the other window's whole one, and of words said several times none is taken for
    its neighbour. Where nothing agrees, they are cut in the longest pause within the shared time.
    """
    first = next((n for n, word in enumerate(earlier) if word.end_s >= from_s), len(earlier))
    last = next((n for n, word in enumerate(later) if word.start_s > to_s), len(later))
    ends = _agreement(earlier[first:], later[:last])
    if ends is not None:
        return [*earlier[: first + ends[0]], *later[ends[1] :]]
    cut_s = _pause(earlier[first:], later[:last], from_s, to_s)
    return [
        *(word for word in earlier if _middle(word) < cut_s),
        *(word for word in later if _middle(word) >= cut_s),
    ]


def _agreement(earlier: Sequence[Word], later: Sequence[Word]) -> tuple[int, int] | None:
    """Where the best run of agreeing words ends in either; None if no word agrees."""
    best, ends = 0.0, None
    row: dict[int, float] = {}
    for i, word in enumerate(earlier):
        above, row = row, {}
        for j, other in enumerate(later):
            near = 1 - _apart(word, other) / SAME_TIME_S
            if near > 0 and _sound(word) == _sound(other):
                # Squared, so that two words out of time do not outweigh one in time.
                row[j] = above.get(j - 1, 0.0) + near**2
                if row[j] > best:
                    best, ends = row[j], (i + 1, j + 1)
    return ends


def _pause(earlier: Sequence[Word], later: Sequence[Word], from_s: float, to_s: float) -> float:
    """Middle of the longest time in which neither has a word; of all the time if there is none.

    Where one of them has no words at all there, all words of the other are kept.
    """
    if not earlier or not later:
        return from_s if not earlier else to_s
    longest, cut_s, heard_s = 0.0, (from_s + to_s) / 2, from_s
    for word in sorted([*earlier, *later], key=lambda word: word.start_s):
        if word.start_s - heard_s > longest:
            longest, cut_s = word.start_s - heard_s, (word.start_s + heard_s) / 2
        heard_s = max(heard_s, word.end_s)
    return to_s if to_s - heard_s > longest else cut_s


def _apart(word: Word, other: Word) -> float:
    """Seconds between two hearings: a pause beside a word moves one of its ends, not both."""
    return min(abs(word.start_s - other.start_s), abs(word.end_s - other.end_s))


def _middle(word: Word) -> float:
    return (word.start_s + word.end_s) / 2


def _sound(word: Word) -> str:
    return "".join(filter(str.isalnum, word.text.casefold())) or word.text
