"""One archive row to one speech row, or to a row of the quarantine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from server.frames import SAMPLE_RATE_HZ
from speech_assets.corpus.audio import MIN_CLIP_S, decode_clip, to_pcm16
from speech_assets.corpus.quarantine import AudioError, QuarantinedRow
from speech_assets.corpus.trim import TrimSettings, find_speech

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SpeechRow:
    """A trimmed clip: 16-bit PCM at 24 kHz, and what was cut from its ends.

    `sample_count` counts the samples kept; the clip had trim_start + sample_count + trim_end.
    """

    id: str
    speaker_id: str
    chapter_id: str
    text_normalized: str
    text_original: str
    source: str
    licence: str
    sample_count: int
    trim_start_samples: int
    trim_end_samples: int
    source_rate_hz: int
    gain: float
    pcm: bytes

    def as_dict(self) -> dict[str, Any]:
        """Column values of the speech schema."""
        return {name: getattr(self, name) for name in self.__slots__}


def speech_row(
    row: Mapping[str, Any], max_clip_s: float, trim: TrimSettings
) -> SpeechRow | QuarantinedRow:
    """What becomes of an archive row. The quarantined row's position is filled in by the caller."""
    try:
        return _speech_row(row, max_clip_s, trim)
    except AudioError as error:
        return QuarantinedRow(row["id"], 0, row["path"], error.reason, error.detail)


def _speech_row(row: Mapping[str, Any], max_clip_s: float, trim: TrimSettings) -> SpeechRow:
    data, text = row["audio"]["bytes"], row["text_normalized"]
    if data is None:
        file = f"; its file {row['path']!r} is not in the corpus" if row["path"] else ""
        raise AudioError("missing_audio", f"the row has no audio bytes{file}")
    if text is None or not text.strip():
        raise AudioError("missing_text", "text_normalized is null or blank")
    clip = decode_clip(data, path=row["path"], max_clip_s=max_clip_s)
    span = find_speech(clip.samples, trim)
    kept = clip.samples[span.start : span.end]
    if len(kept) < MIN_CLIP_S * SAMPLE_RATE_HZ:
        raise AudioError(
            "too_short", f"{len(kept) / SAMPLE_RATE_HZ:.3f} s of speech, need {MIN_CLIP_S} s"
        )
    return SpeechRow(
        id=row["id"],
        speaker_id=row["speaker_id"],
        chapter_id=row["chapter_id"],
        text_normalized=text,
        text_original=row["text_original"] or text,
        source=row["source"],
        licence=row["licence"],
        sample_count=len(kept),
        trim_start_samples=span.start,
        trim_end_samples=len(clip.samples) - span.end,
        source_rate_hz=clip.source_rate_hz,
        gain=clip.gain,
        pcm=to_pcm16(kept).astype("<i2").tobytes(),
    )
