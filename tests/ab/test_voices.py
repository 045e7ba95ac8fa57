"""Voices of two arms, by vectors whose cosines are known."""

from __future__ import annotations

import numpy as np

from speech_assets.ab.voices import add_voices
from speech_assets.speaker.voice import Voice

ACROSS = Voice(np.array([1.0, 0.0], np.float32))
UP = Voice(np.array([0.6, 0.8], np.float32))


def test_arm_b_is_compared_with_arm_a_and_arm_a_with_itself() -> None:
    rows = [
        {
            "sentence_id": n,
            "text": "t",
            "seed": seed,
            "a": {"has_audio": True},
            "b": {"has_audio": True},
        }
        for n in range(2)
        for seed in (1, 2)
    ]
    places = [(n, "t", seed) for n in range(2) for seed in (1, 2)]
    a = dict(zip(places, (ACROSS, UP, ACROSS, Voice(why="silent")), strict=True))
    b = dict(zip(places, (ACROSS, ACROSS, Voice(why="too_short"), ACROSS), strict=True))
    found = add_voices(rows, a, b)
    assert [row["a"]["speaker_similarity"] for row in found] == [0.6, 0.6, None, None]
    assert [row["b"]["speaker_similarity"] for row in found] == [1.0, 0.6, None, None]
    assert [row["a"]["speaker_left_out"] for row in found[2:]] == ["no_counterpart", "silent"]
    assert [row["b"]["speaker_left_out"] for row in found[2:]] == ["too_short", "no_counterpart"]
    assert all(row["b"]["has_audio"] for row in found)
    assert "speaker_similarity" not in rows[0]["a"]
