"""How large the tokens of a corpus are, and how long making them takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from server.frames import (
    CODEBOOK_SIZE,
    REALTIME_TOKENS_PER_S,
    SAMPLE_RATE_HZ,
    TOKENS_PER_FRAME,
)
from speech_assets.profiles import SHARD_ROWS

S_PER_HOUR, MIN_PER_HOUR = 3_600, 60
STORED_CODE_BYTES = 2  # uint16.
PCM_SAMPLE_BYTES = 2
LEAST_CODE_BYTES = math.log2(CODEBOOK_SIZE) / 8  # Of codes that are all equally likely.


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """A corpus in tokens. Bytes are of codes and samples alone, before compression."""

    hours: float
    clips: int
    tokens: float
    shards: int

    @property
    def code_bytes(self) -> float:
        """Bytes of all codes as shards hold them."""
        return self.tokens * STORED_CODE_BYTES

    @property
    def least_code_bytes(self) -> float:
        """Bytes of all codes at 12 bits, below which equally likely ones do not compress."""
        return self.tokens * LEAST_CODE_BYTES

    @property
    def pcm_bytes(self) -> float:
        """Bytes of the samples that `speech` holds."""
        return self.hours * S_PER_HOUR * SAMPLE_RATE_HZ * PCM_SAMPLE_BYTES


def dataset_size(hours: float, mean_clip_s: float, padding_frames: float) -> DatasetSize:
    """Clips, tokens and shards of `hours` of audio.

    Tokens are 24,000 / 2,048 x 7 a second, and `padding_frames` frames a clip, by which SNAC's
    padding makes a clip longer in the mean.
    """
    clips = math.ceil(hours * S_PER_HOUR / mean_clip_s)
    spoken = hours * S_PER_HOUR * REALTIME_TOKENS_PER_S
    return DatasetSize(
        hours=hours,
        clips=clips,
        tokens=spoken + clips * padding_frames * TOKENS_PER_FRAME,
        shards=-(-clips // SHARD_ROWS),
    )


def device_hours(hours: float, hours_per_min: float) -> float:
    """Hours that one device takes for `hours` of audio at a rate of `hours_per_min`."""
    return hours / (hours_per_min * MIN_PER_HOUR)
