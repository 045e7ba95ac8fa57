"""The engine's order of rows, and its draw: what top-p keeps, how often, and from which seed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from server.engine_draw import draw, uniform
from server.engine_rows import RowNumbers, SampledRows
from server.frames import ORPHEUS, TOKENS_PER_FRAME

ROWS = st.builds(SampledRows, st.integers(1, 4_096), st.integers(10, 200), st.integers(0, 9))


@given(ROWS, st.data())
def test_ids_translate_both_ways_exactly(rows: SampledRows, data: st.DataObject) -> None:
    size = rows.audio_base + TOKENS_PER_FRAME * 4_096 + data.draw(st.integers(0, 50))
    numbers = RowNumbers(rows, size)
    order = rows.order(size)
    assert np.array_equal(np.sort(order), np.arange(size))
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    assert numbers.to_model(numbers.to_engine(ids)) == ids
    slot, code = data.draw(st.integers(0, 6)), data.draw(st.integers(0, rows.codes - 1))
    audio_id = rows.audio_base + slot * 4_096 + code
    assert numbers.to_engine([audio_id, rows.end_of_speech]) == [
        slot * rows.codes + code,
        rows.stop,
    ]


def test_orpheus_has_28673_rows_and_loses_no_other_id() -> None:
    rows = SampledRows.of(ORPHEUS)
    assert rows.count == 28_673
    numbers = RowNumbers(rows, ORPHEUS.vocabulary_size)
    assert numbers.to_engine([128_258, 128_266, 156_937]) == [28_672, 0, 28_671]
    assert sorted(numbers.to_engine(range(128_266))) == list(range(28_672, 156_940 - 2))


def test_without_cut_rows_ids_stay() -> None:
    numbers = RowNumbers(None, 100)
    assert numbers.to_engine([5, 99]) == numbers.to_model([5, 99]) == [5, 99]


def test_off_slot_leaves_one_slot_and_the_end_before_a_frame() -> None:
    rows = SampledRows(3, 10, 2)
    assert [np.flatnonzero(~row).tolist() for row in rows.off_slot()] == [
        [0, 1, 2, 21],
        *([3 * slot, 3 * slot + 1, 3 * slot + 2] for slot in range(1, 7)),
    ]


SCORES = st_numpy.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 50, 1_501])),
    elements=st.floats(-20, 20, width=32),
)


@settings(deadline=None)
@given(SCORES, st.floats(0.05, 2), st.floats(0.01, 1), st.floats(0, 1, exclude_max=True))
def test_a_draw_is_from_the_smallest_best_set_that_holds_top_p(
    scores: np.ndarray, temperature: float, top_p: float, at: float
) -> None:
    rows = len(scores)
    columns = draw(
        scores.copy(),
        np.full(rows, temperature, np.float32),
        np.full(rows, top_p, np.float32),
        np.full(rows, at),
    )
    for row, column in zip(scores, columns, strict=True):
        weights = np.exp((row - row.max()) / np.float32(temperature))
        better = weights[weights > weights[column]].sum(dtype=np.float64)
        assert better <= (np.float32(top_p) + 1e-5) * weights.sum(dtype=np.float64)


def test_what_cannot_be_drawn_is_not_drawn_at_the_edge() -> None:
    scores = np.full((1, 1_501), -np.inf, np.float32)
    scores[0, [7, 1_400]] = 0
    one = np.ones(1, np.float32)
    for at in (0.0, 0.499, 0.5, 0.999_999_999_999):
        assert int(draw(scores.copy(), one, one, np.array([at]))[0]) in (7, 1_400)


def test_draws_come_as_often_as_they_should() -> None:
    seeds = np.arange(40_000, dtype=np.uint64)
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    scores = np.log(np.tile(shares, (len(seeds), 1))).astype(np.float32)
    ones = np.ones(len(seeds), np.float32)
    points = uniform(seeds, np.full(len(seeds), 91, np.uint64))
    all_of_it = np.bincount(draw(scores, ones, ones, points), minlength=4) / len(seeds)
    assert np.abs(all_of_it - shares).max() < 0.01  # 4 standard deviations.
    top = np.bincount(draw(scores, ones, ones * 0.75, points), minlength=4) / len(seeds)
    assert np.abs(top - np.array([0.625, 0.375, 0, 0])).max() < 0.01


def test_uniform_numbers_are_spread_over_seeds_and_positions() -> None:
    grid = np.meshgrid(np.arange(300, dtype=np.uint64), np.arange(300, dtype=np.uint64))
    values = uniform(grid[0].ravel(), grid[1].ravel())
    assert len(set(values.tolist())) == 90_000
    assert values.min() >= 0
    assert values.max() < 1
    counts, _ = np.histogram(values, 100, (0, 1))
    assert counts.min() > 750  # 900 each, 30 a standard deviation.
    assert counts.max() < 1_050
    table = values.reshape(300, 300)
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.02
