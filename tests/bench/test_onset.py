"""Detectors of speech, on signals whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from speech_assets.bench.onset import first_sentence_end, onset, second_onset

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


def test_the_second_detector_does_not_hear_an_offset() -> None:
    assert second_onset(level(200, -60, dc=1_000), RATE_HZ) is None
    assert onset(level(200, -60, dc=1_000), RATE_HZ) == 0


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
