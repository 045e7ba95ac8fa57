"""How alike the arms' voices are, clip by clip, beside how alike two clips of arm A are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.quality.same_speaker import among, beside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.quality.same_speaker import Key, Likeness, Voices


def clip_key(row: Mapping[str, Any]) -> Key:
    """The clip of a row, in both arms."""
    return row["sentence_id"], row["text"], row["seed"]


def add_voices(rows: Sequence[Mapping[str, Any]], a: Voices, b: Voices) -> list[dict[str, Any]]:
    """The rows with `speaker_similarity`, and why there is none, of each arm.

    In arm B it is that with arm A's same clip; in arm A, as what to read it beside, that with
    another clip of arm A (`same_speaker.among`).
    """
    to_a, of_a = beside(b, a), among(a)
    return [
        {
            **row,
            "a": {**row["a"], **_fields(of_a[clip_key(row)])},
            "b": {**row["b"], **_fields(to_a[clip_key(row)])},
        }
        for row in rows
    ]


def _fields(likeness: Likeness) -> dict[str, Any]:
    return {"speaker_similarity": likeness.cosine, "speaker_left_out": likeness.why}
