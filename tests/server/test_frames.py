"""The token layout: slots, levels and ids are one-to-one; what is not is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from server import frames
from server.frames import ORPHEUS, TokenLayout

CODES = st.integers(0, 12).flatmap(
    lambda count: st_numpy.arrays(
        np.uint16, (count, frames.TOKENS_PER_FRAME), elements=st.integers(0, 4_095)
    )
)


def test_a_frame_is_seven_tokens_and_2048_samples() -> None:
    assert frames.TOKENS_PER_FRAME == 7
    assert frames.SAMPLES_PER_FRAME == 2_048
    assert frames.SLOTS_OF_LEVEL == ((0,), (1, 4), (2, 3, 5, 6))
    assert pytest.approx(82.03, abs=0.005) == frames.REALTIME_TOKENS_PER_S


@pytest.mark.parametrize(
    ("samples", "count"), [(0, 0), (1, 1), (2_048, 1), (2_049, 2), (24_000, 12)]
)
def test_a_clip_fills_whole_frames(samples: int, count: int) -> None:
    assert frames.frame_count(samples) == count


@given(CODES)
def test_levels_and_slots_are_one_to_one(codes: np.ndarray) -> None:
    levels = frames.levels_from_slots(codes)
    assert [len(level) for level in levels] == [len(codes), 2 * len(codes), 4 * len(codes)]
    assert np.array_equal(frames.slots_from_levels(levels), codes)


def test_slot_order_is_that_of_orpheus() -> None:
    codes = frames.slots_from_levels(
        [np.array([10]), np.array([20, 21]), np.array([30, 31, 32, 33])]
    )
    assert codes.tolist() == [[10, 20, 30, 31, 21, 32, 33]]


@given(CODES)
def test_token_ids_and_codes_are_one_to_one(codes: np.ndarray) -> None:
    ids = ORPHEUS.token_ids(codes)
    assert np.array_equal(ORPHEUS.codes(ids), codes)
    assert ids.size == 0 or (ids.min() >= 128_266 and ids.max() < ORPHEUS.audio_end)


def test_the_seven_slots_have_the_published_bases() -> None:
    ids = ORPHEUS.token_ids(np.zeros((1, 7), np.uint16))
    assert ids.tolist() == [128_266 + 4_096 * slot for slot in range(7)]
    assert ORPHEUS.audio_end == 156_938


def test_the_prompt_is_that_of_orpheus() -> None:
    assert ORPHEUS.prompt([1, 2]) == [
        128_259, 128_000, 1, 2, 128_009, 128_260, 128_261, 128_257,
    ]  # fmt: skip
    assert TokenLayout(begin_of_text=None, prompt_prefix=(9,), prompt_suffix=(8,)).prompt([1]) == [
        9,
        1,
        8,
    ]


def test_an_id_off_its_slot_is_named() -> None:
    ids = ORPHEUS.token_ids(np.zeros((2, 7), np.uint16))
    ids[9] += 4_096
    with pytest.raises(ValueError, match=r"at 9 is not an id of slot 2"):
        ORPHEUS.codes(ids)


def test_a_cut_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="13 token ids are not whole frames"):
        ORPHEUS.codes(ORPHEUS.token_ids(np.zeros((2, 7), np.uint16))[:-1])
    with pytest.raises(ValueError, match="do not make 2 whole frames"):
        frames.slots_from_levels([np.zeros(2, int), np.zeros(4, int), np.zeros(7, int)])


@pytest.mark.parametrize("code", [-1, 4_096])
def test_a_code_out_of_range_is_named(code: int) -> None:
    with pytest.raises(ValueError, match=f"code {code} at 3 is outside"):
        ORPHEUS.token_ids(np.array([[0, 0, 0, code, 0, 0, 0]]))
