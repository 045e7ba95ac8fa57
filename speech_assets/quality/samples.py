"""What a preset's server said: `samples/<preset>/samples.json` and the WAVs beside it."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import soundfile
import soxr

from server.frames import SAMPLE_RATE_HZ
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from resources.store import Store

SCHEMA_VERSION = 3
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
class MadeWith:
    """What decides a clip's bytes beside its sentence and seed: clips of another are spoken anew.

    Attributes:
        preset, config_sha256, weights: the preset, its settings' hash, fingerprints of its weights.
        code_version: of the sentences and of how they are asked.
        server_sha256: of the server package's code, which copied files have without git, too.
        software: versions of what the engine computes with.
        device: name of the chip.
    """

    preset: str
    config_sha256: str
    weights: Mapping[str, Any]
    code_version: str
    server_sha256: str
    software: Mapping[str, str]
    device: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A set of clips: the first `sentences` of the project's, each with every one of `seeds`."""

    sentences: int
    seeds: tuple[int, ...]

    def __contains__(self, clip: SpokenClip) -> bool:
        return clip.sentence_id < self.sentences and clip.seed in self.seeds


@dataclass(frozen=True, slots=True)
class Samples:
    """All clips of a preset that are there, what they were made with, and which were asked last.

    `sha256` is of their samples.json.
    """

    made_with: MadeWith
    asked: Asked
    clips: tuple[SpokenClip, ...]
    sha256: str

    @property
    def preset(self) -> str:
        """The preset that spoke."""
        return self.made_with.preset

    def chosen(self, asked: Asked) -> Samples:
        """The same, with no clips but those that are asked for.

        Raises:
            ConfigError: there is none of a sentence or with a seed.
        """
        clips = tuple(clip for clip in self.clips if clip in asked)
        there = {(clip.sentence_id, clip.seed) for clip in clips}
        for sentence, seed in itertools.product(range(asked.sentences), asked.seeds):
            if (sentence, seed) not in there:
                raise ConfigError(
                    f"sentence {sentence} with seed {seed} is not among the samples of "
                    f"{self.preset}; materialize samples of {self.preset} with it, or ask for less"
                )
        return replace(self, clips=clips)


def samples_key(preset: str) -> str:
    """Key of what says which samples there are."""
    return f"samples/{preset}/samples.json"


def read_samples(store: Store, preset: str) -> Samples:
    """The samples of a preset.

    Raises:
        ConfigError: there are none, or their description is damaged, of another version or of
            another preset.
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
        return Samples(
            made_with=_made_with(value["made_with"], preset),
            asked=_asked(value["asked"]),
            clips=_clips(value["clips"], preset),
            sha256=hashlib.sha256(data).hexdigest(),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{store.path(key)} does not describe samples ({type(error).__name__}: {error}); "
            f"{remedy}{preset}"
        ) from error


def _made_with(value: Mapping[str, Any], preset: str) -> MadeWith:
    """What made the clips; ValueError where it is another preset, or no such description."""
    made = MadeWith(**value)
    for name in value:
        given, kind = getattr(made, name), dict if name in ("weights", "software") else str
        if not isinstance(given, kind):
            raise ValueError(f"made_with.{name} is {given!r}, no {kind.__name__}")
    if made.preset != preset:
        raise ValueError(f"made_with.preset is {made.preset!r}, not {preset!r}")
    return made


def _asked(value: Mapping[str, Any]) -> Asked:
    """What was asked for last; ValueError where no clip can be of it."""
    sentences, seeds = value["sentences"], value["seeds"]
    if not _is_count(sentences) or sentences < 1:
        raise ValueError(f"asked.sentences is {sentences!r}, no number from 1")
    if not isinstance(seeds, list) or not seeds:
        raise ValueError(f"asked.seeds is {seeds!r}, no list of seeds")
    given = cast("list[Any]", seeds)
    if not all(map(_is_count, given)) or len(set(given)) < len(given):
        raise ValueError(f"asked.seeds is {seeds!r}, not whole numbers from 0, each once")
    return Asked(sentences, tuple(given))


def _clips(rows: Any, preset: str) -> tuple[SpokenClip, ...]:
    """The clips of a description, each once; ValueError where one is none."""
    if not isinstance(rows, list):
        raise ValueError("clips is no list")
    clips: list[SpokenClip] = []
    places: dict[tuple[int, int], int] = {}
    files: dict[str, int] = {}
    for number, row in enumerate(cast("list[Any]", rows)):
        clip = _clip(row, f"clips[{number}]", preset)
        place = clip.sentence_id, clip.seed
        if (first := places.setdefault(place, number)) != number:
            raise ValueError(
                f"clips[{number}] is of sentence {place[0]} with seed {place[1]}, as clips[{first}]"
            )
        if clip.file and (first := files.setdefault(clip.file, number)) != number:
            raise ValueError(f"clips[{number}].file is {clip.file!r}, as that of clips[{first}]")
        clips.append(clip)
    if not clips:
        raise ValueError("no clips in it")
    return tuple(clips)


def _clip(row: Any, where: str, preset: str) -> SpokenClip:
    """One clip of a description; ValueError where a value cannot be."""
    try:
        clip = SpokenClip(**row)
    except TypeError as error:
        raise ValueError(f"{where} is no clip: {error}") from error
    for name in ("kind", "sentence", "file", "finish_reason", "sha256", "error"):
        if not isinstance(text := getattr(clip, name), str):
            raise ValueError(f"{where}.{name} is {text!r}, no text")
    for name in ("sentence_id", "seed"):
        if not _is_count(count := getattr(clip, name)):
            raise ValueError(f"{where}.{name} is {count!r}, no whole number from 0")
    seconds: Any = clip.seconds
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < math.inf:
        raise ValueError(f"{where}.seconds is {seconds!r}, no duration")
    if not any(map(str.isalnum, clip.sentence)):
        raise ValueError(f"{where}.sentence is {clip.sentence!r}, which has no words")
    folder = samples_key(preset).rpartition("/")[0]
    if clip.file and clip.file.rpartition("/")[0] != folder:
        raise ValueError(f"{where}.file is {clip.file!r}, not in {folder}/")
    return clip


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


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

    It is not what a client gets that streams with the defaults: it is whole, so that the header has
    true sizes and the end has its reason, and it has all of its lead-in, whose trim depends on the
    clock. What such a stream trims is silence alone (tests/server/test_streaming.py).
    """
    return {
        "input": text,
        "response_format": "wav",
        "seed": seed,
        "stream": False,
        "lead_in": "keep",
    }
