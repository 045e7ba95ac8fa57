"""Samples as they are kept: read back as they were, refused where they were changed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from quality.spoken import keep, kept_clip, made_with

from resources.store import Store
from server.wav import wav_header
from speech_assets.errors import ConfigError
from speech_assets.quality.samples import Asked, read_clip, read_samples, samples_key

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
        ({"schema_version": 2}, "schema version 2, not 3"),
        ({"made_with": {"preset": "p"}}, "does not describe samples"),
        ({"asked": {}}, "does not describe samples"),
        ({"clips": []}, "no clips"),
        ({"clips": [{"sentence": "x"}]}, "does not describe samples"),
        ({"made_with": None, "clips": 3}, "does not describe samples"),
        ({"made_with": {**asdict(made_with("p")), "weights": 5}}, r"made_with\.weights is 5"),
        ({"made_with": {**asdict(made_with("p")), "device": None}}, r"made_with\.device is None"),
        ({"asked": {"sentences": 1, "seeds": []}}, r"asked\.seeds is \[\], .*work\.samples"),
        ({"asked": {"sentences": 1, "seeds": "12"}}, r"asked\.seeds is '12'"),
        ({"asked": {"sentences": 1, "seeds": [1, 1]}}, r"asked\.seeds is \[1, 1\]"),
        ({"asked": {"sentences": 1, "seeds": [[1]]}}, r"asked\.seeds is \[\[1\]\]"),
        ({"asked": {"sentences": 1, "seeds": [-1]}}, r"asked\.seeds is \[-1\]"),
        ({"asked": {"sentences": 0, "seeds": [1]}}, r"asked\.sentences is 0"),
        ({"asked": {"sentences": -3, "seeds": [1]}}, r"asked\.sentences is -3"),
        ({"asked": {"sentences": True, "seeds": [1]}}, r"asked\.sentences is True"),
        ({"asked": {"sentences": 1.5, "seeds": [1]}}, r"asked\.sentences is 1\.5"),
        ({"asked": [1]}, "does not describe samples"),
        ({"clips": {"0": 1}}, "clips is no list"),
        ({"clips": [3]}, r"clips\[0\] is no clip"),
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
    ("change", "says"),
    [
        ({"sentence": ""}, r"clips\[0\]\.sentence is '', which has no words\); materialize"),
        ({"sentence": "..."}, r"clips\[0\]\.sentence is '\.\.\.', which has no words"),
        ({"sentence": 5}, r"clips\[0\]\.sentence is 5, no text"),
        ({"sentence": None}, "sentence is None"),
        ({"kind": 1}, r"clips\[0\]\.kind is 1"),
        ({"file": None}, r"clips\[0\]\.file is None"),
        ({"file": "samples/other/000-1.wav"}, r"file is 'samples/other/000-1\.wav', not in samp"),
        ({"seed": "1"}, r"clips\[0\]\.seed is '1'"),
        ({"sentence_id": -1}, r"clips\[0\]\.sentence_id is -1"),
        ({"seconds": float("nan")}, r"clips\[0\]\.seconds is nan"),
        ({"seconds": "1"}, r"clips\[0\]\.seconds is '1'"),
    ],
)
def test_a_clip_that_cannot_be_is_refused_by_its_place(
    store: Store, change: dict, says: str
) -> None:
    key = samples_key("p")
    value = store.read_json(key)
    value["clips"][0] |= change
    store.write_bytes(key, json.dumps(value).encode())
    with pytest.raises(ConfigError, match=rf"p/samples\.json .*{says}"):
        read_samples(store, "p")


def test_samples_of_another_preset_than_their_folders_are_refused(store: Store) -> None:
    value = store.read_json(samples_key("p"))
    value["made_with"]["preset"] = "q"
    store.write_json(samples_key("p"), value)
    with pytest.raises(ConfigError, match=r"p/samples\.json .*made_with\.preset is 'q', not 'p'"):
        read_samples(store, "p")


def test_a_clip_that_is_listed_twice_is_refused(store: Store) -> None:
    value = store.read_json(samples_key("p"))
    [clip] = value["clips"]
    store.write_json(samples_key("p"), {**value, "clips": [clip, clip]})
    with pytest.raises(ConfigError, match=r"clips\[1\] is of sentence 0 with seed 1, as clips\[0"):
        read_samples(store, "p")
    store.write_json(samples_key("p"), {**value, "clips": [clip, {**clip, "seed": 2}]})
    with pytest.raises(ConfigError, match=r"clips\[1\]\.file is .*, as that of clips\[0\]"):
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


def test_the_clips_that_are_asked_for_are_chosen_and_none_may_be_missing(store: Store) -> None:
    clips = [
        kept_clip(store, "p", n, f"Text {n}.", PCM, seed=s) for n, s in ((0, 1), (0, 2), (1, 1))
    ]
    keep(store, "p", clips, sentences=2, seeds=[1])
    samples = read_samples(store, "p")
    assert samples.asked == Asked(2, (1,))
    assert samples.chosen(samples.asked).clips == (clips[0], clips[2])
    assert samples.chosen(Asked(1, (2, 1))).clips == (clips[0], clips[1])
    with pytest.raises(ConfigError, match="sentence 1 with seed 2 is not among the samples of p"):
        samples.chosen(Asked(2, (1, 2)))
