"""What a preset's server said: `samples/<preset>/samples.json` and the WAVs beside it."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
import soxr

from server.frames import SAMPLE_RATE_HZ
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from resources.store import Store

SCHEMA_VERSION = 2
BY_ITSELF = "stop"
"""The finish reason of speech that ended by itself."""
REFUSED = "refused"
"""The finish reason of a clip that the server answered with an error: it has no file."""
JUDGES_RATE_HZ = 16_000
"""What Whisper and DNSMOS take."""


@dataclass(frozen=True, slots=True)
class SpokenClip:
    """One sentence as a server spoke it with one seed.

    `file` is the WAV's key in the store and `sha256` its bytes' hash, both empty where the server
    refused; `error` is then what it said. `finish_reason` is the server's, or "refused".
    """

    sentence_id: int
    kind: str
    sentence: str
    seed: int
    file: str
    seconds: float
    finish_reason: str
    sha256: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Samples:
    """All clips of a preset, and what they were made with; `sha256` is of their samples.json."""

    preset: str
    code_version: str
    config_sha256: str
    weights: Mapping[str, Any]
    clips: tuple[SpokenClip, ...]
    sha256: str


def samples_key(preset: str) -> str:
    """Key of what says which samples there are."""
    return f"samples/{preset}/samples.json"


def read_samples(store: Store, preset: str) -> Samples:
    """The samples of a preset.

    Raises:
        ConfigError: there are none, or their description is damaged or of another version.
    """
    key = samples_key(preset)
    remedy = f"materialize samples of {preset}, or: python -m speech_assets.work.samples --preset "
    if not store.exists(key):
        raise ConfigError(f"{store.path(key)} is not there; {remedy}{preset}")
    try:
        data = store.read_bytes(key)
        value = json.loads(data)
        if value["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {value['schema_version']}, not {SCHEMA_VERSION}")
        clips = tuple(SpokenClip(**row) for row in value["clips"])
        if not clips:
            raise ValueError("no clips in it")
        return Samples(
            preset=value["preset"],
            code_version=value["code_version"],
            config_sha256=value["config_sha256"],
            weights=value["weights"],
            clips=clips,
            sha256=hashlib.sha256(data).hexdigest(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{store.path(key)} does not describe samples ({type(error).__name__}: {error}); "
            f"{remedy}{preset}"
        ) from error


def read_clip(store: Store, clip: SpokenClip) -> NDArray[np.int16]:
    """PCM of a clip, int16 (samples,) at 24 kHz; empty where the server refused it.

    Raises:
        ConfigError: the file is missing, is not the one that was kept, or is no such WAV.
    """
    if not clip.file:
        return np.zeros(0, np.int16)
    where = store.path(clip.file)
    remedy = "materialize samples again"
    if not store.exists(clip.file):
        raise ConfigError(f"{where} is not there; {remedy}")
    data = store.read_bytes(clip.file)
    if hashlib.sha256(data).hexdigest() != clip.sha256:
        raise ConfigError(f"{where} is not the file that samples.json speaks of; {remedy}")
    try:
        samples, rate_hz = soundfile.read(io.BytesIO(data), dtype="int16")
    except soundfile.LibsndfileError as error:
        raise ConfigError(f"{where} is no WAV ({error}); {remedy}") from error
    if samples.ndim != 1 or rate_hz != SAMPLE_RATE_HZ:
        raise ConfigError(f"{where} has {rate_hz} Hz, shape {samples.shape}; {remedy}")
    return samples.astype(np.int16, copy=False)


def at_judges_rate(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    """The clip for who judges it: float32 (samples,) at 16 kHz of int16 (samples,) at 24 kHz.

    Full scale is 1, and between samples speech may go a little beyond.
    """
    waveform = pcm.astype(np.float32) / 32_768
    return np.asarray(soxr.resample(waveform, SAMPLE_RATE_HZ, JUDGES_RATE_HZ), np.float32)


def whole_answer(text: str, seed: int) -> dict[str, Any]:
    """Body of a request for a clip whose bytes a seed decides, whatever the clock says.

    Whole, so that the header has true sizes and the end has its reason; with its lead-in, whose
    trim depends on the clock.
    """
    return {
        "input": text,
        "response_format": "wav",
        "seed": seed,
        "stream": False,
        "lead_in": "keep",
    }
