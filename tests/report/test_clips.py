"""Clips to listen to: the samples' sound, within the page's size, and what was not spoken."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import av
import pytest
from report.filled import (
    EVIL,
    SENTENCES,
    A,
    B,
    evidence_in,
    put_samples,
    put_wer,
    real_wavs,
    scores,
    seconds_of,
)

from resources.store import Store
from speech_assets.report.clips import ClipError, clip_rows, mp3
from speech_assets.report.listening import listening_section

if TYPE_CHECKING:
    from pathlib import Path

    from speech_assets.report.evidence import Evidence


def duration_s(data: bytes) -> float:
    with av.open(io.BytesIO(data)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def test_a_clip_sounds_as_long_as_its_sample_and_is_the_same_each_time(store: Store) -> None:
    wav = store.read_bytes(f"samples/{A}/000-1.wav")
    data = mp3(wav, "here")
    assert data == mp3(wav, "here")
    # A frame of MP3 at 24 kHz is 24 ms; the encoder adds one or two at each end.
    assert duration_s(data) == pytest.approx(seconds_of(wav), abs=0.1)
    assert len(data) < len(wav) / 4


def test_rows_are_sentences_in_the_samples_order_with_one_seed(
    store: Store, evidence: Evidence
) -> None:
    rows, sentences = clip_rows(store, evidence)
    assert sentences == len(SENTENCES)
    assert [(row.sentence, row.kind, row.seed) for row in rows] == [
        (text, kind, 1) for _, kind, text in SENTENCES
    ]
    first = rows[0].clips
    assert [clip.heard for clip in first] == ["what was heard", EVIL]
    assert [clip.errors for clip in first] == ["1 of 10 words wrong", "3 of 10 words wrong"]
    assert rows[2].clips[1].uri == ""
    assert rows[2].clips[1].why_not == f"not spoken: {EVIL}"


def test_clips_stay_within_their_limit_and_the_page_says_so(
    store: Store, evidence: Evidence
) -> None:
    rows, _ = clip_rows(store, evidence)
    one_row = sum(len(clip.uri) for clip in rows[0].clips)
    fewer, sentences = clip_rows(store, evidence, limit_bytes=one_row + 1)
    assert len(fewer) == 1
    section = listening_section(evidence, fewer, sentences)
    assert "1 of 3 sentences are here" in section.paragraphs[1]
    whole = listening_section(evidence, rows, sentences)
    assert len(whole.paragraphs) == 1


def test_a_preset_without_a_clip_of_a_sentence_has_none(store: Store, evidence: Evidence) -> None:
    sheet = evidence.samples[B]
    short = replace(sheet, value={"clips": sheet.value["clips"][:2]})
    rows, _ = clip_rows(store, replace(evidence, samples={**evidence.samples, B: short}))
    assert [row.clips[1] is None for row in rows] == [False, True, True]


def test_a_clip_that_is_not_the_one_that_was_listed_says_so(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put_samples(store, A, real_wavs(3))
    store.delete(f"samples/{A}/000-1.wav")
    store.write_bytes(f"samples/{A}/001-1.wav", store.read_bytes(f"samples/{A}/002-1.wav"))
    rows, _ = clip_rows(store, evidence_in(store))
    assert rows[0].clips[0].why_not == f"samples/{A}/000-1.wav is missing"
    assert "is not the clip that was listed" in rows[1].clips[0].why_not
    assert [bool(row.clips[0].uri) for row in rows] == [False, False, True]


def test_transcripts_of_other_samples_are_not_shown(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put_samples(store, A, real_wavs(2))
    put_wer(store, A, scores((0, 0, 0, 0, 0, 0)))
    evidence = evidence_in(store)
    rows, sentences = clip_rows(store, evidence)
    assert {clip.heard for row in rows for clip in row.clips} == {None}
    said = listening_section(evidence, rows, sentences).paragraphs
    assert f"Of `{A}` no transcripts are shown" in said[-1]


def test_what_is_no_sample_is_refused_by_name() -> None:
    with pytest.raises(ClipError, match=r"samples/x\.wav is no WAV file"):
        mp3(b"no sound", "samples/x.wav")
