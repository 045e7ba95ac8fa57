"""The player without a buffer, by hand and by its properties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speech_assets.bench.player import play

RATE_HZ = 1_000  # One sample a millisecond: times and samples are the same numbers.
CHUNKS = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500)), min_size=1, max_size=20)


def test_chunks_in_time_play_without_a_gap() -> None:
    playback = play([100, 150, 290], [100, 100, 50], RATE_HZ)
    assert playback.starts_ms == (100, 200, 300)
    assert playback.underruns_ms == ()
    assert playback.least_margin_ms == 10  # The third: due at 300, there at 290.


def test_a_late_chunk_is_a_silence_as_long_as_it_is_late_and_all_after_it_moves() -> None:
    playback = play([0, 130, 225], [100, 100, 100], RATE_HZ)
    # Due at 100, came at 130: 30 ms. So the third is due at 230, not at 200.
    assert playback.underruns_ms == (30,)
    assert playback.underrun_samples == (100,)
    assert playback.starts_ms == (0, 130, 230)
    assert playback.least_margin_ms == -30
    assert [playback.underruns_above(limit) for limit in (0, 29, 30)] == [1, 1, 0]


def test_a_sample_is_heard_when_its_chunk_plays() -> None:
    playback = play([0, 130], [100, 100], RATE_HZ)
    assert [playback.heard_ms(sample) for sample in (0, 99, 100, 150)] == [0, 99, 130, 180]


def test_sound_is_not_heard_before_the_chunk_that_it_came_with() -> None:
    playback = play([0, 130], [100, 100], RATE_HZ)
    # A window of silence from 95 on whose sound begins at 100, or at 97 already.
    assert playback.audible_ms(95, 100) == 130
    assert playback.audible_ms(95, 97) == 95
    assert playback.audible_ms(150, 155) == 180


def test_silences_before_speech_are_told_from_those_in_it() -> None:
    playback = play([0, 30, 90], [20, 40, 40], RATE_HZ)
    assert playback.underruns_ms == (10, 20)
    assert [playback.underruns_after(onset) for onset in (0, 25, 59, 60)] == [2, 1, 1, 0]


def test_one_chunk_has_no_margin() -> None:
    assert play([42], [10], RATE_HZ).least_margin_ms is None


def test_the_rounding_of_a_float_is_no_underrun() -> None:
    # In floats 0.1 + 0.2 is above 0.3, which is when the second chunk is due.
    playback = play([0.0, 0.1 + 0.2], [3, 3], 10_000)
    assert playback.underruns_ms == ()


@settings(deadline=None)
@given(CHUNKS)
def test_playing_takes_the_audio_and_the_silences_and_starts_at_the_first_chunk(
    chunks: list[tuple[int, int]],
) -> None:
    at_ms, samples = arrive(chunks)
    playback = play(at_ms, samples, RATE_HZ)
    end_ms = playback.starts_ms[-1] + samples[-1]
    assert playback.starts_ms[0] == at_ms[0]
    assert end_ms - at_ms[0] == pytest.approx(sum(samples) + sum(playback.underruns_ms))
    assert all(start >= at for start, at in zip(playback.starts_ms, at_ms, strict=True))
    assert (playback.underruns_ms != ()) == ((playback.least_margin_ms or 0) < 0)


@settings(deadline=None)
@given(CHUNKS, st.integers(1, 1_000))
def test_a_chunk_that_comes_earlier_never_makes_more_silence(
    chunks: list[tuple[int, int]], earlier_ms: int
) -> None:
    at_ms, samples = arrive(chunks)
    sooner = [at_ms[0], *(max(at_ms[0], at - earlier_ms) for at in at_ms[1:])]
    late, early = (sum(play(at, samples, RATE_HZ).underruns_ms) for at in (at_ms, sooner))
    assert early <= late + 1e-9


@settings(deadline=None)
@given(CHUNKS, st.integers(1, 400))
def test_cutting_a_chunk_in_two_that_arrive_together_changes_nothing(
    chunks: list[tuple[int, int]], cut: int
) -> None:
    at_ms, samples = arrive(chunks)
    whole = play(at_ms, samples, RATE_HZ)
    index = cut % len(samples)
    if samples[index] < 2:
        return
    first = 1 + cut % (samples[index] - 1)
    parts = [*samples[:index], first, samples[index] - first, *samples[index + 1 :]]
    split = play([*at_ms[: index + 1], *at_ms[index:]], parts, RATE_HZ)
    assert split.underruns_ms == pytest.approx(whole.underruns_ms)
    for sample in (*split.first_samples, sum(samples) - 1):
        assert split.heard_ms(sample) == pytest.approx(whole.heard_ms(sample))


def arrive(chunks: list[tuple[int, int]]) -> tuple[list[float], list[int]]:
    """Chunks given by the time since the one before."""
    at_ms: list[float] = []
    for gap_ms, _ in chunks:
        at_ms.append((at_ms[-1] if at_ms else 0.0) + gap_ms)
    return at_ms, [count for _, count in chunks]
