"""Voices of clips compared, by vectors whose cosines are known."""

from __future__ import annotations

import numpy as np
import pytest
from quality.scores import clip_score

from speech_assets.quality.figures import difference_figures, wer_figures, yardstick_figures
from speech_assets.quality.same_speaker import (
    OTHER_SEED,
    OTHER_SENTENCE,
    Likeness,
    among,
    beside,
    with_likeness,
    yardstick,
)
from speech_assets.speaker.voice import Voice


def voice(first: float) -> Voice:
    """A vector of length 1 whose cosine with `voice(1.0)` is `first`."""
    return Voice(np.array([first, np.sqrt(1 - first**2)], np.float32))


ONE, NEAR, FAR = voice(1.0), voice(0.8), voice(0.6)
SILENT, SHORT = Voice(why="silent"), Voice(why="too_short")


def key(sentence: int, seed: int = 1) -> tuple[int, str, int]:
    return sentence, f"sentence {sentence}", seed


def test_clips_are_compared_with_the_same_sentence_and_seed() -> None:
    ours = {key(0): NEAR, key(0, 2): FAR, key(1): ONE, key(2): SHORT, key(3): ONE}
    theirs = {key(0): ONE, key(0, 2): ONE, key(1, 2): ONE, key(2): ONE, key(3): SILENT}
    assert beside(ours, theirs) == {
        key(0): Likeness(0.8),
        key(0, 2): Likeness(0.6),
        key(1): Likeness(None, "no_counterpart"),
        key(2): Likeness(None, "too_short"),
        key(3): Likeness(None, "no_counterpart"),
    }


def test_with_several_seeds_a_clip_is_compared_with_its_sentences_next_seed() -> None:
    voices = {key(0): ONE, key(0, 2): NEAR, key(0, 7): FAR, key(1): ONE, key(2): SILENT}
    voices[key(2, 2)] = ONE
    found = among(voices)
    assert yardstick(voices) == OTHER_SEED
    # 0.8 * 0.6 + 0.6 * 0.8 = 0.96.
    assert [found[key(0, seed)].cosine for seed in (1, 2, 7)] == [0.8, 0.96, 0.6]
    assert found[key(1)] == Likeness(None, "no_counterpart")
    assert found[key(2)] == Likeness(None, "silent")
    assert found[key(2, 2)] == Likeness(None, "no_counterpart")


def test_with_one_seed_it_is_compared_with_the_next_sentence() -> None:
    found = among({key(2): FAR, key(0): ONE, key(1): NEAR})
    assert yardstick([key(2), key(0)]) == OTHER_SENTENCE
    assert [found[key(n)].cosine for n in range(3)] == [0.8, 0.96, 0.6]
    assert among({key(0): ONE}) == {key(0): Likeness(None, "no_counterpart")}
    assert among({}) == {}


def test_figures_set_similarity_beside_the_yardstick_and_count_what_is_left_out() -> None:
    base = [clip_score(n) for n in range(3)]
    base = with_likeness(base, {key(0): Likeness(0.9), key(1): Likeness(0.9), key(2): SILENCE})
    ours = with_likeness(
        [clip_score(n) for n in range(3)],
        {key(0): Likeness(0.7), key(1): Likeness(0.9), key(2): Likeness(None, "no_counterpart")},
    )
    assert [clip.speaker_similarity for clip in ours] == [0.7, 0.9, None]
    figures = wer_figures(ours)
    mean = figures["speaker_similarity"]
    assert (mean.value, mean.ci_low, mean.ci_high, mean.unit) == (0.8, 0.7, 0.9, "cosine")
    assert figures["speaker_left_out_no_counterpart"].value == 1
    assert wer_figures(base)["speaker_left_out_silent"].value == 1
    [measure] = yardstick_figures(base).values()
    assert measure.value == pytest.approx(0.9)
    less = difference_figures(ours, base, "base")["speaker_similarity_less_base"]
    assert (less.value, less.ci_low, less.ci_high) == pytest.approx((-0.1, -0.2, 0.0))
    plain = [clip_score(0)]
    assert yardstick_figures(plain) == {}
    assert [name for name in wer_figures(plain) if "speaker" in name] == []


SILENCE = Likeness(None, "silent")
