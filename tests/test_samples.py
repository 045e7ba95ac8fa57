"""Samples through Dagster: a work process starts a real server, and what it says is kept."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import wave
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
from conftest import ROOT
from lineage_run import processes_with, wait_for
from quality.spoken import keep, kept_clip

from resources.configured import StoreResource, WorkResource
from resources.errors import WorkError
from resources.speech_server import SpeechServer
from resources.store import Store
from speech_assets.assets.serving import SamplesConfig, serving_assets
from speech_assets.errors import ConfigError
from speech_assets.profiles import load_profile
from speech_assets.quality.samples import SpokenClip, read_clip, read_samples, samples_key
from speech_assets.quality.sentences import QUALITY_SENTENCES, Sentence
from speech_assets.sentences import SENTENCES
from speech_assets.voice.held_out import overlaps
from speech_assets.work.samples import already, asked_for, speak

PRESET = "embedded-bf16"


def have_spoken(store: str, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        serving_assets(load_profile({})),
        partition_key=PRESET,
        resources={"store": StoreResource(root=store), "work": WorkResource()},
        run_config=dg.RunConfig(ops={"samples": SamplesConfig(sentences=2, seeds="1")}),
        instance=instance,
    )


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two sentences spoken by a server."""
    folder = tmp_path_factory.mktemp("spoken")
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.chdir(ROOT)
        patch.setenv("TMPDIR", str(folder.parent))  # Its own device lock.
        done = have_spoken(str(folder), instance)
        assert done.success
        [check] = done.get_asset_check_evaluations()
        assert (check.check_name, check.passed) == ("apart", True)
        before = files(folder)
        assert have_spoken(str(folder), instance).success
        assert files(folder) == before
    return folder


def test_a_server_speaks_and_each_clip_says_how_it_went(spoken: Path) -> None:
    store = Store(str(spoken))
    samples = read_samples(store, PRESET)
    assert [clip.sentence for clip in samples.clips] == [s.text for s in QUALITY_SENTENCES[:2]]
    assert [clip.kind for clip in samples.clips] == ["short", "numbers"]
    for clip in samples.clips:
        with wave.open(io.BytesIO(store.read_bytes(clip.file))) as file:
            assert file.getframerate() == 24_000
            assert file.getnframes() / 24_000 == pytest.approx(clip.seconds)
            assert 1.0 < clip.seconds < 10.0
        assert len(read_clip(store, clip)) == round(24_000 * clip.seconds)
        assert (clip.finish_reason, clip.error) == ("stop", "")


def test_the_benchmarks_sentences_are_none_that_the_voice_was_judged_by() -> None:
    assert not overlaps(enumerate(SENTENCES))


def test_a_killed_run_leaves_no_server_and_the_next_gives_what_an_undisturbed_one_gives(
    spoken: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    process = start(cut)
    wait_for(lambda: any(cut.rglob("*.wav")), "a first clip is kept")
    assert len(processes_with("SPEECH_STORE", str(cut))) > 1
    process.kill()
    process.wait()
    wait_for(lambda: not processes_with("SPEECH_STORE", str(cut)), "the server has ended")
    assert not (cut / samples_key(PRESET)).exists()
    assert start(cut).wait() == 0
    assert files(cut) == files(spoken)


def test_what_a_server_refuses_is_a_clip_that_says_so_and_a_server_that_died_is_no_clip(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    fine, too_long = (Sentence(0, "short", "So it is."), Sentence(1, "long", "never " * 200))
    clips: list[SpokenClip] = []

    def ask() -> None:
        with SpeechServer.running(PRESET) as server:
            clips.extend(speak(server, store, [(too_long, 1), (fine, 1)]))
            server.process.kill()
            clips.extend(speak(server, store, [(fine, 2)]))

    with pytest.raises(WorkError, match="was killed by signal 9"):
        ask()
    refused, said = clips
    assert (refused.file, refused.seconds, refused.finish_reason) == ("", 0.0, "refused")
    assert refused.error.startswith("400: ")
    assert "a text of 1200 characters takes" in refused.error
    assert said.file == f"samples/{PRESET}/000-1.wav"
    assert said.finish_reason == "stop"
    assert not store.exists(f"samples/{PRESET}/000-2.wav")


def test_only_clips_that_are_as_they_were_kept_are_not_spoken_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    sound = np.arange(480, dtype=np.int16)
    clips = [kept_clip(store, PRESET, number, f"Text {number}.", sound) for number in range(3)]
    keep(store, PRESET, [*clips, kept_clip(store, PRESET, 3, "Refused.", None)])
    there = read_samples(store, PRESET)
    made_with = {
        "preset": PRESET,
        "code_version": there.code_version,
        "config_sha256": there.config_sha256,
        "weights": there.weights,
    }
    store.delete(clips[1].file)
    store.write_bytes(clips[2].file, store.read_bytes(clips[2].file) + b"\0\0")
    assert already(store, made_with) == {(0, "Text 0.", 1): clips[0]}
    for changed in ("code_version", "config_sha256", "weights"):
        assert already(store, {**made_with, changed: "another"}) == {}
    assert already(store, {**made_with, "preset": "another"}) == {}


def test_sentences_are_asked_with_every_seed() -> None:
    asked = asked_for(2, "3, 1")
    assert [(sentence.id, seed) for sentence, seed in asked] == [(0, 3), (0, 1), (1, 3), (1, 1)]
    assert len(asked_for(30, "1,2")) == 60


@pytest.mark.parametrize(
    ("sentences", "seeds", "says"),
    [
        (0, "1", "0 sentences are asked for; there are 30"),
        (31, "1", "31 sentences are asked for"),
        (1, "", "seeds are ''"),
        (1, "1,,2", "seeds are '1,,2'"),
        (1, "-1", "seeds are '-1'"),
        (1, "1,01", "each once"),
        (1, "one", "whole numbers"),
    ],
)
def test_what_cannot_be_asked_for_is_said_in_one_line(
    sentences: int, seeds: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        asked_for(sentences, seeds)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def start(store: Path) -> subprocess.Popen[bytes]:
    """The work process by hand, of two sentences."""
    command = [sys.executable, "-m", "speech_assets.work.samples", "--sentences", "2"]
    return subprocess.Popen(
        [*command, "--seeds", "1"],
        cwd=ROOT,
        env={**os.environ, "SPEECH_STORE": str(store), "TMPDIR": str(store.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def files(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}
