"""One clip: what was heard of it, whether it spoke, its silence and its faults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from speech_assets.quality.clip_scores import ClipScore, score_clip
from speech_assets.quality.samples import SpokenClip
from speech_assets.voice.dnsmos import Dnsmos

RATE_HZ = 24_000
CLIP = SpokenClip(3, "numbers", "Meet me at 4:30, please.", 2, "a.wav", 2.0, "stop")


@dataclass
class Heard:
    """Ears that hear what they are told to, and keep what they got."""

    text: str
    got: NDArray[np.float32] | None = None

    def transcribe(self, samples: NDArray[np.float32]) -> Heard:
        self.got = samples
        return self


def tone(seconds: float, silence_s: float = 0.0, amplitude: int = 8_000) -> NDArray[np.int16]:
    time_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    sound = amplitude * np.sin(2 * np.pi * 220 * time_s)
    return np.concatenate([np.zeros(round(silence_s * RATE_HZ)), sound]).astype(np.int16)


def test_errors_are_counted_in_both_forms_and_the_row_says_what_was_heard() -> None:
    ears = Heard(" Meet me at four thirty, police.")
    found = score_clip(CLIP, tone(2.0, silence_s=0.25), ears)
    # Strictly "4 30" is not "430" or "four thirty"; only "please" is wrong whatever the format.
    assert found.transcript == "Meet me at four thirty, police."
    assert (found.format_insensitive_word_errors, found.word_errors >= 1) == (1, True)
    assert (found.sentence_id, found.kind, found.seed, found.text) == (
        3,
        "numbers",
        2,
        CLIP.sentence,
    )
    assert found.seconds == 2.25
    assert found.leading_silence_s == pytest.approx(0.25)
    assert found.spoke
    assert found.flags == ()
    assert found.dnsmos_overall is None
    assert ClipScore.from_row(found.as_row()) == found


def test_ears_get_the_clip_at_16_khz_and_full_scale_of_1() -> None:
    ears = Heard("")
    score_clip(CLIP, tone(1.5, amplitude=16_384), ears)
    assert ears.got is not None
    assert (ears.got.dtype, len(ears.got)) == (np.float32, 24_000)
    assert np.abs(ears.got[1_000:-1_000]).max() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("heard", "pcm", "reason"),
    [
        ("", tone(2.0), "stop"),  # Nothing was understood,
        ("...", tone(2.0), "stop"),  # or no word,
        ("meet me at 4:30 please", tone(0.3), "stop"),  # it was too short for its words,
        ("meet me at 4:30 please", tone(0.3, silence_s=1.7), "stop"),  # or mostly silent,
        ("meet me at 4:30 please", tone(2.0), "length"),  # or it was cut.
        ("meet me at 4:30 please", tone(2.0), "loop"),
        ("meet me at 4:30 please", tone(2.0, amplitude=20), "stop"),
    ],
)
def test_a_clip_that_failed_to_speak_is_one(
    heard: str, pcm: NDArray[np.int16], reason: str
) -> None:
    clip = SpokenClip(3, "numbers", CLIP.sentence, 2, "a.wav", 2.0, reason)
    assert not score_clip(clip, pcm, Heard(heard)).spoke
    assert score_clip(CLIP, tone(2.0), Heard("meet me at 4:30 please")).spoke


def test_a_clip_that_was_refused_has_every_word_wrong() -> None:
    refused = SpokenClip(3, "short", "Some words here.", 1, "", 0.0, "refused", error="400: no")
    ears = Heard("never asked")
    found = score_clip(refused, np.zeros(0, np.int16), ears, Dnsmos())
    assert (found.words, found.word_errors, found.format_insensitive_word_errors) == (3, 3, 3)
    assert (found.characters, found.character_errors) == (15, 15)
    assert (found.spoke, found.leading_silence_s, found.dnsmos_overall) == (False, None, None)
    assert found.flags == ("silence",)
    assert (found.error, ears.got) == ("400: no", None)


def test_faults_are_flagged_and_clicks_only_beside_a_reference() -> None:
    clean = tone(2.0)
    clicking = clean.copy()
    clicking[30_000] = -30_000
    clipped = np.clip(tone(2.0, amplitude=32_000).astype(np.int32) * 2, -32_768, 32_767)
    ears = Heard("meet me at 4:30 please")
    assert score_clip(CLIP, clicking, ears).flags == ()
    assert score_clip(CLIP, clicking, ears, reference=clean).flags == ("clicks",)
    assert score_clip(CLIP, clean, ears, reference=clean).flags == ()
    assert score_clip(CLIP, clicking, ears, reference=clean[:0]).flags == ()
    assert score_clip(CLIP, clipped.astype(np.int16), ears).flags == ("clipping",)
    assert score_clip(CLIP, (clean + 1_000).astype(np.int16), ears).flags == ("dc_offset",)
