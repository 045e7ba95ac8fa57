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
from quality.spoken import keep, kept_clip

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from speech_assets.assets.quality import WerConfig, quality_assets
from speech_assets.profiles import load_profile
from speech_assets.quality.noise import judged
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


def test_the_asset_shows_the_result_and_its_check(heard: tuple, store: Store) -> None:
    found, checks = heard
    metadata = found["metadata"]
    assert metadata["wer"].value == found["value"]["figures"]["wer"]["value"]
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
    # The base preset's clips have been heard: only the others are.
    again, clips = measure(store, OTHER, "--no-mos")
    assert clips == 3
    value = heard[0]["value"]
    assert again["rows"] == value["rows"]
    assert again["config"]["previous_started_at"] == value["started_at"]
    less = again["figures"]["wer_less_previous"]
    assert (less["value"], less["ci_low"], less["ci_high"]) == (0.0, 0.0, 0.0)
    assert again["figures"]["wer_less_base"] == value["figures"]["wer_less_base"]


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
    found, _ = measure(copy, OTHER, "--no-mos")
    assert found["config"]["previous_started_at"] is None
    assert "wer_less_base" in found["figures"]


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
