"""Lead-ins that were generated once, to begin utterances with: frames that need not be made again.

Orpheus begins each utterance with seven frames of near-silence, which cost as many tokens as 0.6 s
of speech. A prompt that ends with the first of them, taken from a generation of the same
voice, leaves fewer to generate. They are part of the utterance as if it had made them: decoded,
searched for the onset, counted by penalties.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from server.errors import WeightsError
from server.files import read_json
from server.frames import CODEBOOK_SIZE, TOKENS_PER_FRAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

MOST_FRAMES = 4  # Of Orpheus' seven: the rest is the model's own way into the text.
SCHEMA_VERSION = 1
_REMEDY = "make it again: python -m speech_assets.work.lead_ins --preset NAME --out FILE"


@dataclass(frozen=True, slots=True)
class LeadIns:
    """Beginnings of utterances by voice, codes of shape (lead-ins, frames, 7) each.

    `frames` of one are used; 0 is none.
    """

    frames: int = 0
    codes: Mapping[str, NDArray[np.uint16]] | None = None

    def pick(self, voice: str, seed: int) -> NDArray[np.uint16]:
        """The codes that an utterance begins with, of shape (7 * frames,): the seed's choice."""
        if not self.frames or self.codes is None:
            return np.zeros(0, np.uint16)
        held = self.codes[voice]
        chosen = random.Random(f"lead-in of {seed}").randrange(len(held))
        return held[chosen, : self.frames].reshape(-1)


def read_lead_ins(path: Path, frames: int, voices: Sequence[str]) -> LeadIns:
    """The file's lead-ins, `frames` of each, for all of `voices`.

    Raises:
        WeightsError: there is no such file, it is not what it must be, or lacks a voice.
    """
    value = read_json(path, absent=f"preset settings name it; {_REMEDY}", remedy=_REMEDY)
    held: object = value.get("voices")
    if value.get("schema_version") != SCHEMA_VERSION or not isinstance(held, dict):
        raise WeightsError(f"{path}: not lead-ins of this version; {_REMEDY}")
    return LeadIns(frames, {voice: _codes(path, held, voice, frames) for voice in voices})


def made_up(frames: int, voices: Sequence[str]) -> LeadIns:
    """Lead-ins of random codes, for a model of random weights."""
    drawn = np.random.default_rng(0).integers(0, CODEBOOK_SIZE, (8, frames, TOKENS_PER_FRAME))
    return LeadIns(frames, dict.fromkeys(voices, drawn.astype(np.uint16)))


def _codes(path: Path, held: dict[Any, Any], voice: str, frames: int) -> NDArray[np.uint16]:
    if voice not in held:
        raise WeightsError(f"{path}: no lead-in of voice {voice!r}; {_REMEDY}")
    try:
        codes = np.array(held[voice], np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise WeightsError(f"{path}: the lead-ins of {voice!r} are no codes; {_REMEDY}") from error
    if codes.ndim != 3 or not len(codes) or codes.shape[2] != TOKENS_PER_FRAME:
        raise WeightsError(
            f"{path}: lead-ins of {voice!r} have shape {codes.shape}, not (lead-ins, frames, "
            f"{TOKENS_PER_FRAME}); {_REMEDY}"
        )
    if codes.shape[1] < frames:
        raise WeightsError(
            f"{path}: lead-ins of {voice!r} have {codes.shape[1]} frames, fewer than the preset's "
            f"seeded_frames of {frames}; lower that, or {_REMEDY}"
        )
    if codes.min() < 0 or codes.max() >= CODEBOOK_SIZE:
        raise WeightsError(f"{path}: a code of {voice!r} is outside 0..4,095; {_REMEDY}")
    return codes.astype(np.uint16)
