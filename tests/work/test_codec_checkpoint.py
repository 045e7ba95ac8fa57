"""The command makes a form that the server takes, measures it, and says what it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resources.store import Store
from server.codec import load_codec
from server.frames import SAMPLES_PER_FRAME
from server.presets import load_preset, overridden
from speech_assets.codec_forms.figures import KIND
from speech_assets.codec_forms.tables import codec_forms_table
from speech_assets.errors import ConfigError, CorpusError
from speech_assets.results.result import read_result
from speech_assets.results.stored import stored_ids
from speech_assets.work.codec_checkpoint import choose_dtype
from speech_assets.work.codec_measurement import coded_clips

ROOT = Path(__file__).parents[2]
CODEC = ROOT / "server" / "embedded" / "codec"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command with a store and locks in `folder`, so that no other work holds the device."""
    command = [sys.executable, "-m", "speech_assets.work.codec_checkpoint", "--device", "cpu"]
    return subprocess.run(
        [*command, "--store", str(folder / "store"), *words],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store with the int8 form of the embedded codec, and the result of measuring it."""
    folder = tmp_path_factory.mktemp("made")
    done = run(folder, "--form", "int8", "--clips", "2", "--calls", "2")
    assert done.returncode == 0, done.stderr
    store = Store(str(folder / "store"))
    (name,) = stored_ids(store, KIND)
    return folder / "store", read_result(Path(store.path(f"results/{name}.json")))


def test_both_arms_decode_the_same_codes_to_nearly_the_same_audio(
    made: tuple[Path, dict[str, Any]],
) -> None:
    _, result = made
    assert len(result["rows"]) == 2
    for row in result["rows"]:
        assert row["samples"] == row["reference_samples"]
        assert row["samples"] % SAMPLES_PER_FRAME == 0
        assert 0 < row["relative_error"] < 0.02
        assert row["flags"] == []
    values = {name: figure["value"] for name, figure in result["figures"].items()}
    assert values["sample_count_mismatches"] == 0
    assert -50 < values["relative_error_db"] < -34
    assert values["form_relative_error"] == values["relative_error"]  # Both in float32.


def test_costs_are_of_the_form_and_of_its_parent(made: tuple[Path, dict[str, Any]]) -> None:
    store, result = made
    values = {name: figure["value"] for name, figure in result["figures"].items()}
    weights = store / "codecs" / "int8" / "model.safetensors"
    assert values["file_bytes"] == weights.stat().st_size
    assert values["reference_file_bytes"] == (CODEC / "pytorch_model.bin").stat().st_size
    parameters = load_codec(store / "codecs" / "int8").identity.parameter_count
    assert values["weights_bytes"] == 4 * parameters
    assert values["reference_weights_bytes"] > values["weights_bytes"]
    for arm in ("", "reference_"):
        assert result["figures"][f"{arm}decode_ms_per_audio_s_rows8_p50"]["n"] == 2
        assert values[f"{arm}decode_ms_per_audio_s_rows1_p50"] > 0
        assert values[f"{arm}load_ms_p50"] > 0
        # At least what its weights take, and less than torch and all else of a process.
        assert values["weights_bytes"] / (1 << 20) < values[f"{arm}resident_mib"] < 2_000
        assert values[f"{arm}peak_mib"] >= values[f"{arm}resident_mib"]


def test_the_result_says_what_was_measured_and_names_no_place(
    made: tuple[Path, dict[str, Any]],
) -> None:
    _, result = made
    assert result["name"] == f"int8 {load_codec(CODEC).identity.name}"
    assert result["reduced"]
    assert result["config"]["form"] == "int8"
    assert result["config"]["dtype"] == "float32"
    assert "location" not in result["config"]["parent"]
    assert str(ROOT) not in str(result)
    assert "int8 (reduced)" in codec_forms_table([result])


def test_a_preset_takes_its_folder_as_codec(made: tuple[Path, dict[str, Any]]) -> None:
    folder = made[0] / "codecs" / "int8"
    preset = overridden(load_preset("embedded-bf16"), codec=str(folder))
    assert preset.codec_location().folder == folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--form", "int4"], "error: codec form 'int4': there is none; use fp32, fp16, bf16, int8"),
        (["--form", "int8", "--codec", "nowhere"], "error: weights 'nowhere': no such folder"),
        (["--form", "int8", "--clips", "0"], "error: --clips is 0; it must be 1 or more"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_store(
    words: list[str], message: str, tmp_path: Path
) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)
    assert not (tmp_path / "store").exists()


def test_more_clips_than_the_corpus_has_are_refused() -> None:
    with pytest.raises(CorpusError, match=r"split dev of corpus .*: 1000 are asked for, of \d+"):
        coded_clips(load_codec(CODEC), 1_000, lambda: None)


def test_the_dtype_is_that_of_presets_unless_it_is_given() -> None:
    assert choose_dtype("auto", "cpu") == "float32"
    assert choose_dtype("auto", "cuda:0") == "bfloat16"
    assert choose_dtype("float16", "cpu") == "float16"
    with pytest.raises(ConfigError, match=r"--dtype 'half': there is none; use auto, float32"):
        choose_dtype("half", "cpu")
