"""A passage in the embedded voice, heard by Whisper: its words come once each, as singly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import jiwer
import numpy as np
import pytest
import soxr
from speech_servers import TIMEOUT_S

from resources.speech_server import SpeechServer
from speech_assets.asr.transcriber import load_transcriber
from speech_assets.quality.spoken_forms import spoken_form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

pytestmark = pytest.mark.timeout(900)  # Half a minute of speech and Whisper, on a busy machine.

# Words that the voice speaks well, in the form of a title and two paragraphs.
TITLE = "The girl at the booth"
SENTENCES = [
    "Glue the sheet to the dark blue background.",
    "The hogs were fed chopped corn and garbage.",
    "The box was thrown beside the parked truck.",
    "Smoky fires lack flame and heat.",
    "The salt breeze came across from the sea.",
]
PASSAGE = f"{TITLE}\n\n{' '.join(SENTENCES[:3])}\n\n{' '.join(SENTENCES[3:])}"


@pytest.fixture(scope="module")
def embedded() -> Iterator[SpeechServer]:
    with SpeechServer.running("embedded", environment={"OMP_NUM_THREADS": "1"}) as server:
        yield server


def spoken(server: SpeechServer, text: str, seed: int) -> NDArray[np.float32]:
    """Speech of `text`, float32 at 24 kHz."""
    body = {"input": text, "seed": seed, "stream": False, "response_format": "pcm"}
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=10 * TIMEOUT_S)
    samples = np.frombuffer(answer.raise_for_status().content, "<i2")
    return samples.astype(np.float32) / np.float32(32_768)


@pytest.fixture(scope="module")
def heard(embedded: SpeechServer) -> dict[str, tuple[NDArray[np.float32], list[str]]]:
    """Sound and words of the passage and of its sentences, each spoken alone."""
    transcriber = load_transcriber("tiny.en-package")
    made: dict[str, tuple[NDArray[np.float32], list[str]]] = {}
    for seed, text in enumerate([PASSAGE, TITLE, *SENTENCES], 1):
        sound = spoken(embedded, text, seed)
        words = transcriber.transcribe(soxr.resample(sound, 24_000, 16_000)).text
        made[text] = (sound, spoken_form(words).split())
    return made


def wrong_of_each(parts: list[str], heard: list[str]) -> list[int]:
    """Words of each part that are missing, others or too many in what was heard of all of them."""
    words = [spoken_form(part).split() for part in parts]
    ends = np.cumsum([len(each) for each in words])
    expected = " ".join(word for each in words for word in each)
    wrong = [0] * len(parts)
    for run in jiwer.process_words(expected, " ".join(heard)).alignments[0]:
        if run.type == "insert":
            # Between two parts it is the earlier one's.
            wrong[int(np.searchsorted(ends, run.ref_start_idx))] += (
                run.hyp_end_idx - run.hyp_start_idx
            )
        elif run.type != "equal":
            for at in range(run.ref_start_idx, run.ref_end_idx):
                wrong[int(np.searchsorted(ends, at, side="right"))] += 1
    return wrong


def test_a_lost_a_doubled_and_a_moved_sentence_are_wrong() -> None:
    words = [spoken_form(text).split() for text in (TITLE, *SENTENCES)]
    limits = [len(each) // 2 for each in words]
    for order in ([1, 2, 3, 4, 5], [0, 0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 4, 5], [0, 1, 2, 3, 4]):
        heard = [word for which in order for word in words[which]]
        wrong = wrong_of_each([TITLE, *SENTENCES], heard)
        assert any(n > limit for n, limit in zip(wrong, limits, strict=True)), order


def test_a_passage_has_each_word_once_and_as_well_as_its_sentences_alone(heard) -> None:
    parts = [TITLE, *SENTENCES]
    passage = heard[PASSAGE][1]
    for part, wrong in zip(parts, wrong_of_each(parts, passage), strict=True):
        # Renditions differ, and some words are misheard; a part lost or doubled is all of them.
        assert wrong <= len(spoken_form(part).split()) // 2, (part, passage)
    alone = [word for part in parts for word in heard[part][1]]
    assert sum(wrong_of_each(parts, passage)) <= sum(wrong_of_each(parts, alone)) + 4, (
        passage,
        alone,
    )


def test_a_greeting_is_heard_at_once(embedded: SpeechServer) -> None:
    for text in ("hi", "Hello"):
        sound = spoken(embedded, text, 1)
        assert np.abs(sound[:2_400]).max() > 0.01, text
        assert 0.2 < len(sound) / 24_000 < 3, text


def test_a_passage_lasts_as_its_sentences_and_the_pauses_between(heard) -> None:
    sound = heard[PASSAGE][0]
    alone_s = sum(len(heard[text][0]) for text in (TITLE, *SENTENCES)) / 24_000
    assert abs(len(sound) / 24_000 - alone_s) < 0.25 * alone_s


def test_pieces_join_without_a_click(embedded: SpeechServer) -> None:
    sound = spoken(embedded, "Hello there.\n\nSmoky fires lack flame and heat.", 1)
    # A seam is a run of zeros, 10 ms and more; within speech they are single.
    changes = np.flatnonzero(np.diff(np.concatenate([[0], sound == 0, [0]]).astype(np.int8)))
    seams = [(start, end) for start, end in changes.reshape(-1, 2) if end - start >= 240]
    assert len(seams) == 1
    start, end = seams[0]
    steps = np.abs(np.diff(sound))
    assert max(steps[start - 1], steps[end - 1]) < 0.005
    assert abs(sound[-1]) < 0.005
