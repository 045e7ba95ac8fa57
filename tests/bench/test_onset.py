"""Detectors of speech, on signals whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from speech_assets.bench.onset import (
    first_loud,
    first_sentence_end,
    is_audible,
    onset,
    second_onset,
)

RATE_HZ = 24_000


def level(ms: int, dbfs: float, *, rate_hz: int = RATE_HZ, dc: int = 0) -> np.ndarray:
    """A square wave of `dbfs`, whose RMS is its amplitude."""
    amplitude = 32_768 * 10 ** (dbfs / 20)
    wave = np.where(np.arange(rate_hz * ms // 1_000) // 20 % 2, amplitude, -amplitude)
    return (wave + dc).round().astype(np.int16)


def silence(ms: int, *, rate_hz: int = RATE_HZ) -> np.ndarray:
    return np.zeros(rate_hz * ms // 1_000, np.int16)


@pytest.mark.parametrize("rate_hz", [8_000, 24_000, 48_000])
def test_the_onset_is_the_first_10_ms_above_minus_40_dbfs(rate_hz: int) -> None:
    samples = np.concatenate(
        [
            silence(200, rate_hz=rate_hz),
            level(300, -41, rate_hz=rate_hz),
            level(50, -39, rate_hz=rate_hz),
        ]
    )
    assert onset(samples, rate_hz) == rate_hz // 2


def test_the_second_detector_wants_two_windows_above_minus_45_dbfs() -> None:
    samples = np.concatenate([silence(200), level(10, -43), silence(190), level(100, -43)])
    assert onset(samples, RATE_HZ) is None
    found = second_onset(samples, RATE_HZ)
    # The lone 10 ms fill half of two windows each: -46 dBFS, too quiet.
    assert found is not None
    assert 390 <= found / RATE_HZ * 1e3 <= 400


def test_no_detector_hears_an_offset() -> None:
    quiet = level(200, -60, dc=1_000)
    assert second_onset(quiet, RATE_HZ) is None
    assert onset(quiet, RATE_HZ) is None
    loud = np.concatenate([quiet, level(200, -20, dc=1_000)])
    assert onset(loud, RATE_HZ) == RATE_HZ // 5
    assert first_sentence_end(loud, RATE_HZ) == len(loud)


def test_steps_from_one_constant_to_another_are_not_audible() -> None:
    steps = np.concatenate([np.full(RATE_HZ, value, np.int16) for value in (0, 8_000, -8_000)])
    assert not is_audible(steps, RATE_HZ)
    assert is_audible(level(100, -30), RATE_HZ)
    assert not is_audible(silence(100), RATE_HZ)
    assert not is_audible(np.zeros(0, np.int16), RATE_HZ)


def test_the_first_loud_sample_of_a_window_is_where_its_sound_begins() -> None:
    samples = np.concatenate([silence(18), level(2, -20)])
    window = len(samples)
    assert abs(first_loud(samples, 0, window, -45.0) - RATE_HZ * 18 // 1_000) <= 1
    assert first_loud(silence(20), 0, window, -45.0) == 0


def test_silence_and_next_to_nothing_have_no_onset() -> None:
    for samples in (silence(500), silence(1), np.zeros(0, np.int16)):
        assert onset(samples, RATE_HZ) is None
        assert second_onset(samples, RATE_HZ) is None


def test_the_first_sentence_ends_where_a_pause_of_150_ms_begins() -> None:
    speech, pause = level(300, -20), silence(150)
    samples = np.concatenate([silence(500), speech, silence(140), speech, pause, speech])
    assert first_sentence_end(samples, RATE_HZ) == RATE_HZ * (500 + 300 + 140 + 300) // 1_000


def test_without_a_pause_the_first_sentence_is_all() -> None:
    samples = np.concatenate([silence(500), level(301, -20), silence(140)])
    assert first_sentence_end(samples, RATE_HZ) == len(samples)
