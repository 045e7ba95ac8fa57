"""Where the speech of a clip is, and what is no speech at all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import speech_assets.corpus.embedded
from speech_assets.corpus.audio import decode_clip
from speech_assets.corpus.quarantine import AudioError
from speech_assets.corpus.trim import Span, TrimSettings, find_speech
from tests.corpus.encoded import RATE_HZ

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = TrimSettings()
FRAME = SETTINGS.frame_ms * RATE_HZ // 1000
PADDING = SETTINGS.padding_ms * RATE_HZ // 1000
FILES = sorted(Path(speech_assets.corpus.embedded.__path__[0]).glob("*.parquet"))


@pytest.fixture(scope="module")
def voices(embedded_rows: list[dict[str, Any]]) -> list[NDArray[np.float32]]:
    """Eight real clips of 2 to 6 s, cut to their speech without padding."""
    clips = (decode_clip(row["audio"]["bytes"]).samples for row in embedded_rows)
    whole = [clip for clip in clips if 2 * RATE_HZ < len(clip) < 6 * RATE_HZ][:8]
    spans = [find_speech(clip, TrimSettings(padding_ms=0)) for clip in whole]
    return [clip[span.start : span.end] for clip, span in zip(whole, spans, strict=True)]


def silence(seconds: float) -> NDArray[np.float32]:
    return np.zeros(int(seconds * RATE_HZ), np.float32)


def at_level(samples: NDArray[Any], peak: float) -> NDArray[np.float32]:
    centred = samples - samples.mean()
    return (centred * (peak / np.abs(centred).max())).astype(np.float32)


def noise(kind: str, seconds: float, seed: int = 0) -> NDArray[np.float32]:
    """Sound without speech, peak at -10 dBFS."""
    samples = int(seconds * RATE_HZ) // 2 * 2
    white = np.random.default_rng(seed).normal(size=samples)
    time_s = np.arange(samples) / RATE_HZ
    if kind == "white":
        made = white
    elif kind == "brown":
        made = np.cumsum(white)
    elif kind == "pink":
        spectrum = np.fft.rfft(white)
        made = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))), samples)
    elif kind.startswith("hum"):
        hz = int(kind.removeprefix("hum"))
        made = sum(np.sin(2 * np.pi * hz * k * time_s + k) / k for k in range(1, 8))
    elif kind == "clicks":
        made = np.zeros(samples)
        made[::12_000] = 1
    elif kind == "one click":
        made = np.zeros(samples)
        made[samples // 2] = 1
    elif kind == "beeps":
        made = np.sin(2 * np.pi * 1_000 * time_s) * (np.floor(time_s * 5) % 2)
    else:
        made = np.sin(2 * np.pi * int(kind.removeprefix("tone")) * time_s)
    return at_level(np.asarray(made), 0.3)


def no_speech(samples: NDArray[np.float32]) -> str:
    with pytest.raises(AudioError) as caught:
        find_speech(samples, SETTINGS)
    assert caught.value.reason == "no_speech"
    return caught.value.detail


@pytest.mark.parametrize("before_s", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("after_s", [0.0, 0.5, 2.0])
def test_silence_at_the_ends_is_cut_to_the_padding(
    voices: list[NDArray[np.float32]], before_s: float, after_s: float
) -> None:
    voice = voices[0]
    span = find_speech(np.concatenate([silence(before_s), voice, silence(after_s)]), SETTINGS)
    starts, ends = len(silence(before_s)), len(silence(before_s)) + len(voice)
    # The detector decides by frames and lingers for a few after speech.
    assert abs(span.start - max(0, starts - PADDING)) <= 3 * FRAME
    assert -3 * FRAME <= span.end - min(ends + PADDING, ends + len(silence(after_s))) <= 12 * FRAME
    assert span.start <= starts + FRAME
    assert span.end >= ends - 3 * FRAME


def test_inner_pauses_stay(voices: list[NDArray[np.float32]]) -> None:
    pause = silence(1.5)
    spoken = np.concatenate([silence(1.0), voices[0], pause, voices[1], pause, voices[2]])
    span = find_speech(spoken, SETTINGS)
    least = sum(map(len, voices[:3])) + 2 * len(pause)
    assert span.end - span.start >= least - 4 * FRAME


def test_a_span_never_leaves_the_clip(voices: list[NDArray[np.float32]]) -> None:
    for voice in voices:
        span = find_speech(voice, TrimSettings(padding_ms=5_000))
        assert span == Span(0, len(voice))


@pytest.mark.parametrize("dbfs", [0, -20, -40, -50, -59])
def test_quiet_speech_is_found_where_loud_speech_is(
    voices: list[NDArray[np.float32]], dbfs: float
) -> None:
    for voice in voices:
        clip = np.concatenate([silence(0.6), voice, silence(0.6)])
        loud, quiet = at_level(clip, 0.7), at_level(clip, 10 ** (dbfs / 20))
        at_loud, at_quiet = find_speech(loud, SETTINGS), find_speech(quiet, SETTINGS)
        assert abs(at_loud.start - at_quiet.start) <= FRAME
        assert abs(at_loud.end - at_quiet.end) <= FRAME


def test_an_offset_does_not_hide_speech(voices: list[NDArray[np.float32]]) -> None:
    clip = np.concatenate([silence(0.6), at_level(voices[0], 0.01), silence(0.6)])
    assert find_speech(clip + np.float32(0.5), SETTINGS) == find_speech(clip, SETTINGS)


@pytest.mark.parametrize("value", [0.0, 0.5, -1.0, 1e-5])
def test_a_constant_is_silent(value: float) -> None:
    assert "silent" in no_speech(np.full(2 * RATE_HZ, value, np.float32))


def test_speech_below_the_floor_is_silent(voices: list[NDArray[np.float32]]) -> None:
    assert "-60 dBFS" in no_speech(at_level(voices[0], 10 ** (-61 / 20)))


@pytest.mark.parametrize("seconds", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("kind", ["white", "pink", "brown", "hum50", "hum60"])
def test_steady_noise_is_no_speech(kind: str, seconds: float) -> None:
    for seed in range(8):
        no_speech(noise(kind, seconds, seed))


@pytest.mark.parametrize(
    "kind",
    ["tone50", "tone120", "tone440", "tone1000", "tone3000", "clicks", "one click", "beeps"],
)
def test_tones_and_clicks_are_no_speech(kind: str) -> None:
    no_speech(noise(kind, 3.0))


@pytest.mark.parametrize("kind", ["white", "pink", "brown", "hum50", "tone440", "tone1000"])
def test_steady_noise_between_silences_is_no_speech(kind: str) -> None:
    no_speech(np.concatenate([silence(1.0), noise(kind, 2.0), silence(1.0)]))


@pytest.mark.parametrize("kind", ["white", "pink", "brown"])
@pytest.mark.parametrize("snr_db", [20, 10, 5])
def test_speech_in_noise_is_not_taken_for_noise(
    voices: list[NDArray[np.float32]], kind: str, snr_db: float
) -> None:
    for seed, voice in enumerate(voices):
        hiss = np.resize(noise(kind, len(voice) / RATE_HZ, seed), len(voice))
        ratio = np.sqrt((voice**2).mean() / (hiss**2).mean()) * 10 ** (-snr_db / 20)
        span = find_speech((voice + hiss * ratio).astype(np.float32), SETTINGS)
        assert span.end - span.start > 0.8 * len(voice)


def test_every_clip_of_the_embedded_corpus_has_speech() -> None:
    verdicts: Counter[str] = Counter()
    kept_s = whole_s = 0.0
    for file in FILES:
        for row in pq.read_table(file).to_pylist():
            clip = decode_clip(row["audio"]["bytes"], path=row["path"]).samples
            whole_s += len(clip) / RATE_HZ
            try:
                span = find_speech(clip, SETTINGS)
            except AudioError as error:
                verdicts[f"{row['id']}: {error}"] += 1
            else:
                verdicts["speech"] += 1
                kept_s += (span.end - span.start) / RATE_HZ
    assert verdicts == Counter(speech=sum(pq.read_metadata(file).num_rows for file in FILES))
    assert kept_s > 0.9 * whole_s
