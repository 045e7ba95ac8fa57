"""Samples as they are kept: read back as they were, refused where they were changed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from quality.spoken import keep, kept_clip

from resources.store import Store
from server.wav import wav_header
from speech_assets.errors import ConfigError
from speech_assets.quality.samples import read_clip, read_samples, samples_key

PCM = (1_000 * np.sin(np.arange(2_400) / 5)).astype(np.int16)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path))
    keep(made, "p", [kept_clip(made, "p", 0, "Some words.", PCM)])
    return made


def test_samples_come_back_as_they_were_kept(store: Store) -> None:
    samples = read_samples(store, "p")
    [clip] = samples.clips
    assert (clip.sentence, clip.seed, clip.seconds) == ("Some words.", 1, 0.1)
    assert (read_clip(store, clip) == PCM).all()
    assert len(samples.sha256) == 64


def test_a_refused_clip_has_no_sound(store: Store) -> None:
    clip = kept_clip(store, "p", 1, "Too long.", None)
    assert len(read_clip(store, clip)) == 0


def test_absent_samples_say_how_they_are_made(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"q/samples\.json is not there; .*work\.samples"):
        read_samples(store, "q")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 1}, "schema version 1, not 2"),
        ({"clips": []}, "no clips"),
        ({"clips": [{"sentence": "x"}]}, "does not describe samples"),
        ({"weights": None, "preset": None, "clips": 3}, "does not describe samples"),
    ],
)
def test_a_description_of_another_form_is_refused(store: Store, change: dict, says: str) -> None:
    key = samples_key("p")
    store.write_json(key, {**store.read_json(key), **change})
    with pytest.raises(ConfigError, match=says):
        read_samples(store, "p")
    store.write_bytes(key, b"{")
    with pytest.raises(ConfigError, match=r"samples\.json"):
        read_samples(store, "p")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "is not there"),
        (wav_header(4) + b"\0\0\0\0", "is not the file that"),
    ],
)
def test_a_sound_that_was_changed_is_refused(store: Store, data: bytes | None, says: str) -> None:
    [clip] = read_samples(store, "p").clips
    if data is None:
        store.delete(clip.file)
    else:
        store.write_bytes(clip.file, data)
    with pytest.raises(ConfigError, match=says):
        read_clip(store, clip)


@pytest.mark.parametrize("data", [b"no sound", wav_header(2)[:20]])
def test_what_is_no_wav_is_refused(store: Store, data: bytes) -> None:
    clip = kept_clip(store, "p", 2, "Words.", data)
    with pytest.raises(ConfigError, match="is no WAV"):
        read_clip(store, clip)
    assert asdict(clip)["finish_reason"] == "stop"
