"""The order in which two arms are asked: the same clips, and drift that cancels out."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speech_assets.ab.plan import Ask, asks, blocks, texts_sha256, turns
from speech_assets.quality.sentences import QUALITY_SENTENCES

SENTENCES = st.integers(1, len(QUALITY_SENTENCES))
SEEDS = st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True)


def test_arms_take_turns_as_a_b_b_a() -> None:
    planned = turns(asks(QUALITY_SENTENCES[:2], [1, 2]))
    assert "".join(letter for letter, _ in planned) == "abbaabba"
    assert [ask.seed for _, ask in planned] == [1, 1, 2, 2, 1, 1, 2, 2]
    assert [ask.sentence.id for _, ask in planned] == [0] * 4 + [1] * 4


@given(SENTENCES, SEEDS)
def test_both_arms_get_the_same_clips_in_either_order(count: int, seeds: list[int]) -> None:
    asked = asks(QUALITY_SENTENCES[:count], seeds)
    in_blocks = [(letter, ask) for letter, block in blocks(asked) for ask in block]
    for planned in (turns(asked), in_blocks):
        for arm in ("a", "b"):
            assert [ask for letter, ask in planned if letter == arm] == asked


@given(st.integers(1, 15))
def test_a_steady_drift_costs_both_arms_alike(pairs: int) -> None:
    asked: list[Ask] = asks(QUALITY_SENTENCES[: 2 * pairs], [1])
    in_blocks = [letter for letter, block in blocks(asked) for _ in block]
    for letters in ([letter for letter, _ in turns(asked)], in_blocks):
        times = {
            arm: statistics.mean(n for n, letter in enumerate(letters) if letter == arm)
            for arm in ("a", "b")
        }
        assert times["a"] == pytest.approx(times["b"])


def test_a_hash_of_texts_is_of_ids_and_texts_alone() -> None:
    texts = [(1, "one"), (2, "two")]
    assert texts_sha256(texts) == texts_sha256([*reversed(texts), (1, "one")])
    assert texts_sha256(texts) != texts_sha256([(2, "one"), (1, "two")])
    assert texts_sha256(texts) != texts_sha256(texts[:1])
