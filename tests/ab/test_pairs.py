"""The same clip of two arms: values worked by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from ab.clips import kept_row, raw_row, tone

from resources.store import Store
from speech_assets.ab.pairs import add_transcripts, compare_pair

if TYPE_CHECKING:
    from pathlib import Path


def test_one_sample_that_differs_is_found_in_every_measure(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    a, b = np.full(2_000, 1_000, np.int16), np.full(2_000, 1_000, np.int16)
    b[7] = 980
    row = compare_pair(kept_row(store, "a", a), kept_row(store, "b", b, position=1), a, b)
    assert (row["same_samples"], row["same_bytes"], row["over_prefix"]) == (True, False, False)
    assert row["pcm_max_difference"] == 20
    assert row["pcm_mean_difference"] == pytest.approx(20 / 2_000)
    # |B - A| = 20, |A| = 1000 sqrt(2000).
    wanted_db = 20 * math.log10(20 / (1_000 * math.sqrt(2_000)))
    assert row["relative_error_db"] == pytest.approx(wanted_db)
    assert row["first"] == "a"
    assert row["duration_difference_s"] == 0


def test_the_same_audio_has_no_difference_and_no_decibels(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    one, other = kept_row(store, "a", tone()), kept_row(store, "b", tone())
    row = compare_pair(one, other, tone(), tone())
    assert row["same_bytes"]
    assert row["pcm_mean_difference"] == row["pcm_max_difference"] == 0
    assert row["relative_error_db"] is None
    assert row["a"]["flags"] == row["b"]["flags"] == []


def test_clips_of_other_length_are_compared_over_what_both_have() -> None:
    a, b = tone(24_000), tone(30_000)
    row = compare_pair(raw_row(samples=24_000), raw_row(samples=30_000, frames=15), a, b)
    assert (row["same_samples"], row["same_frames"], row["over_prefix"]) == (False, False, True)
    assert row["compared_samples"] == 24_000
    assert row["duration_difference_s"] == pytest.approx(0.25)
    assert row["pcm_max_difference"] == 0  # Over the common second.


def test_what_is_unhealthy_is_flagged_in_the_arm_that_has_it() -> None:
    clicking = tone()
    clicking[12_000] = 32_767
    loud = tone(amplitude=60_000 // 2)
    offset = (tone() + 2_000).astype(np.int16)
    row = compare_pair(raw_row(), raw_row(), tone(), clicking)
    assert row["a"]["flags"] == []
    assert row["b"]["flags"] == ["clicks"]
    assert compare_pair(raw_row(), raw_row(), clicking, tone())["a"]["flags"] == ["clicks"]
    assert compare_pair(raw_row(), raw_row(), offset, tone())["a"]["flags"] == ["dc_offset"]
    assert (
        "clipping"
        in compare_pair(
            raw_row(), raw_row(), loud, np.clip(loud * 2.0, -32_767, 32_767).astype(np.int16)
        )["b"]["flags"]
    )


def test_an_arm_that_did_not_speak_has_a_row_without_differences() -> None:
    mute = raw_row(file="", file_sha256="", samples=0, finish_reason="no_audio")
    row = compare_pair(raw_row(), mute, tone(), np.zeros(0, np.int16))
    assert (row["both_have_audio"], row["a"]["has_audio"], row["b"]["has_audio"]) == (
        False,
        True,
        False,
    )
    assert row["pcm_mean_difference"] is row["relative_error_db"] is None
    assert row["duration_difference_s"] == -2.0


def test_transcripts_agree_where_their_words_do() -> None:
    row = compare_pair(raw_row(), raw_row(), tone(), tone())
    heard = {"transcript": "try the blue one first", "words": 5, "word_errors": 0}
    other = {"transcript": "try the blue one", "words": 5, "word_errors": 1}
    assert add_transcripts(row, {"a": heard, "b": heard})["same_transcript"]
    judged = add_transcripts(row, {"a": heard, "b": other})
    assert not judged["same_transcript"]
    assert judged["b"]["word_errors"] == 1
    assert judged["b"]["samples"] == row["b"]["samples"]
