"""Windows of long audio, and their words joined: none lost, none doubled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from speech_assets.asr.chunks import OVERLAP_S, WINDOW_S, Word, join, windows

RATE_HZ = 100


def said(text: str, start_s: float = 0.0, each_s: float = 0.5) -> list[Word]:
    """Words of `text`, one after the other, each with a pause of a tenth behind it."""
    return [
        Word(word, start_s + n * each_s, start_s + (n + 1) * each_s - 0.1)
        for n, word in enumerate(text.split())
    ]


def texts(words: list[Word]) -> str:
    return " ".join(word.text for word in words)


@given(st.integers(0, 20_000))
@example(0)
@example(3_000)
@example(3_001)
@example(5_500)
@example(5_501)
def test_windows_cover_all_and_share_five_seconds(count: int) -> None:
    parts = windows(count, RATE_HZ)
    assert sum(end - start for start, end in parts) == count + max(len(parts) - 1, 0) * (
        OVERLAP_S * RATE_HZ
    )
    assert all(0 < end - start <= WINDOW_S * RATE_HZ for start, end in parts)
    assert [start for start, _ in parts] == [2_500 * n for n in range(len(parts))]
    # No window lies wholly within the one before.
    assert all(end - start > OVERLAP_S * RATE_HZ for start, end in parts[1:])


def test_a_word_cut_at_either_border_gives_way_to_the_whole_one() -> None:
    earlier = said("we walked along the river and then to the br", 24.0)
    later = said("er and then to the bridge over it", 26.1)
    assert texts(join(earlier, later, 26.0, 28.5)) == (
        "we walked along the river and then to the bridge over it"
    )


@pytest.mark.parametrize("first_cut", [True, False])
@pytest.mark.parametrize("last_cut", [True, False])
def test_a_word_said_many_times_is_kept_as_often(first_cut: bool, last_cut: bool) -> None:
    whole = said("it is very very very very very good", 24.0)
    earlier, later = whole[:6], whole[3:]
    if first_cut:
        later = [replace(later[0], text="ry"), *later[1:]]
    if last_cut:
        earlier = [*earlier[:-1], replace(earlier[-1], text="ve")]
    assert join(earlier, later, whole[3].start_s, whole[5].end_s) == whole


def test_one_repeated_word_in_common_is_not_taken_for_its_neighbour() -> None:
    whole = said("no no no no", 24.0, each_s=0.25)
    earlier, later = whole[:3], [replace(whole[1], text="o"), *whole[2:]]
    assert join(earlier, later, 24.3, 24.8) == whole


def test_the_same_word_at_another_time_is_another() -> None:
    earlier, later = said("yes", 25.2), said("yes", 28.0)
    assert join(earlier, later, 25.0, 30.0) == [*earlier, *later]


def test_without_agreement_the_cut_is_in_the_longest_pause() -> None:
    earlier = [*said("one two", 24.0), *said("tree", 25.2), *said("fore", 28.0)]
    later = [*said("free", 25.2), *said("four five six", 28.0)]
    assert texts(join(earlier, later, 25.0, 30.0)) == "one two tree four five six"


def test_what_the_later_window_missed_behind_a_word_of_both_is_kept() -> None:
    earlier = said("we saw how the cat sat on the mat", 24.0)
    later = [replace(earlier[3], start_s=25.6), *said("and went home again", 30.1)]
    assert texts(join(earlier, later, 25.5, 30.5)) == (
        "we saw how the cat sat on the mat and went home again"
    )


def test_what_the_earlier_window_missed_before_a_word_of_both_is_kept() -> None:
    later = said("the cat sat on the mat and went home", 25.5)
    earlier = [*said("we saw how", 24.0), later[5]]
    assert texts(join(earlier, later, 25.4, 30.4)) == (
        "we saw how the cat sat on the mat and went home"
    )


@pytest.mark.parametrize("start_s", [25.2, 28.8])
def test_words_that_the_other_window_writes_as_one_are_not_doubled(start_s: float) -> None:
    apart = [*said("route", start_s), *said("twenty five", start_s + 0.5), *said("on", 30.2)]
    whole = [apart[0], Word("25", apart[1].start_s, apart[2].end_s), apart[3]]
    is_early = start_s < 27
    for earlier, later in ((apart, whole), (whole, apart)):
        assert join(earlier, later, 25.0, 30.0) == (earlier if is_early else later)


def test_a_window_without_words_takes_none_away() -> None:
    words = said("all of these words stay where they are", 24.0)
    assert join(words, [], 25.0, 30.0) == words
    assert join([], words, 24.0, 29.0) == words
    assert join(words[:2], words[2:], 25.0, 30.0) == words
    assert join([], [], 25.0, 30.0) == []


@st.composite
def heard(draw: st.DrawFn) -> tuple[list[Word], list[list[Word]], list[tuple[float, float]]]:
    """A long utterance of few different words, and what each window hears of it.

    Words last and pause as speech has it; a window hears those that it has whole, with times off by
    up to a tenth of a second, and something else where a border cuts one.
    """
    vocabulary = draw(st.sampled_from(["very", "very good", "a b c d e f g", "no no yes"]))
    count = draw(st.integers(1, 260))
    longest_pause_s = draw(st.sampled_from([0.05, 0.4, 3.0, 8.0]))
    choice = draw(st.randoms(use_true_random=False))
    words: list[Word] = []
    at_s = choice.uniform(0, 2)
    for _ in range(count):
        length_s = choice.uniform(0.25, 0.8)
        words.append(Word(choice.choice(vocabulary.split()), at_s, at_s + length_s))
        pause_s = longest_pause_s * choice.random() if choice.random() < 0.2 else 0.0
        at_s += length_s + 0.05 + pause_s
    borders = [(a / RATE_HZ, b / RATE_HZ) for a, b in windows(int(at_s * RATE_HZ) + 1, RATE_HZ)]
    hearings: list[list[Word]] = []
    for from_s, to_s in borders:
        hearing: list[Word] = []
        for word in words:
            if word.end_s <= from_s or word.start_s >= to_s:
                continue
            start_s = max(from_s, word.start_s + choice.uniform(-0.1, 0.1))
            end_s = min(to_s, max(word.end_s + choice.uniform(-0.1, 0.1), start_s))
            cut = word.start_s < from_s or word.end_s > to_s
            hearing.append(Word("cut" if cut else word.text, start_s, end_s))
        hearings.append(hearing)
    return words, hearings, borders


@settings(deadline=None, max_examples=200, derandomize=True)
@given(heard())
def test_joined_windows_hold_every_word_once(
    case: tuple[list[Word], list[list[Word]], list[tuple[float, float]]],
) -> None:
    words, hearings, borders = case
    joined: list[Word] = []
    heard_s = 0.0
    for hearing, (from_s, to_s) in zip(hearings, borders, strict=True):
        joined = join(joined, hearing, from_s, heard_s)
        heard_s = to_s
    assert texts(joined) == texts(words)


@st.composite
def half_heard(draw: st.DrawFn) -> tuple[list[set[int]], list[list[Word]]]:
    """Two windows of numbered words: which are heard by either at all, and what each hears.

    Either may miss any word or hear another one, times are off by up to a twentieth of a second,
    and what a border cuts is heard otherwise.
    """
    choice = draw(st.randoms(use_true_random=False))
    missed, misheard = draw(st.sampled_from([(0.0, 0.3), (0.3, 0.0), (0.3, 0.3), (0.7, 0.2)]))
    words: list[Word] = []
    at_s = 22.0
    while at_s < 33:
        length_s = choice.uniform(0.25, 0.8)
        words.append(Word(str(len(words)), at_s, at_s + length_s))
        at_s += length_s + 0.05 + 2.0 * choice.random() * (choice.random() < 0.1)
    hearings: list[list[Word]] = []
    known: list[set[int]] = []
    for window, (from_s, to_s) in enumerate(((0.0, 30.0), (25.0, 55.0))):
        hearing: list[Word] = []
        for word in words:
            if word.end_s <= from_s or word.start_s >= to_s or choice.random() < missed:
                continue
            start_s = max(from_s, word.start_s + choice.uniform(-0.05, 0.05))
            end_s = min(to_s, max(word.end_s + choice.uniform(-0.05, 0.05), start_s))
            is_wrong = word.start_s < from_s or word.end_s > to_s or choice.random() < misheard
            text = f"{word.text}wrong{window}" if is_wrong else word.text
            hearing.append(Word(text, start_s, end_s))
        hearings.append(hearing)
        known.append({number_of(word) for word in hearing})
    return known, hearings


def number_of(word: Word) -> int:
    return int(word.text.partition("wrong")[0])


@settings(deadline=None, max_examples=300, derandomize=True)
@given(half_heard())
def test_only_what_both_windows_missed_is_lost_and_nothing_is_doubled(
    case: tuple[list[set[int]], list[list[Word]]],
) -> None:
    known, (earlier, later) = case
    numbers = [number_of(word) for word in join(earlier, later, 25.0, 30.0)]
    assert numbers == sorted(known[0] | known[1])
