"""Lead-ins that were generated once, to seed utterances with: frames that need not be made again.

Orpheus begins each utterance with seven frames of near-silence, which cost as many tokens as 0.6 s
of speech. A prompt that ends with the first of them, taken from a generation of the same
voice, leaves fewer to generate. Such frames, their codes and their tokens are *seeded*. They are
part of the utterance as if it had made them: decoded, searched for the onset, counted by penalties.

A file of lead-ins says what made it. Another codec is refused: by it the codes are any sound. Of
another model they are taken: silence is what the codec makes of the codes, whoever chose them, a
fine-tune or a quantized checkpoint goes on from it as from its own, and a voice that the file lacks
is refused. Whether a model speaks as well from them is not known by a hash; `speech-ab` tells.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
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
SCHEMA_VERSION = 2  # 1 did not know which codec its codes are of.
_COMMAND = "python -m speech_assets.work.lead_ins --preset NAME --frames N --out FILE"
_REMEDY = f"make it again: {_COMMAND}"


@dataclass(frozen=True, slots=True)
class MadeBy:
    """What made a file of lead-ins: a preset's model and codec.

    Attributes:
        preset: its name.
        model_sha256: of the model's weights (`server.checks.weights_sha256`).
        codec_sha256: of the codec whose codes they are (`server.codec_form.origin_sha256`).
    """

    preset: str
    model_sha256: str
    codec_sha256: str


@dataclass(frozen=True, slots=True)
class LeadIns:
    """Lead-ins by voice, codes of shape (lead-ins, frames, 7) each.

    `frames` of one are seeded; 0 is none.
    """

    frames: int = 0
    codes: Mapping[str, NDArray[np.uint16]] | None = None

    def pick(self, voice: str, seed: int) -> NDArray[np.uint16]:
        """An utterance's seeded codes, of shape (7 * frames,): the choice of its random seed."""
        if not self.frames or self.codes is None:
            return np.zeros(0, np.uint16)
        held = self.codes[voice]
        chosen = random.Random(f"lead-in of {seed}").randrange(len(held))
        return held[chosen, : self.frames].reshape(-1)


def read_lead_ins(
    path: Path, frames: int, voices: Sequence[str], *, codec_sha256: str | None
) -> LeadIns:
    """The file's lead-ins, `frames` of each, for all of `voices`.

    `codec_sha256` is of the codec that is to decode them, as `MadeBy` has it; None: not known yet.

    Raises:
        WeightsError: there is no such file, it is not what it must be, is of another codec, or
            lacks a voice.
    """
    value = read_json(path, absent=f"preset settings name it; {_REMEDY}", remedy=_REMEDY)
    version: object = value.get("schema_version")
    if version != SCHEMA_VERSION:
        raise WeightsError(
            f"{path}: schema_version is {version!r}, not {SCHEMA_VERSION}: not lead-ins of this "
            f"version; {_REMEDY}"
        )
    held, made_by = value.get("voices"), value.get("made_by")
    if not isinstance(held, dict) or not isinstance(made_by, dict):
        raise WeightsError(f"{path}: no lead-ins: voices or made_by is missing; {_REMEDY}")
    made_with: object = made_by.get("codec_sha256")
    if codec_sha256 is not None and made_with != codec_sha256:
        raise WeightsError(
            f"{path}: lead-ins are codes of the codec with sha256 {made_with}, and the preset's is "
            f"{codec_sha256}, by which they would be any sound; make them anew with the preset's: "
            f"{_COMMAND}, or set seeded_frames = 0"
        )
    return LeadIns(frames, {voice: _codes(path, held, voice, frames) for voice in voices})


def lead_ins_value(made_by: MadeBy, voices: Mapping[str, NDArray[np.uint16]]) -> dict[str, Any]:
    """JSON value of a file of lead-ins, which are of shape (lead-ins, frames, 7) by voice."""
    return {
        "schema_version": SCHEMA_VERSION,
        "made_by": asdict(made_by),
        "voices": {voice: codes.tolist() for voice, codes in voices.items()},
    }


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
