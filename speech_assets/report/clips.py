"""Clips to listen to inside the page: the same sentences of every preset, as MP3 in data URIs."""

from __future__ import annotations

import base64
import io
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from server.frames import SAMPLE_RATE_HZ
from server.wav import BYTES_PER_SAMPLE, CHANNELS
from speech_assets.errors import SpeechAssetsError
from speech_assets.report.evidence import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resources.store import Store
    from speech_assets.report.evidence import Evidence

# Every browser plays MP3; Ogg Opus, half as large, is none of Safari's before 18.4. At 64 kb/s of
# mono at 24 kHz what differs between presets is heard, not what the codec of the page adds.
BIT_RATE = 64_000
MEDIA_TYPE = "audio/mpeg"
LIMIT_BYTES = 3_000_000
"""Of all clips of a page, as the text that they are in it."""


class ClipError(SpeechAssetsError):
    """A sample is not the WAV file that the server writes."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A sample of a preset. `uri` is empty where there is nothing to hear; `why_not` says why.

    `key` is its WAV in the store; `heard` and `errors` are what Whisper made of it, where a
    result of kind wer has it.
    """

    key: str
    seconds: float
    uri: str = ""
    why_not: str = ""
    heard: str | None = None
    errors: str = ""


@dataclass(frozen=True, slots=True)
class ClipRow:
    """A sentence and seed, and each preset's clip of it; None where it has none."""

    sentence: str
    kind: str
    seed: int
    clips: tuple[Clip | None, ...]


def clip_rows(
    store: Store, evidence: Evidence, limit_bytes: int = LIMIT_BYTES
) -> tuple[list[ClipRow], int]:
    """Rows of clips to listen to, as many as `limit_bytes` hold, and how many sentences there are.

    One seed of each sentence, the lowest that the first preset with samples has.

    A clip that is not in the store as it was listed is not there to hear, and says so.
    """
    presets = [preset for preset in evidence.presets if preset in evidence.samples]
    asked: dict[str, int] = {}
    of: dict[str, dict[tuple[str, int], Mapping[str, Any]]] = {}
    for preset in presets:
        listed: list[Mapping[str, Any]] = evidence.samples[preset].value["clips"]
        of[preset] = {(row["sentence"], int(row["seed"])): row for row in listed}
        for sentence, seed in sorted(of[preset], key=lambda pair: pair[1]):
            asked.setdefault(sentence, seed)
    order = {s: i for p in reversed(presets) for i, (s, _) in enumerate(of[p])}
    rows: list[ClipRow] = []
    used = 0
    for sentence in sorted(asked, key=lambda sentence: order[sentence]):
        pair = sentence, asked[sentence]
        clips = [
            _clip(store, evidence, preset, of[preset][pair]) if pair in of[preset] else None
            for preset in presets
        ]
        used += sum(len(clip.uri) for clip in clips if clip is not None)
        if used > limit_bytes:
            break
        kind = next((str(of[p][pair].get("kind", "")) for p in presets if pair in of[p]), "")
        rows.append(ClipRow(sentence, kind, pair[1], tuple(clips)))
    return rows, len(asked)


def _clip(store: Store, evidence: Evidence, preset: str, row: Mapping[str, Any]) -> Clip:
    heard, errors = _heard(evidence, preset, row)
    key = str(row.get("file") or "")
    if not key or not row.get("seconds"):
        why = f"not spoken: {row.get('error') or row.get('finish_reason') or 'no audio'}"
        return Clip(key, 0.0, why_not=why, heard=heard, errors=errors)
    try:
        wav = store.read_bytes(key)
        if row.get("sha256", sha256_of(wav)) != sha256_of(wav):
            raise ClipError(f"{key} is not the clip that was listed; make the samples again")
        data = mp3(wav, key)
    except (ClipError, FileNotFoundError) as error:
        why = f"{key} is missing" if isinstance(error, FileNotFoundError) else str(error)
        return Clip(key, 0.0, why_not=why, heard=heard, errors=errors)
    uri = f"data:{MEDIA_TYPE};base64,{base64.b64encode(data).decode()}"
    return Clip(key, float(row["seconds"]), uri, heard=heard, errors=errors)


def _heard(evidence: Evidence, preset: str, row: Mapping[str, Any]) -> tuple[str | None, str]:
    """What Whisper heard in the clip, and its wrong words; None where no result has it."""
    found = evidence.of("wer", preset)
    for made in found.value["rows"] if found is not None else ():
        # By its bytes: the sentence may have been spoken again since.
        if _which(made, "text") == _which(row, "sentence"):
            return str(made["transcript"]), f"{made['word_errors']} of {made['words']} words wrong"
    return None, ""


def was_heard(evidence: Evidence, preset: str) -> bool:
    """Whether the preset's WER is of clips that are in the store now."""
    found = evidence.of("wer", preset)
    if found is None:
        return False
    listed = {_which(row, "sentence") for row in evidence.samples[preset].value["clips"]}
    return any(_which(made, "text") in listed for made in found.value["rows"])


def _which(row: Mapping[str, Any], text: str) -> tuple[Any, ...]:
    return row.get(text), row.get("seed"), row.get("sha256")


def mp3(wav: bytes, where: str) -> bytes:
    """The WAV as MP3, the same bytes each time; `where` it is from.

    Raises:
        ClipError: it is not mono 16-bit PCM at 24 kHz.
    """
    try:
        with wave.open(io.BytesIO(wav)) as file:
            form = file.getnchannels(), file.getsampwidth(), file.getframerate()
            pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    except (wave.Error, EOFError, ValueError) as error:
        raise ClipError(f"{where} is no WAV file ({error}); make the samples again") from error
    if form != (CHANNELS, BYTES_PER_SAMPLE, SAMPLE_RATE_HZ):
        raise ClipError(
            f"{where} has (channels, bytes a sample, Hz) {form}; the server's are "
            f"{(CHANNELS, BYTES_PER_SAMPLE, SAMPLE_RATE_HZ)}; make the samples again"
        )
    out = io.BytesIO()
    with av.open(out, "w", format="mp3") as container:
        stream = container.add_stream("libmp3lame", rate=SAMPLE_RATE_HZ, layout="mono")
        stream.bit_rate = BIT_RATE
        frame = av.AudioFrame.from_ndarray(pcm[None], format="s16p", layout="mono")
        frame.sample_rate = SAMPLE_RATE_HZ
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()
