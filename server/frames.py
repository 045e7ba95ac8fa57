"""Token layout of Orpheus-class speech: frames, slots, SNAC levels and token ids.

This module owns every number of the layout; the rest of the project derives from it. A frame is
seven tokens, one code from each slot, and decodes to 2,048 samples at 24 kHz. Slot s carries token
id ``audio_base + 4096 * s + code``. SNAC gives three levels, of one, two and four codes a frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LAYOUT_VERSION = 1  # Bump when the meaning of a stored code changes.

SAMPLE_RATE_HZ = 24_000
CODEBOOK_SIZE = 4_096
LEVEL_OF_SLOT = (0, 1, 2, 2, 1, 2, 2)
SLOTS_OF_LEVEL: tuple[tuple[int, ...], ...] = tuple(
    tuple(slot for slot, owner in enumerate(LEVEL_OF_SLOT) if owner == level)
    for level in range(max(LEVEL_OF_SLOT) + 1)
)
TOKENS_PER_FRAME = len(LEVEL_OF_SLOT)
LEVELS = len(SLOTS_OF_LEVEL)
SAMPLES_PER_LATENT = 512  # Product of SNAC 24 kHz' encoder rates 2, 4, 8, 8.
LATENTS_PER_FRAME = len(SLOTS_OF_LEVEL[-1])
SAMPLES_PER_FRAME = SAMPLES_PER_LATENT * LATENTS_PER_FRAME
FRAMES_PER_S = SAMPLE_RATE_HZ / SAMPLES_PER_FRAME
REALTIME_TOKENS_PER_S = FRAMES_PER_S * TOKENS_PER_FRAME
# Of each latent of a frame, the slot that completes it: the last of the slots of its codes.
_LAST_SLOT_OF_LATENT = [
    max(slots[latent * len(slots) // LATENTS_PER_FRAME] for slots in SLOTS_OF_LEVEL)
    for latent in range(LATENTS_PER_FRAME)
]
_LATENTS_OF_REST = [
    sum(last < tokens for last in _LAST_SLOT_OF_LATENT) for tokens in range(TOKENS_PER_FRAME)
]


def frame_count(sample_count: int) -> int:
    """Frames that hold `sample_count` samples: SNAC pads a clip with zeros to whole frames."""
    return -(-sample_count // SAMPLES_PER_FRAME)


def latents_ready(token_count: int) -> int:
    """Latents (512 samples each) whose codes are all among an utterance's first `token_count`."""
    whole, rest = divmod(token_count, TOKENS_PER_FRAME)
    return whole * LATENTS_PER_FRAME + _LATENTS_OF_REST[rest]


def slots_from_levels(levels: Sequence[NDArray[np.integer]]) -> NDArray[np.uint16]:
    """Codes in slot order, uint16 of shape (frames, 7), from SNAC's levels.

    `levels` are integer arrays of shape (frames,), (2 * frames,) and (4 * frames,).

    Raises:
        ValueError: the levels do not belong to one number of frames.
    """
    frames = len(levels[0])
    expected = [frames * len(slots) for slots in SLOTS_OF_LEVEL]
    if [len(level) for level in levels] != expected:
        got = [len(level) for level in levels]
        raise ValueError(f"levels of {got} codes do not make {frames} whole frames ({expected})")
    codes = np.empty((frames, TOKENS_PER_FRAME), np.uint16)
    for level, slots in zip(levels, SLOTS_OF_LEVEL, strict=True):
        codes[:, list(slots)] = level.reshape(frames, len(slots))
    return codes


def levels_from_slots(codes: NDArray[np.integer]) -> list[NDArray[np.int64]]:
    """SNAC's levels, int64 of shapes (frames,), (2 * frames,), (4 * frames,), from (frames, 7).

    Raises:
        ValueError: `codes` has another shape.
    """
    if codes.ndim != 2 or codes.shape[1] != TOKENS_PER_FRAME:
        raise ValueError(f"codes have shape {codes.shape}, need (frames, {TOKENS_PER_FRAME})")
    return [codes[:, list(slots)].reshape(-1).astype(np.int64) for slots in SLOTS_OF_LEVEL]


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """Token ids of one model: where audio starts and which specials frame a prompt.

    The defaults are those of Orpheus 3B: a prompt is ``prefix, text ids, suffix``, the model
    answers with audio ids and ends with `end_of_speech`.
    """

    audio_base: int = 128_266
    end_of_speech: int = 128_258
    prompt_prefix: tuple[int, ...] = (128_259,)  # start_of_human
    # eot_id, end_of_human, start_of_ai, start_of_speech
    prompt_suffix: tuple[int, ...] = (128_009, 128_260, 128_261, 128_257)
    begin_of_text: int | None = 128_000
    voices: tuple[str, ...] = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")

    @property
    def audio_end(self) -> int:
        """First id after the audio ids."""
        return self.audio_base + CODEBOOK_SIZE * TOKENS_PER_FRAME

    def prompt(self, text_ids: Sequence[int]) -> list[int]:
        """Prompt ids around `text_ids` (which carry no special ids)."""
        begin = [] if self.begin_of_text is None else [self.begin_of_text]
        return [*self.prompt_prefix, *begin, *text_ids, *self.prompt_suffix]

    def token_ids(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Token ids, int64 of shape (7 * frames,), of codes of shape (frames, 7) or (7 * frames,).

        Raises:
            ValueError: a code is outside 0..4,095 or the codes are not whole frames.
        """
        flat = np.asarray(codes, np.int64).reshape(-1)
        if len(flat) % TOKENS_PER_FRAME:
            raise ValueError(f"{len(flat)} codes are not whole frames of {TOKENS_PER_FRAME}")
        bad = np.flatnonzero((flat < 0) | (flat >= CODEBOOK_SIZE))
        if len(bad):
            where = int(bad[0])
            raise ValueError(f"code {flat[where]} at {where} is outside 0..{CODEBOOK_SIZE - 1}")
        slot = np.arange(len(flat)) % TOKENS_PER_FRAME
        return flat + self.audio_base + CODEBOOK_SIZE * slot

    def codes(self, token_ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.uint16]:
        """Codes, uint16 of shape (frames, 7), of aligned audio token ids.

        Raises:
            ValueError: an id is not of the slot its position asks for, or the last frame is cut.
        """
        ids = np.asarray(token_ids, np.int64).reshape(-1)
        if len(ids) % TOKENS_PER_FRAME:
            raise ValueError(f"{len(ids)} token ids are not whole frames of {TOKENS_PER_FRAME}")
        slot = np.arange(len(ids)) % TOKENS_PER_FRAME
        codes = ids - self.audio_base - CODEBOOK_SIZE * slot
        bad = np.flatnonzero((codes < 0) | (codes >= CODEBOOK_SIZE))
        if len(bad):
            where = int(bad[0])
            raise ValueError(f"id {ids[where]} at {where} is not an id of slot {slot[where]}")
        return codes.astype(np.uint16).reshape(-1, TOKENS_PER_FRAME)


ORPHEUS = TokenLayout()
