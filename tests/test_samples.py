"""Samples through Dagster: a work process starts a real server, and what it says is kept."""

import io
import wave

import dagster as dg
import pytest
from conftest import ROOT

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from speech_assets.assets.serving import SamplesConfig, serving_assets
from speech_assets.profiles import load_profile
from speech_assets.sentences import SENTENCES
from speech_assets.voice.held_out import overlaps
from speech_assets.work.samples import samples_key

PRESET = "embedded-bf16"


def speak(store: str, instance: dg.DagsterInstance):
    return dg.materialize(
        serving_assets(load_profile({})),
        partition_key=PRESET,
        resources={"store": StoreResource(root=store), "work": WorkResource()},
        run_config=dg.RunConfig(ops={"samples": SamplesConfig(sentences=2)}),
        instance=instance,
    )


def test_a_server_speaks_and_a_second_run_finds_its_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    store = Store(str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        assert speak(str(tmp_path), instance).success
        first = store.read_json(samples_key(PRESET))
        assert speak(str(tmp_path), instance).success
    assert store.read_json(samples_key(PRESET)) == first
    assert [row["sentence"] for row in first["clips"]] == list(SENTENCES[:2])
    for row in first["clips"]:
        with wave.open(io.BytesIO(store.read_bytes(row["file"]))) as clip:
            assert clip.getframerate() == 24_000
            assert clip.getnframes() / 24_000 == pytest.approx(row["seconds"])
            assert 1.0 < row["seconds"] < 10.0
        assert row["finish_reason"] == "stop"


def test_the_sentences_are_none_that_the_voice_was_judged_by():
    assert not overlaps(enumerate(SENTENCES))
