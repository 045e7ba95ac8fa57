"""Long audio in windows that overlap, and their words joined so that none is lost or doubled.

Whisper hears 30 s at a time. Windows overlap by 5 s, so that a word cut at the end of one stands
whole in the next. What both heard is taken once, what one of them heard and the other missed too.

That holds while both windows' times of a word are within a tenth of a second of the truth. Further
off, a word that a border cuts may be kept beside its whole self, or a repeated one once too often.
Synthetic clips of 110 words in three to eight windows (600 at each error) gained one to three words
at errors of up to 0.1 s in none, 0.15 s in 14 %, 0.25 s in 37 % of them; none lost one. Clips of up
to 30 s have one window and nothing to join.
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
"""Hearings of a word that agree may be paired up to so far apart; it is no tolerance of the join.

Whisper's attention gives a word's times to a few tenths of a second, and gives a pause now to the
word before it, now to the one after."""
SAME_PLACE_S = 0.2
"""Hearings that sound otherwise are of one word where they begin or end so close to each other:
speech has three to five words a second, whose beginnings are further apart."""
_MISHEARD = 0.5  # What such a pair is worth, of one that agrees.


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

    Hearings of the same words are paired, in order, those that agree and are closest in time first.
    Of a pair the earlier window's is taken in the first half of the shared time, the later one's in
    the second: so a word cut at either border gives way to the other window's whole one. A word
    without a counterpart is kept, unless it lies within one that the other window has another
    hearing of ("twenty" and "five" beside "25").
    """
    first = next((n for n, word in enumerate(earlier) if word.end_s >= from_s - SAME_TIME_S), None)
    last = next((n for n, word in enumerate(later) if word.start_s > to_s + SAME_TIME_S), None)
    before = list(earlier if first is None else earlier[:first])
    ours = [] if first is None else list(earlier[first:])
    theirs, after = list(later[:last]), [] if last is None else list(later[last:])
    pairs = _pairs(ours, theirs)
    middle_s = (from_s + to_s) / 2
    of_pairs = [(ours[i], theirs[j]) for i, j in pairs]
    is_earlier = [_middle(one) < middle_s for one, _ in of_pairs]
    taken = [
        one if first else other for (one, other), first in zip(of_pairs, is_earlier, strict=True)
    ]
    from_earlier = [word for word, first in zip(taken, is_earlier, strict=True) if first]
    from_later = [word for word, first in zip(taken, is_earlier, strict=True) if not first]
    joined: list[Word] = []
    i = j = 0
    for n, (to_i, to_j) in enumerate([*pairs, (len(ours), len(theirs))]):
        alone = [word for word in ours[i:to_i] if not _is_within(word, from_later)]
        alone += [word for word in theirs[j:to_j] if not _is_within(word, from_earlier)]
        joined += sorted(alone, key=lambda word: word.start_s)
        joined += taken[n : n + 1]
        i, j = to_i + 1, to_j + 1
    return [*before, *joined, *after]


def _pairs(ours: Sequence[Word], theirs: Sequence[Word]) -> list[tuple[int, int]]:
    """Which words are hearings of one, in order: the pairs that are worth most together."""
    best = [[0.0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for i in range(len(ours) - 1, -1, -1):
        for j in range(len(theirs) - 1, -1, -1):
            pair = _worth(ours[i], theirs[j])
            paired = pair + best[i + 1][j + 1] if pair else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            found.append((i, j))
            i, j = i + 1, j + 1
    return found


def _worth(word: Word, other: Word) -> float:
    """How likely two hearings are of one word: 0 where they are not, to 1."""
    apart_s = _apart(word, other)
    # Squared, so that two words out of time do not outweigh one in time.
    near = max(0.0, 1 - apart_s / SAME_TIME_S) ** 2
    if _sound(word) == _sound(other):
        return near
    covers = _is_within(word, [other]) and _is_within(other, [word])
    return _MISHEARD * near if apart_s <= SAME_PLACE_S or covers else 0.0


def _is_within(word: Word, others: Sequence[Word]) -> bool:
    """Whether the middle of a word lies within one of the others."""
    return any(other.start_s <= _middle(word) <= other.end_s for other in others)


def _apart(word: Word, other: Word) -> float:
    """Seconds between two hearings: a pause beside a word moves one of its ends, not both."""
    return min(abs(word.start_s - other.start_s), abs(word.end_s - other.end_s))


def _middle(word: Word) -> float:
    return (word.start_s + word.end_s) / 2


def _sound(word: Word) -> str:
    return "".join(filter(str.isalnum, word.text.casefold())) or word.text
