import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.frames import CODEBOOK_SIZE, ORPHEUS, TOKENS_PER_FRAME
from server.stream import CodeBuffer, StreamTimes

CODES = st.lists(
    st.lists(st.integers(0, CODEBOOK_SIZE - 1), min_size=7, max_size=7), min_size=1, max_size=100
)


def in_steps(ids: list[int], sizes: list[int]) -> CodeBuffer:
    buffer = CodeBuffer(ORPHEUS)
    at = 0
    for size in [*sizes, len(ids)]:
        buffer.extend(ids[at : at + size])
        at += size
    return buffer


@given(CODES, st.lists(st.integers(0, 20), max_size=20))
def test_codes_are_the_same_however_many_tokens_a_step_gives(codes, sizes):
    ids = ORPHEUS.token_ids(np.array(codes)).tolist()
    buffer = in_steps(ids, sizes)
    assert buffer.codes.tolist() == np.array(codes).reshape(-1).tolist()
    assert buffer.misaligned_tokens == 0


@given(CODES, st.integers(0, 10_000), st.integers(1, 6), st.lists(st.integers(0, 9), max_size=30))
def test_an_id_of_another_slot_costs_its_frame_and_no_other(codes, place, shift, sizes):
    ids = ORPHEUS.token_ids(np.array(codes)).tolist()
    place %= len(ids)
    frame, slot = divmod(place, TOKENS_PER_FRAME)
    wrong = (slot + shift) % TOKENS_PER_FRAME
    ids[place] = ORPHEUS.audio_base + CODEBOOK_SIZE * wrong
    buffer = in_steps(ids, sizes)
    whole = buffer.codes[: len(buffer) // TOKENS_PER_FRAME * TOKENS_PER_FRAME]
    got = whole.reshape(-1, TOKENS_PER_FRAME).tolist()
    assert got == codes[:frame] + codes[frame + 1 :]
    assert buffer.misaligned_tokens >= TOKENS_PER_FRAME - (frame == len(codes) - 1)


def test_ids_that_are_no_audio_are_dropped_and_counted():
    ids = ORPHEUS.token_ids(np.array([[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14]])).tolist()
    buffer = CodeBuffer(ORPHEUS)
    buffer.extend([ORPHEUS.end_of_speech, *ids[:7], 5, *ids[7:]])
    assert buffer.codes.tolist() == list(range(1, 15))
    assert buffer.misaligned_tokens == 2


def test_speech_is_audible_when_a_player_without_buffer_plays_it():
    times = StreamTimes(asked_s=9.0, began_s=9.5)
    quiet, loud = np.zeros(2_400, np.int16), np.full(2_400, 3_000, np.int16)
    times.sent(quiet, 10.0)  # plays until 10.1
    times.sent(np.concatenate([quiet[:1_200], loud]), 10.05)
    assert times.first_s == 10.0
    assert times.audible_s is not None
    assert abs(times.audible_s - 10.15) < 1e-9


def test_what_comes_late_is_played_when_it_comes():
    times = StreamTimes(asked_s=0.0, began_s=0.0)
    times.sent(np.zeros(240, np.int16), 1.0)
    times.sent(np.full(240, 3_000, np.int16), 5.0)
    assert times.audible_s == 5.0
