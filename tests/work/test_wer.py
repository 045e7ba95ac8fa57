"""WER for real: people's recorded speech as samples, heard by Whisper through work and asset."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np
import pytest
import soundfile
import soxr
from conftest import ROOT
from history import runs
from quality.spoken import keep, kept_clip

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from speech_assets.assets.quality import WerConfig, quality_assets
from speech_assets.errors import ConfigError
from speech_assets.history.judgement import judge
from speech_assets.profiles import load_profile
from speech_assets.quality.noise import judged
from speech_assets.quality.samples import samples_key
from speech_assets.results.provenance import cpu_device
from speech_assets.results.result import parse_result, slug
from speech_assets.results.stored import newest, stored_ids
from speech_assets.work import wer
from speech_assets.work.worker import Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BASE, OTHER = "embedded-bf16", "embedded-w4a16"
SPOKEN = (
    "allison-0008-agent-pass",
    "allison-0041-conf-invalid",
    "allison-0053-conf-onlyone",
)


@pytest.fixture(scope="module")
def recordings(embedded_rows: list[dict[str, Any]]) -> list[tuple[str, NDArray[np.int16]]]:
    """Three recordings of a person: what is said, and int16 PCM at 24 kHz."""
    rows = {row["id"]: row for row in embedded_rows}
    found: list[tuple[str, NDArray[np.int16]]] = []
    for name in SPOKEN:
        samples, rate_hz = soundfile.read(io.BytesIO(rows[name]["audio"]["bytes"]), dtype="float32")
        pcm = soxr.resample(samples, rate_hz, 24_000) * 32_767
        found.append((rows[name]["text_normalized"], np.clip(pcm, -32_768, 32_767).astype("<i2")))
    return found


@pytest.fixture(scope="module")
def store(
    tmp_path_factory: pytest.TempPathFactory, recordings: list[tuple[str, NDArray[np.int16]]]
) -> Store:
    """Samples of the base preset as they were spoken, and of another that spoils two of three."""
    made = Store(str(tmp_path_factory.mktemp("wer")))
    whole = [kept_clip(made, BASE, n, text, pcm) for n, (text, pcm) in enumerate(recordings)]
    keep(made, BASE, whole)
    (first, as_it_is), (second, to_cut), (third, _) = recordings
    clipped = np.clip(as_it_is.astype(np.int32) * 8, -32_768, 32_767).astype("<i2")
    spoilt = [
        kept_clip(made, OTHER, 0, first, clipped),
        kept_clip(made, OTHER, 1, second, to_cut[:24_000], finish_reason="length"),
        kept_clip(made, OTHER, 2, third, None),
    ]
    keep(made, OTHER, spoilt)
    return made


@pytest.fixture(scope="module")
def heard(store: Store) -> tuple[dict[str, Any], Sequence[dg.AssetCheckEvaluation]]:
    """The result of the other preset, made by its asset in a process of its own."""
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.chdir(ROOT)
        patch.setenv("TMPDIR", store.root)  # Its own device lock: no other work makes it wait.
        done = dg.materialize(
            quality_assets(load_profile({})),
            partition_key=OTHER,
            resources={"store": StoreResource(root=store.root), "work": WorkResource()},
            run_config=dg.RunConfig(ops={"wer": WerConfig(dnsmos=False)}),
            instance=instance,
        )
        assert done.success
        value = newest(store, "wer", OTHER)
        assert value is not None
        event = instance.get_latest_materialization_event(dg.AssetKey("wer"))
        checks = done.get_asset_check_evaluations()
        return {"value": value, "metadata": event.asset_materialization.metadata}, checks


class Counting(Reporter):
    """A reporter that knows how much it was told to expect."""

    clips = 0.0

    def start(self, total: float, unit: str) -> None:
        self.clips = total
        super().start(total, unit)


def measure(store: Store, preset: str, *words: str) -> tuple[dict[str, Any], float]:
    """The result that the work process writes, here, and how many clips it had to hear."""
    given = wer.parser().parse_args(
        ["--preset", preset, "--base", BASE, "--store", store.root, *words]
    )
    reporter = Counting("test")
    wer.measure(given, "cpu", reporter)
    found = newest(store, "wer", preset)
    assert found is not None
    return found, reporter.clips


def test_speech_that_was_spoilt_has_its_words_wrong(heard: tuple) -> None:
    value = heard[0]["value"]
    clipped, cut, refused = value["rows"]
    assert clipped["word_errors"] < cut["word_errors"]
    assert "clipping" in clipped["flags"]
    assert cut["word_errors"] >= 6
    assert (cut["spoke"], refused["spoke"]) == (False, False)
    assert refused["word_errors"] == refused["words"]
    assert refused["error"] == "400: no"
    assert 0.0 <= clipped["leading_silence_s"] < 1.0
    figures = value["figures"]
    assert figures["clips_not_spoken"]["value"] >= 2
    assert figures["wer"]["value"] > 0.5


def test_it_is_compared_with_the_base_presets_same_clips(heard: tuple) -> None:
    value = heard[0]["value"]
    less = value["figures"]["wer_less_base"]
    assert less["n"] == 3
    assert value["figures"]["wer"]["value"] - less["value"] == pytest.approx(0.0, abs=0.1)
    assert (value["config"]["base"], value["config"]["asr"][:15]) == (BASE, "whisper tiny.en")
    assert value["reduced"] is True


def test_voices_are_compared_with_the_base_presets_beside_its_own(heard: tuple) -> None:
    value = heard[0]["value"]
    clipped, cut, refused = value["rows"]
    assert 0.7 < clipped["speaker_similarity"] < 1.0
    assert (cut["speaker_similarity"], cut["speaker_left_out"]) == (None, "too_short")
    assert (refused["speaker_similarity"], refused["speaker_left_out"]) == (None, "silent")
    figures = value["figures"]
    assert figures["speaker_similarity"]["value"] == pytest.approx(clipped["speaker_similarity"])
    assert figures["speaker_left_out_too_short"]["value"] == 1
    # Sentences of one person, each beside the next.
    assert 0.75 < figures["speaker_similarity_yardstick"]["value"] < 0.97
    assert value["config"]["speaker_yardstick"] == "another sentence with the same seed"
    assert value["config"]["speaker"] == "GE2E speaker encoder (Resemblyzer 0.1.4)"
    assert value["software"]["resemblyzer"] == "0.1.4"
    assert f"| {clipped['speaker_similarity']:.3f} |" in heard[0]["metadata"]["compared"].value


def test_the_asset_shows_the_result_and_its_check(heard: tuple, store: Store) -> None:
    found, checks = heard
    metadata = found["metadata"]
    wer = found["value"]["figures"]["wer"]["value"]
    assert metadata["wer_percent"].value == pytest.approx(100 * wer, rel=5e-3)
    assert metadata["finding"].value.startswith(f"WER {100 * wer:.1f} % (")
    assert " of 30 sentences" in metadata["reduced"].value
    assert "400: no" in metadata["misheard"].value
    [check] = checks
    assert check.check_name == "within_noise"
    assert check.severity == dg.AssetCheckSeverity.WARN
    noise = judged(found["value"])
    assert (check.passed, check.description) == (noise.is_within, noise.detail)


def test_no_result_tells_where_this_machine_keeps_things(heard: tuple, store: Store) -> None:
    [key] = [f"results/{name}.json" for name in stored_ids(store, "wer") if OTHER in name]
    data = store.read_bytes(key)
    assert parse_result(data, key) == heard[0]["value"]
    for place in (store.root, str(ROOT), str(Path.home())):
        assert place.encode() not in data


def test_speech_as_it_was_recorded_is_understood_and_a_rerun_differs_in_nothing(
    heard: tuple, store: Store
) -> None:
    first, _ = measure(store, BASE, "--no-mos")
    assert first["figures"]["wer"]["value"] < 0.1
    assert first["figures"]["clips_not_spoken"]["value"] == 0
    assert [name for name in first["figures"] if "_less_" in name] == []
    yardstick = heard[0]["value"]["figures"]["speaker_similarity_yardstick"]
    assert first["figures"]["speaker_similarity"] == yardstick
    # The base preset's clips have been heard, whatever was asked for since: only the others are.
    of_base = store.read_json(samples_key(BASE))
    store.write_json(samples_key(BASE), {**of_base, "asked": {"sentences": 2, "seeds": [1]}})
    again, clips = measure(store, OTHER, "--no-mos")
    assert clips == 3
    value = heard[0]["value"]
    assert again["rows"] == value["rows"]
    assert again["config"]["previous_started_at"] == value["started_at"]
    less = again["figures"]["wer_less_previous"]
    assert (less["value"], less["ci_low"], less["ci_high"]) == (0.0, 0.0, 0.0)
    assert again["figures"]["wer_less_base"] == value["figures"]["wer_less_base"]


def test_what_another_version_of_a_judge_heard_is_heard_anew(
    heard: tuple, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(store, BASE, "--no-mos", "--no-speaker")
    one = ("--no-mos", "--no-speaker", "--sentences", "1", "--seeds", "1")
    found, clips = measure(store, OTHER, *one)
    assert clips == 1
    assert found["command"].endswith("--sentences 1 --seeds 1 --no-mos --no-speaker")
    assert [row["sentence_id"] for row in found["rows"]] == [0]
    assert found["figures"]["wer_less_base"]["n"] == 1
    installed = wer.installed_software
    monkeypatch.setattr(
        wer, "installed_software", lambda *names: {**installed(*names), "openai-whisper": "99"}
    )
    assert measure(store, OTHER, *one)[1] == 2


def test_those_clips_are_judged_that_were_asked_for_last(store: Store, tmp_path: Path) -> None:
    copy = Store(str(tmp_path))
    for key in store.keys(f"samples/{OTHER}"):
        copy.write_bytes(key, store.read_bytes(key))
    key = samples_key(OTHER)
    short = {**copy.read_json(key), "asked": {"sentences": 1, "seeds": [1]}}
    copy.write_json(key, short)
    found, clips = measure(copy, OTHER, "--no-mos", "--no-speaker")
    assert (clips, found["config"]["sentences"]) == (1, 1)
    with pytest.raises(ConfigError, match="sentence 0 with seed 2 is not among the samples"):
        measure(copy, OTHER, "--no-mos", "--no-speaker", "--seeds", "1,2")
    with pytest.raises(ConfigError, match="--sentences is 31"):
        measure(copy, OTHER, "--no-mos", "--no-speaker", "--sentences", "31")


def test_a_sentence_without_a_word_to_count_is_refused_before_whisper_is_loaded(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    tone = np.full(2_400, 1_000, np.int16)
    keep(store, BASE, [kept_clip(store, BASE, 0, "[laughs]", tone)])
    with pytest.raises(ConfigError, match=r"sentence 0 with seed 1 is '\[laughs\]'.*materialize"):
        measure(store, BASE, "--asr", "nowhere.pt")


def test_the_previous_result_is_the_one_that_regressions_are_judged_by(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    runs.keep(
        store,
        runs.wer_run(1, [1] * 8),
        runs.wer_run(2, [1] * 8, status="invalid"),
        runs.wer_run(3, [1] * 8, reduced=True),
        runs.wer_run(4, [1] * 8, config={"dnsmos": "another"}),
        runs.wer_run(5, [1] * 8, device={**runs.DEVICE, "cores": 64}),
    )
    current = runs.wer_run(9, [2] * 8)
    found = wer.previous_result(store, current, Reporter("test"))
    assert found is not None
    assert found["started_at"] == "2026-11-01T10:00:00Z"
    runs.keep(store, current)
    assert f"since {found['started_at']}" in judge(store, "wer", runs.PRESET).text


def test_what_other_judges_found_is_not_compared_with(heard: tuple, store: Store) -> None:
    found, clips = measure(store, OTHER)
    assert found["config"]["previous_started_at"] is None
    assert clips == 6  # Those of the base preset were not rated before, and are heard anew.
    assert found["figures"]["wer"] == heard[0]["value"]["figures"]["wer"]
    assert all(1 < row["dnsmos_overall"] < 5 for row in found["rows"][:2])
    assert found["rows"][2]["dnsmos_overall"] is None
    # Clipping is heard as distortion.
    assert found["figures"]["dnsmos_overall_less_base"]["value"] < 0


def test_a_damaged_previous_result_stops_nothing(store: Store, tmp_path: Path) -> None:
    copy = Store(str(tmp_path))
    for key in store.keys("samples"):
        copy.write_bytes(key, store.read_bytes(key))
    device = cpu_device()["name"]
    for preset in (BASE, OTHER):
        key = f"results/wer/{slug(device)}/{preset}/20260101000000.json"
        copy.write_bytes(key, b"{}")
    found, _ = measure(copy, OTHER, "--no-mos", "--no-speaker")
    assert found["config"]["previous_started_at"] is None
    assert "wer_less_base" in found["figures"]
    # What was asked to be left out is nowhere.
    assert [name for name in found["figures"] if "speaker" in name] == []
    assert {row["speaker_similarity"] for row in found["rows"]} == {None}
    assert found["config"]["speaker"] is found["config"]["speaker_yardstick"] is None


def test_without_samples_of_the_base_preset_nothing_is_compared(
    store: Store, tmp_path: Path
) -> None:
    copy = Store(str(tmp_path))
    for key in store.keys(f"samples/{OTHER}"):
        copy.write_bytes(key, store.read_bytes(key))
    found, clips = measure(copy, OTHER, "--no-mos")
    assert clips == 3
    assert [name for name in found["figures"] if "_less_" in name] == []
    assert f"materialize samples of {BASE}" in judged(found).detail
    assert [row["speaker_left_out"] for row in found["rows"]] == [
        "no_counterpart",
        "too_short",
        "silent",
    ]


def test_without_samples_the_command_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "speech_assets.work.wer", "--store", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "samples.json is not there; materialize samples of embedded-bf16" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.json"))
