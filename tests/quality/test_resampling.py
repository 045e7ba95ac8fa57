"""Resampling against values worked by hand: small sets whose resamplings can be counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speech_assets.quality.resampling import (
    DETECTED,
    Estimate,
    counts_of,
    interval,
    paired_difference,
    smallest_detectable_difference,
)


def test_clips_of_a_sentence_are_one_draw() -> None:
    rows = [(7, 1, 10), (3, 2, 8), (7, 3, 10)]
    assert counts_of(rows) == {7: (4, 20), 3: (2, 8)}


def test_two_sentences_give_their_own_rates_as_the_interval() -> None:
    # Drawn are AA (a quarter), AB (a half) and BB: 0/8, 1/10 and 2/4 of two of each.
    # Their deviation: chances 1, 2, 1 of 4 of 0, 1/10 and 1/2.
    found = interval({0: (0, 8), 1: (1, 2)})
    error = math.sqrt((2 * 0.1**2 + 0.5**2) / 4 - ((2 * 0.1 + 0.5) / 4) ** 2)
    assert found == Estimate(0.1, 2, 0.0, 0.5, pytest.approx(error, rel=0.02))


def test_an_interval_ends_where_the_binomial_does() -> None:
    # Three sentences of 10 words, one of which has 9 wrong. It is drawn 0, 1, 2 or 3 times with
    # 8, 12, 6 and 1 chances in 27: three times with 3.7 %, above 2.5 %, so the end is 9/10.
    found = interval({0: (0, 10), 1: (0, 10), 2: (9, 10)})
    assert (found.value, found.sentences) == (pytest.approx(0.3), 3)
    assert (found.low, found.high) == (0.0, pytest.approx(0.9))
    # Of four it is drawn four times with 0.4 % and three times with 4.7 %: the end is 3/4 of 9/10.
    found = interval({0: (0, 10), 1: (0, 10), 2: (0, 10), 3: (9, 10)})
    assert (found.low, found.high) == (0.0, pytest.approx(0.675))


def test_long_sentences_weigh_more_than_short_ones() -> None:
    # The mean of the two rates would be 50 %.
    assert interval({0: (2, 2), 1: (0, 8)}).value == pytest.approx(0.2)


def test_a_difference_is_paired() -> None:
    # Hard and easy sentences, and each with one word more wrong: whatever is drawn, it is 1/10.
    theirs = {0: (0.0, 10.0), 1: (4.0, 10.0), 2: (8.0, 10.0)}
    ours = {number: (errors + 1, words) for number, (errors, words) in theirs.items()}
    found = paired_difference(ours, theirs)
    assert found == Estimate(*(pytest.approx(v) for v in (0.1, 3, 0.1, 0.1, 0.0)))
    # Alone, each is as uncertain as its sentences differ.
    alone = interval(ours)
    assert alone.high - alone.low > 0.5  # pyright: ignore[reportOptionalOperand]


def test_only_sentences_that_both_have_are_compared() -> None:
    ours, theirs = {1: (1.0, 4.0), 2: (9.0, 9.0)}, {1: (2.0, 4.0), 3: (0.0, 9.0)}
    assert paired_difference(ours, theirs) == Estimate(-0.25, 1)
    with pytest.raises(ValueError, match="no sentence"):
        paired_difference({1: (1, 4)}, {2: (1, 4)})


def test_a_difference_has_the_ends_of_its_own_resamplings() -> None:
    # Differences of the two sentences: +2/10 and -4/10; drawn AA, AB and BB.
    found = paired_difference({0: (3, 10), 1: (1, 10)}, {0: (1, 10), 1: (5, 10)})
    assert found == Estimate(
        *(pytest.approx(-0.1), 2, pytest.approx(-0.4), pytest.approx(0.2)),
        error=pytest.approx(0.3 / math.sqrt(2), rel=0.02),
    )


def test_one_sentence_has_no_interval() -> None:
    assert interval({4: (1, 5)}) == Estimate(0.2, 1)


@pytest.mark.parametrize(
    ("counts", "says"),
    [({}, "no sentence"), ({4: (1, 5), 9: (0, 0)}, "sentence 9 has nothing")],
)
def test_what_cannot_be_resampled_is_refused(counts: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        interval(counts)


def test_the_same_counts_give_the_same_interval_and_another_seed_another() -> None:
    counts = {number: (number % 4, 7 + number % 3) for number in range(30)}
    assert interval(counts) == interval(dict(reversed(counts.items())))
    assert interval(counts) != interval(counts, seed=1)


def test_the_detectable_difference_follows_from_how_two_seeds_differ() -> None:
    # Differences of 16 sentences of 10 words: +1 and -1 in turn, standard deviation 1/10 a
    # sentence; of the mean of 16 a quarter of that; two seeds of each configuration: over root 2.
    one = {n: (2.0, 10.0) for n in range(16)}
    other = {n: (3.0 if n % 2 else 1.0, 10.0) for n in range(16)}
    by_hand = (1.959964 + 0.841621) * 0.1 / math.sqrt(16) / math.sqrt(2)
    assert pytest.approx(2.801585) == DETECTED
    assert smallest_detectable_difference([one, other]) == pytest.approx(by_hand, rel=0.03)


def test_with_three_seeds_all_pairs_tell() -> None:
    # Seeds that differ by +-1/10, +-1/10 and not at all: the mean square is two thirds of 1/100.
    one = {n: (2.0, 10.0) for n in range(16)}
    other = {n: (3.0 if n % 2 else 1.0, 10.0) for n in range(16)}
    by_hand = DETECTED * math.sqrt(2 / 3) * 0.1 / math.sqrt(16) / math.sqrt(3)
    found = smallest_detectable_difference([one, other, dict(one)])
    assert found == pytest.approx(by_hand, rel=0.03)


def test_with_one_seed_sentences_are_taken_for_unpaired() -> None:
    # Rates 1/10 and 3/10 in turn: standard deviation 1/10; two such sets: times root 2.
    one = {n: (3.0 if n % 2 else 1.0, 10.0) for n in range(16)}
    by_hand = DETECTED * math.sqrt(2) * 0.1 / math.sqrt(16)
    assert smallest_detectable_difference([one]) == pytest.approx(by_hand, rel=0.03)


def test_no_set_detects_less_than_one_of_its_words() -> None:
    faultless = {n: (0.0, 5.0) for n in range(4)}
    assert smallest_detectable_difference([faultless, faultless]) == pytest.approx(1 / 40)
    assert smallest_detectable_difference([{1: (0.0, 5.0)}]) is None
    with pytest.raises(ValueError, match="no seed"):
        smallest_detectable_difference([])


def test_an_uneven_change_is_found_four_times_in_five_where_its_own_error_says_so() -> None:
    # Sentences are drawn of very many; three in ten of them become worse, the others do not change.
    # Of 30 with 24 words and a rate of 20 % before, such a change must be 2.8 errors of its own:
    # the error grows with it: 7.85 / 30 * (0.0143 + 0.0096 * 0.7 / 0.3) is 0.098 squared. What
    # is read off two seeds takes all to change alike, and is less.
    draw = np.random.default_rng(3)
    words, rate, share, trials, own = 24, 0.2, 0.3, 200, 0.098

    def side(rates: np.ndarray) -> dict[int, tuple[float, float]]:
        return {n: (float(draw.binomial(words, r)), float(words)) for n, r in enumerate(rates)}

    alike = np.full(30, rate)
    halves = [{n: (e / 2, w / 2) for n, (e, w) in side(alike).items()} for _ in range(2)]
    planned = smallest_detectable_difference(halves, resamples=1_000) or 0.0

    def trial(change: float) -> Estimate:
        worse = alike + change / share * (draw.random(30) < share)
        return paired_difference(side(worse), side(alike), resamples=1_000)

    measured = [trial(own) for _ in range(trials)]
    told = np.mean([found.smallest_detectable or 0.0 for found in measured])
    assert told == pytest.approx(own, rel=0.1)
    assert 0.7 < np.mean([(found.low or 0.0) > 0 for found in measured]) < 0.95
    assert planned < 0.75 * told


def test_a_true_difference_of_that_size_is_found_four_times_in_five_if_all_change_alike() -> None:
    # What is promised, tried: two configurations of 30 sentences, each word wrong by chance.
    draw = np.random.default_rng(5)
    words, rate, trials = 12, 0.2, 120
    spoken = [
        {n: (float(draw.binomial(words, rate)), float(words)) for n in range(30)} for _ in range(2)
    ]
    step = smallest_detectable_difference(spoken, resamples=1_000)
    found = 0
    for _ in range(trials):
        theirs, ours = (
            {n: (float(draw.binomial(2 * words, r)), 2.0 * words) for n in range(30)}
            for r in (rate, rate + step)  # pyright: ignore[reportOperatorIssue]
        )
        low = paired_difference(ours, theirs, resamples=1_000).low
        found += low is not None and low > 0
    assert 0.65 < found / trials < 0.95


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 20)).map(lambda p: (min(p), p[1])),
        min_size=2,
        max_size=12,
    )
)
def test_an_interval_lies_between_the_extremes_of_its_sentences(pairs: list) -> None:
    counts = dict(enumerate(pairs))
    found = interval(counts, resamples=200)
    rates = [errors / words for errors, words in pairs]
    assert min(rates) - 1e-12 <= found.low <= found.high <= max(rates) + 1e-12  # pyright: ignore[reportOptionalOperand]
    assert paired_difference(counts, counts, resamples=200).high == 0.0
