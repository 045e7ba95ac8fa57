"""What one clip is worth: words understood, whether it spoke, ratings, silence and faults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from server.frames import SAMPLE_RATE_HZ
from speech_assets.audio_health import audio_health
from speech_assets.bench.onset import onset
from speech_assets.quality.samples import BY_ITSELF, SpokenClip, at_judges_rate
from speech_assets.quality.word_errors import word_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from speech_assets.voice.dnsmos import Quality

FASTEST_S_PER_WORD = 0.12
"""500 words a minute, about what the fastest speakers reach: a clip that has less time for each of
its words cannot have said them."""


class _Transcript(Protocol):
    @property
    def text(self) -> str: ...


class Ears(Protocol):
    """What a transcriber is here: `asr.transcriber.Transcriber` is one."""

    def transcribe(self, samples: NDArray[np.float32]) -> _Transcript:
        """The words of `samples`, float32 (samples,) at 16 kHz in -1..1."""
        ...


@dataclass(frozen=True, slots=True)
class ClipScore:
    """One clip, scored: a row of a result of kind `wer`.

    Attributes:
        text: what was to be said, as it was sent.
        transcript: what was heard, as Whisper writes it; empty where there was nothing to hear.
        words, word_errors: of the text after Whisper's English normaliser.
        format_insensitive_words, format_insensitive_word_errors: the same of both
            texts' spoken forms.
        characters, character_errors: of the normalised text.
        spoke: words were heard, there was time enough to say the text's, and it ended by itself.
        leading_silence_s: time before the first 10 ms above -40 dBFS, as the model made it: the
            lead-in of samples is kept, that of a stream is trimmed. None: there are none.
        flags: faults of the signal, `audio_health`'s names; "clicks" only beside a reference, so
            that none are sought in the base preset's own clips.
        dnsmos_overall, dnsmos_signal, dnsmos_noise: 1 to 5; None where nothing was rated.
        speaker_similarity: cosine of its voice with the base preset's same clip, and of the base
            preset's own with another of its own (`same_speaker.among`); None where none is told.
        speaker_left_out: why none is, where it was asked for (`same_speaker.Why`).
        error: what a server said that refused it.
        sha256: of the clip's WAV; empty where there is none.
    """

    sentence_id: int
    kind: str
    seed: int
    text: str
    transcript: str
    words: int
    word_errors: int
    format_insensitive_words: int
    format_insensitive_word_errors: int
    characters: int
    character_errors: int
    seconds: float
    finish_reason: str
    spoke: bool
    leading_silence_s: float | None
    flags: tuple[str, ...]
    dnsmos_overall: float | None = None
    dnsmos_signal: float | None = None
    dnsmos_noise: float | None = None
    speaker_similarity: float | None = None
    speaker_left_out: str = ""
    error: str = ""
    sha256: str = ""

    @property
    def key(self) -> tuple[int, str, int]:
        """What another preset's clip has in common with this one: sentence and seed."""
        return self.sentence_id, self.text, self.seed

    def as_row(self) -> dict[str, Any]:
        """JSON value, for a result's rows."""
        return {**asdict(self), "flags": list(self.flags)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ClipScore:
        """The score of a result's row.

        Raises:
            TypeError: it is a row of something else.
        """
        values: dict[str, Any] = {**row, "flags": tuple(row["flags"])}
        return cls(**values)


def score_clip(
    clip: SpokenClip,
    pcm: NDArray[np.int16],
    ears: Ears,
    rate: Callable[[NDArray[np.float32]], Quality] | None = None,
    reference: NDArray[np.int16] | None = None,
) -> ClipScore:
    """The score of a clip.

    `pcm` and `reference`, the base preset's same clip, are int16 (samples,) at 24 kHz; `rate` is
    DNSMOS, or None to leave it out.
    """
    heard = np.clip(at_judges_rate(pcm), -1, 1)
    transcript = ears.transcribe(heard).text.strip() if len(heard) else ""
    errors = word_errors(clip.sentence, transcript)
    start = onset(pcm, SAMPLE_RATE_HZ)
    silence_s = None if start is None else start / SAMPLE_RATE_HZ
    rated = rate(heard) if rate is not None and len(heard) else None
    health = audio_health(pcm, reference if reference is not None and len(reference) else None)
    return ClipScore(
        sentence_id=clip.sentence_id,
        kind=clip.kind,
        seed=clip.seed,
        text=clip.sentence,
        transcript=transcript,
        words=errors.words,
        word_errors=errors.word_errors,
        format_insensitive_words=errors.format_insensitive_words,
        format_insensitive_word_errors=errors.format_insensitive_word_errors,
        characters=errors.characters,
        character_errors=errors.character_errors,
        seconds=round(len(pcm) / SAMPLE_RATE_HZ, 4),
        finish_reason=clip.finish_reason,
        spoke=(
            any(letter.isalnum() for letter in errors.transcript)
            and silence_s is not None
            and len(pcm) / SAMPLE_RATE_HZ - silence_s >= FASTEST_S_PER_WORD * errors.words
            and clip.finish_reason == BY_ITSELF
        ),
        leading_silence_s=silence_s,
        flags=health.flags(),
        dnsmos_overall=rated.overall if rated else None,
        dnsmos_signal=rated.signal if rated else None,
        dnsmos_noise=rated.noise if rated else None,
        error=clip.error,
        sha256=clip.sha256,
    )
