"""Speech at another speed: as long as promised, the same pitch, nothing lost at its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.tempo import Tempo, held_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE_HZ = 24_000
SPEEDS = (0.25, 0.5, 0.8, 1.1, 1.5, 2.0, 3.0, 4.0)


def changed(samples: NDArray[np.int16], speed: float, *cuts: int) -> NDArray[np.int16]:
    """All that comes out when the samples are cut there."""
    tempo = Tempo(speed)
    parts = [tempo.push(part) for part in np.split(samples, sorted(cuts))]
    return np.concatenate([*parts, tempo.end()])


def voice(seconds: float, pitch_hz: float) -> NDArray[np.int16]:
    """A vowel: a pulse at each period that rings at three formants."""
    count = round(seconds * RATE_HZ)
    pulses = np.zeros(count)
    pulses[(np.arange(0, seconds, 1 / pitch_hz) * RATE_HZ).astype(int)] = 1
    ring_s = np.arange(RATE_HZ // 50) / RATE_HZ
    ring = sum(
        level * np.exp(-ring_s * 2 * np.pi * width_hz) * np.sin(2 * np.pi * hz * ring_s)
        for hz, width_hz, level in ((700, 60, 1.0), (1_200, 80, 0.6), (2_600, 120, 0.3))
    )
    sound = np.convolve(pulses, ring)[:count]
    return np.rint(sound / np.abs(sound).max() * 12_000).astype(np.int16)


def pitch_hz(samples: NDArray[np.int16]) -> float:
    """By the autocorrelation's first high peak, between samples by a parabola."""
    sound = samples.astype(np.float64)
    likeness = np.fft.irfft(np.abs(np.fft.rfft(sound, 2 * len(sound))) ** 2)
    first, last = RATE_HZ // 400, RATE_HZ // 60
    middle = likeness[first:last]
    is_peak = (middle > likeness[first - 1 : last - 1]) & (middle >= likeness[first + 1 : last + 1])
    lag = first + int(np.flatnonzero(is_peak & (middle > 0.8 * middle.max()))[0])
    before, at, after = likeness[lag - 1 : lag + 2]
    return RATE_HZ / (lag + 0.5 * (before - after) / (before - 2 * at + after))


def spectrum_db(samples: NDArray[np.int16]) -> NDArray[np.float64]:
    """Mean level by bands of 100 Hz up to 4 kHz."""
    windows = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), 2_400)[::600]
    power = (np.abs(np.fft.rfft(windows * np.hanning(2_400))) ** 2).mean(0)
    return 10 * np.log10(power[:400].reshape(40, 10).sum(1))


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("pitch", [85.0, 120.0, 210.0])
def test_pitch_and_formants_stay(speed: float, pitch: float) -> None:
    spoken = voice(2, pitch)
    played = changed(spoken, speed)
    assert pitch_hz(played) == pytest.approx(pitch, rel=0.01)
    before, after = spectrum_db(spoken), spectrum_db(played)
    loud = before > before.max() - 30
    assert np.abs(after - before)[loud].max() < 3


@pytest.mark.parametrize("speed", SPEEDS)
def test_a_steady_tone_goes_on_in_phase(speed: float) -> None:
    times_s = np.arange(2 * RATE_HZ) / RATE_HZ
    tone = sum(a * np.sin(2 * np.pi * hz * times_s) for hz, a in ((120, 8e3), (240, 4e3)))
    played = changed(np.rint(tone).astype(np.int16), speed).astype(np.float64)
    power = np.abs(np.fft.rfft(played * np.hanning(len(played)))) ** 2
    hz = np.fft.rfftfreq(len(played), 1 / RATE_HZ)
    of_tone = (np.abs(hz - 120) < 8) | (np.abs(hz - 240) < 8)
    # Pieces laid over each other out of phase would put a tenth of the power beside the tone.
    assert 10 * np.log10(power[of_tone].sum() / power[~of_tone].sum()) > 40


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9_000), st.floats(0.25, 4), st.integers(0, 2**32 - 1))
def test_the_length_is_the_speeds_and_chunks_change_nothing(
    count: int, speed: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    samples = draw.integers(-20_000, 20_000, count).astype(np.int16)
    played = changed(samples, speed)
    assert len(played) == (count if speed == 1 else round(count / speed))
    cuts = draw.integers(0, count + 1, 5).tolist()
    assert np.array_equal(changed(samples, speed, *cuts), played)


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_first_and_last_samples_are_the_inputs_own(speed: float) -> None:
    spoken = voice(1, 120)
    played = changed(spoken, speed)
    assert np.array_equal(played[:300], spoken[:300])
    assert np.array_equal(played[-180:], spoken[-180:])


@pytest.mark.parametrize("speed", SPEEDS)
def test_pauses_take_their_share_and_words_stay_where_they_were(speed: float) -> None:
    spoken = voice(3, 120)
    spoken[RATE_HZ : 2 * RATE_HZ] = 0
    silent = np.flatnonzero(changed(spoken, speed) != 0)
    gap = int(np.argmax(np.diff(silent)))
    begins, ends = silent[gap] / RATE_HZ, silent[gap + 1] / RATE_HZ
    # A piece comes from no further than 12.5 ms from where its time is, and is 15 ms long.
    assert begins == pytest.approx(1 / speed, abs=0.0275 * max(1, 1 / speed))
    assert ends == pytest.approx(2 / speed, abs=0.0275 * max(1, 1 / speed))


@pytest.mark.parametrize("speed", SPEEDS)
def test_what_is_held_back_is_no_more_than_is_said(speed: float) -> None:
    spoken = voice(3, 120)
    tempo = Tempo(speed)
    given_out, held = 0, 0.0
    for start in range(0, len(spoken), 24):
        given_out += len(tempo.push(spoken[start : start + 24]))
        held = max(held, (start + 24) / speed - given_out)
    assert 0.5 * held_s(speed) * RATE_HZ < held <= held_s(speed) * RATE_HZ + 24 / speed


def test_speed_1_changes_nothing_at_once() -> None:
    spoken = voice(0.1, 120)
    assert Tempo(1.0).push(spoken) is spoken
    assert held_s(1.0) == 0


def test_memory_does_not_grow_with_the_stream() -> None:
    spoken = voice(1, 120)
    for speed in (0.25, 4.0):
        tempo = Tempo(speed)
        for _ in range(50):
            tempo.push(spoken)
        assert len(tempo._input) < 3 * RATE_HZ
