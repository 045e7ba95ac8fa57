"""Samples through Dagster: a work process starts a real server, and what it says is kept."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import wave
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np
import pytest
from conftest import ROOT
from lineage_run import ending, processes_with, wait_for
from quality.spoken import keep, kept_clip, made_with

from resources.configured import StoreResource, WorkResource
from resources.errors import WorkError
from resources.speech_server import SpeechServer
from resources.store import Store
from speech_assets.assets.serving import SamplesConfig, serving_assets
from speech_assets.definitions import build_definitions
from speech_assets.errors import ConfigError
from speech_assets.profiles import load_profile
from speech_assets.quality.samples import (
    Asked,
    SpokenClip,
    read_clip,
    read_samples,
    samples_key,
)
from speech_assets.quality.sentences import QUALITY_SENTENCES, Sentence
from speech_assets.sentences import SENTENCES
from speech_assets.voice.held_out import overlaps
from speech_assets.work import samples as work
from speech_assets.work.samples import already, asked_for, code_sha256, pairs_of, speak
from speech_assets.work.worker import Reporter

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

PRESET = "embedded-bf16"


def have_spoken(
    store: str, instance: dg.DagsterInstance, tags: dict[str, str] | None = None, **changed: Any
) -> dg.ExecuteInProcessResult:
    config = SamplesConfig(**{"sentences": 2, "seeds": "1", **changed})
    return dg.materialize(
        serving_assets(load_profile({})),
        partition_key=PRESET,
        resources={"store": StoreResource(root=store), "work": WorkResource()},
        run_config=dg.RunConfig(ops={"samples": config}),
        instance=instance,
        tags=tags,
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
        assert spoken_last(instance) == 0
        # What is there is spoken again where that is asked for, and says the same.
        assert have_spoken(str(folder), instance, again=True).success
        assert files(folder) == before
        assert spoken_last(instance) == 2
        rebenchmark = build_definitions().resolve_job_def("rebenchmark")
        assert have_spoken(str(folder), instance, dict(rebenchmark.tags)).success
        assert spoken_last(instance) == 2
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
    with start(cut) as process:
        wait_for(lambda: any(cut.rglob("*.wav")), "a first clip is kept")
        assert len(processes_with("SPEECH_STORE", str(cut))) > 1
        process.kill()
    wait_for(lambda: not processes_with("SPEECH_STORE", str(cut)), "the server has ended")
    assert not (cut / samples_key(PRESET)).exists()
    with start(cut) as again:
        assert again.wait() == 0
    assert files(cut) == files(spoken)


def test_what_a_server_refuses_is_a_clip_that_says_so_and_a_server_that_died_is_no_clip(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    fine, mute = Sentence(0, "short", "So it is."), Sentence(1, "short", "...")
    clips: list[SpokenClip] = []

    def ask() -> None:
        with SpeechServer.running(PRESET) as server:
            clips.extend(speak(server, store, [(mute, 1), (fine, 1)]))
            server.process.kill()
            clips.extend(speak(server, store, [(fine, 2)]))

    with pytest.raises(WorkError, match="was killed by signal 9"):
        ask()
    refused, said = clips
    assert (refused.file, refused.seconds, refused.finish_reason) == ("", 0.0, "refused")
    assert refused.error.startswith("400: ")
    assert "can be spoken; send words" in refused.error
    assert said.file == f"samples/{PRESET}/000-1.wav"
    assert said.finish_reason == "stop"
    assert not store.exists(f"samples/{PRESET}/000-2.wav")


def test_only_clips_that_are_as_they_were_kept_are_not_spoken_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    sound = np.arange(480, dtype=np.int16)
    clips = [kept_clip(store, PRESET, number, f"Text {number}.", sound) for number in range(3)]
    keep(store, PRESET, [*clips, kept_clip(store, PRESET, 3, "Refused.", None)])
    store.delete(clips[1].file)
    store.write_bytes(clips[2].file, store.read_bytes(clips[2].file) + b"\0\0")
    made = made_with(PRESET)
    assert already(store, made) == {(0, 1): clips[0]}
    for name in (one.name for one in fields(made)):
        assert already(store, replace(made, **{name: "another"})) == {}, name


@dataclass
class Speaker:
    """The work process' own code, with a server whose every clip is a sound of its own."""

    store: Store
    patch: pytest.MonkeyPatch
    asked: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, *words: str) -> list[tuple[int, int]]:
        """Sentences and seeds that a run with these arguments has spoken."""
        self.asked.clear()

        @contextlib.contextmanager
        def running(*_: Any, **__: Any) -> Generator[None]:
            yield

        def speak(_: None, store: Store, pairs: Any, advance: Any) -> Iterator[SpokenClip]:
            for sentence, seed in pairs:
                self.asked.append((sentence.id, seed))
                sound = np.full(480, 7 * sentence.id + seed, np.int16)
                given = {"kind": sentence.kind, "seed": seed}
                yield kept_clip(store, PRESET, sentence.id, sentence.text, sound, **given)
                advance(1)

        self.patch.setattr(SpeechServer, "running", running)
        self.patch.setattr(work, "speak", speak)
        parser = work.parser()
        work.have_spoken(parser.parse_args(["--store", self.store.root, *words]), Reporter("test"))
        return list(self.asked)

    def clips(self) -> list[tuple[int, int]]:
        """Sentences and seeds of which there are clips, each with its WAV and no other there."""
        clips = read_samples(self.store, PRESET).clips
        assert all(len(read_clip(self.store, clip)) for clip in clips)
        assert len(self.store.keys("samples")) == 1 + len(clips)
        return [(clip.sentence_id, clip.seed) for clip in clips]


@pytest.fixture
def spoken_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Speaker:
    return Speaker(Store(str(tmp_path)), monkeypatch)


def test_another_version_of_the_engine_or_of_the_servers_code_speaks_anew(
    spoken_here: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ["--sentences", "1", "--seeds", "1"]
    assert spoken_here(*one) == [(0, 1)]
    assert spoken_here(*one) == []
    installed = work.installed_software

    def newer(*names: str) -> dict[str, str]:
        return {**installed(*names), "torch": "99"}

    monkeypatch.setattr(work, "installed_software", newer)
    assert spoken_here(*one) == [(0, 1)]
    assert read_samples(spoken_here.store, PRESET).made_with.software["torch"] == "99"
    monkeypatch.setattr(work, "code_sha256", lambda _: "other code")
    assert spoken_here(*one) == [(0, 1)]
    assert spoken_here(*one) == []


def test_the_hash_of_code_is_of_its_files_and_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = code_sha256(tmp_path)
    (tmp_path / "page.css").write_text("2")
    assert code_sha256(tmp_path) == first
    (tmp_path / "b").mkdir()
    (tmp_path / "a.py").rename(tmp_path / "b" / "a.py")
    assert code_sha256(tmp_path) != first
    (tmp_path / "b" / "a.py").rename(tmp_path / "a.py")
    assert code_sha256(tmp_path) == first
    (tmp_path / "a.py").write_text("3")
    assert code_sha256(tmp_path) != first


def test_a_shorter_set_keeps_the_clips_of_a_longer_one(
    spoken_here: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert spoken_here("--sentences", "3", "--seeds", "2,1") == sorted(
        whole, key=lambda pair: (pair[0], -pair[1])
    )
    assert spoken_here("--sentences", "1", "--seeds", "1") == []
    assert spoken_here.clips() == whole
    assert read_samples(spoken_here.store, PRESET).asked == Asked(1, (1,))
    assert spoken_here("--sentences", "2", "--seeds", "2,3", "--again") == [
        *((0, 2), (0, 3), (1, 2), (1, 3)),
    ]
    assert spoken_here.clips() == sorted([*whole, (0, 3), (1, 3)])
    # Of what something else has made no WAV is left.
    monkeypatch.setattr(work, "code_sha256", lambda _: "other code")
    assert spoken_here("--sentences", "1", "--seeds", "1") == [(0, 1)]
    assert spoken_here.clips() == [(0, 1)]


def test_sentences_are_asked_with_every_seed() -> None:
    asked = pairs_of(asked_for(2, "3, 1"))
    assert [(sentence.id, seed) for sentence, seed in asked] == [(0, 3), (0, 1), (1, 3), (1, 1)]
    assert len(pairs_of(asked_for(30, "1,2"))) == 60


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


def spoken_last(instance: dg.DagsterInstance) -> int:
    """How many clips the last run had to have spoken."""
    event = instance.get_latest_materialization_event(dg.AssetKey("samples"))
    return event.asset_materialization.metadata["clips_spoken_now"].value  # pyright: ignore


def start(store: Path) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """The work process by hand, of two sentences."""
    command = [sys.executable, "-m", "speech_assets.work.samples", "--sentences", "2"]
    return ending(
        subprocess.Popen(
            [*command, "--seeds", "1"],
            cwd=ROOT,
            env={**os.environ, "SPEECH_STORE": str(store), "TMPDIR": str(store.parent)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    )


def files(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}
