"""Facts of audio, worked out by hand, and what counts as a fault of it."""

from __future__ import annotations

import numpy as np
import pytest

from speech_assets.audio_health import AudioHealth, as_pcm, audio_health, sample_jumps

# 480 samples are two blocks of 10 ms. 104 is the int16 amplitude just above -50 dBFS (103.6).
QUIET, LOUD = np.full(240, 100, np.int16), np.full(240, 104, np.int16)
RAMP = np.arange(0, 2_400, 10, dtype=np.int16)  # Every jump is 10.


def test_facts_of_a_clip_are_those_worked_out_by_hand() -> None:
    pcm = np.concatenate([QUIET, LOUD, np.array([32_767, -32_768, 0, 0], np.int16)])
    health = audio_health(pcm)
    assert health.samples == 484
    assert health.non_finite == 0
    assert health.clipped_share == 2 / 484
    # (240 * 100 + 240 * 104 + 32,767 - 32,768) / 484 / 32,768
    assert health.dc_offset == pytest.approx(48_959 / 484 / 32_768)
    assert health.silence_share == 0.5  # The last four samples are no whole block.
    assert health.largest_jump == 65_535 / 32_768
    assert health.clicks is None


def test_floats_are_taken_as_the_server_rounds_them_and_what_is_no_number_as_zero() -> None:
    audio = np.array([0.0, 0.5, -1.0, 1.5, np.nan, np.inf], np.float32)
    assert as_pcm(audio).tolist() == [0, 16_384, -32_767, 32_767, 0, 0]
    health = audio_health(audio)
    assert health.non_finite == 2
    assert health.clipped_share == 2 / 6
    assert health.silence_share == 1.0  # There is no whole block.
    assert health.flags() == ("non_finite", "clipping", "dc_offset", "silence")


def test_a_click_is_a_jump_that_the_reference_does_not_have() -> None:
    # The reference jumps by 10, so beyond 15 it is a click: 15 is none, 16 is one.
    edge, click = RAMP.copy(), RAMP.copy()
    edge[100:] += 5
    click[100:] += 6
    assert sample_jumps(edge).max() == 15
    assert audio_health(edge, RAMP).clicks == 0
    assert audio_health(click, RAMP).clicks == 1
    assert audio_health(click, click).clicks == 0
    assert audio_health(click, RAMP).flags(audio_health(RAMP)) == ("clicks",)


def test_a_sample_that_stands_alone_clicks_twice_and_silence_beside_silence_never() -> None:
    alone = RAMP.copy()
    alone[100] += 1_000
    assert audio_health(alone, RAMP).clicks == 2
    zeros = np.zeros(480, np.int16)
    assert audio_health(zeros, zeros).clicks == 0
    assert audio_health(RAMP, zeros).clicks == 239


def test_what_the_reference_has_too_is_no_fault() -> None:
    shifted = np.full(480, 3_277, np.int16)  # A tenth of full scale.
    quiet = np.tile(QUIET, 2)
    assert audio_health(shifted).flags() == ("dc_offset",)
    assert audio_health(shifted).flags(audio_health(shifted)) == ()
    assert audio_health(quiet).flags() == ("silence",)
    assert audio_health(quiet).flags(audio_health(quiet)) == ()
    assert audio_health(quiet).flags(audio_health(shifted)) == ("silence",)


@pytest.mark.parametrize(
    ("clipped_share", "reference_share", "flags"),
    [
        (1e-4, 0.0, ()),
        (1.1e-4, 0.0, ("clipping",)),
        (2e-4, 1e-4, ()),
        (2.2e-4, 1e-4, ("clipping",)),
    ],
)
def test_clipping_is_a_fault_beyond_one_sample_in_ten_thousand(
    clipped_share: float, reference_share: float, flags: tuple[str, ...]
) -> None:
    def clip(share: float) -> AudioHealth:
        return AudioHealth(10_000, 0, share, 0.0, 0.0, 0.0)

    assert clip(clipped_share).flags(clip(reference_share)) == flags


def test_no_audio_at_all_is_silence() -> None:
    health = audio_health(np.zeros(0, np.int16), RAMP)
    assert health == AudioHealth(0, 0, 0.0, 0.0, 1.0, 0.0, 0)
    assert health.flags() == ("silence",)


@pytest.mark.parametrize("audio", [np.zeros((2, 4), np.int16), np.zeros(4, np.int32)])
def test_other_arrays_are_refused(audio: np.ndarray) -> None:
    with pytest.raises(ValueError, match="give int16 or floats"):
        audio_health(audio)
