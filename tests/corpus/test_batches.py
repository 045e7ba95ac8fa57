"""Batches hold every clip once, within the budget, with little padding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.frames import SAMPLES_PER_FRAME
from speech_assets.corpus.batches import padded_frames, plan_batches

COUNTS = st.lists(st.integers(1, 700), max_size=60)


@given(COUNTS, st.integers(0, 3_000_000), st.integers(1, 16))
def test_every_clip_is_in_one_batch_and_batches_keep_to_the_budget(
    counts: list[int], budget_samples: int, round_frames: int
) -> None:
    batches = plan_batches(counts, budget_samples, round_frames=round_frames)
    assert sorted(clip for batch in batches for clip in batch) == list(range(len(counts)))
    for batch in batches:
        width = padded_frames(max(counts[clip] for clip in batch), round_frames)
        assert len(batch) == 1 or len(batch) * width * SAMPLES_PER_FRAME <= budget_samples


@given(COUNTS)
def test_no_clip_is_longer_than_one_before_it(counts: list[int]) -> None:
    lengths = [counts[clip] for batch in plan_batches(counts, 10**6) for clip in batch]
    assert lengths == sorted(counts, reverse=True)


def test_a_budget_of_nothing_gives_batches_of_one() -> None:
    assert plan_batches([3, 9, 5], 0) == [[1], [2], [0]]


def test_rounding_up_is_counted_against_the_budget() -> None:
    budget = 2 * 8 * SAMPLES_PER_FRAME
    assert plan_batches([5, 5, 5], budget, round_frames=8) == [[0, 1], [2]]
    assert padded_frames(8, 8) == 8
    assert padded_frames(9, 8) == 16
