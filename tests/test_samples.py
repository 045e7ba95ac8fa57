"""Samples through Dagster: a work process starts a real server, and what it says is kept."""

import io
import os
import subprocess
import sys
import wave
from pathlib import Path

import dagster as dg
import pytest
from conftest import ROOT
from lineage_run import processes_with, wait_for

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


def test_a_killed_run_leaves_no_server_and_the_next_gives_what_an_undisturbed_one_gives(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert start(whole).wait() == 0
    process = start(cut)
    wait_for(lambda: any(cut.rglob("*.wav")), "a first clip is kept")
    assert len(processes_with("SPEECH_STORE", str(cut))) > 1
    process.kill()
    process.wait()
    wait_for(lambda: not processes_with("SPEECH_STORE", str(cut)), "the server has ended")
    assert not (cut / samples_key(PRESET)).exists()
    assert start(cut).wait() == 0
    assert files(cut) == files(whole)


def start(store: Path) -> subprocess.Popen[bytes]:
    """The work process by hand, of two sentences."""
    return subprocess.Popen(
        [sys.executable, "-m", "speech_assets.work.samples", "--sentences", "2"],
        cwd=ROOT,
        env={**os.environ, "SPEECH_STORE": str(store)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def files(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}
