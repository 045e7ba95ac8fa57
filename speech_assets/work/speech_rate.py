"""How fast speech is made while all that make it are at work: no start counts, and no filling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Stored:
    """A speech shard that was stored at `at_s` of some clock, and its seconds of audio."""

    at_s: float
    audio_s: float


@dataclass(frozen=True, slots=True)
class Made:
    """Seconds of audio, and those in which they were made."""

    audio_s: float
    seconds: float

    @property
    def hours_per_min(self) -> float:
        """Hours of audio a minute."""
        return self.audio_s / 60 / self.seconds


def steadily_made(makers: Sequence[Sequence[Stored]], least_s: float = 1e-6) -> Made:
    """What was made from when each maker had stored its first shard to the last shard of all.

    Each of `makers` gives its shards, at least two. Nothing shorter than `least_s` can be told.

    Raises:
        ValueError: a maker has no two shards.
    """
    if any(len(stored) < 2 for stored in makers):
        counts = ", ".join(str(len(stored)) for stored in makers)
        raise ValueError(f"makers of {counts} shards; a speed takes two shards of each")
    began_s = max(min(shard.at_s for shard in stored) for stored in makers)
    ended_s = max(shard.at_s for stored in makers for shard in stored)
    audio_s = sum(s.audio_s for stored in makers for s in stored if s.at_s > began_s)
    return Made(audio_s, max(ended_s - began_s, least_s))
