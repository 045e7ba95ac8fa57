"""Whether a preset still speaks with the base preset's voice: clips compared by their embeddings.

A cosine alone says little, for a speaker never sounds the same twice: the yardstick is how alike
two clips of the base preset itself are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from speech_assets.speaker.voice import Voice, cosine

if TYPE_CHECKING:
    from speech_assets.quality.clip_scores import ClipScore

Key = tuple[int, str, int]
"""A clip's sentence, by id and text, and its seed."""
Voices = Mapping[Key, Voice]
Why = Literal["", "silent", "too_short", "no_counterpart"]
OTHER_SEED = "the same sentence with another seed"
OTHER_SENTENCE = "another sentence with the same seed"


@dataclass(frozen=True, slots=True)
class Likeness:
    """How alike a clip's voice and another one's are, rounded; None, and why, where none is told.

    "no_counterpart": the other clip is not there, or has no voice.
    """

    cosine: float | None
    why: Why = ""


def beside(ours: Voices, theirs: Voices) -> dict[Key, Likeness]:
    """Of each of our clips: with theirs of the same sentence and seed."""
    return {key: _likeness(voice, theirs.get(key)) for key, voice in ours.items()}


def among(voices: Voices) -> dict[Key, Likeness]:
    """Of each clip: with another of the same voices, as `yardstick` says; the last with the first.

    With one seed, neighbours share a clip; an interval over sentences takes them as independent.
    """
    groups: dict[tuple[int, str] | int, list[Key]] = {}
    is_by_seed = yardstick(voices) == OTHER_SEED
    for key in sorted(voices):
        groups.setdefault(key[:2] if is_by_seed else key[2], []).append(key)
    other = {
        key: following
        for group in groups.values()
        for key, following in zip(group, [*group[1:], *group[:1]], strict=True)
        if key != following
    }
    return {
        key: _likeness(voice, voices[other[key]] if key in other else None)
        for key, voice in voices.items()
    }


def yardstick(keys: Voices | Sequence[Key]) -> str:
    """What `among` compares a clip with: its sentence's other seed, where there are several."""
    return OTHER_SEED if len({seed for _, _, seed in keys}) > 1 else OTHER_SENTENCE


def with_likeness(clips: Sequence[ClipScore], likeness: Mapping[Key, Likeness]) -> list[ClipScore]:
    """The scores, each with its clip's likeness."""
    return [
        replace(clip, speaker_similarity=found.cosine, speaker_left_out=found.why)
        for clip in clips
        for found in (likeness[clip.key],)
    ]


def _likeness(voice: Voice, other: Voice | None) -> Likeness:
    if voice.embedding is None:
        return Likeness(None, voice.why)
    found = None if other is None else cosine(voice, other)
    # To four digits, which differ on no machine: some of the last float32 digits do.
    return Likeness(None, "no_counterpart") if found is None else Likeness(round(found, 4))
