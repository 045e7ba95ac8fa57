"""The base model: found by what presets say, validated before anything runs, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_voice import write_small_voice

from server.errors import ConfigurationError, WeightsError
from server.presets import VARIABLE, load_preset
from server.weights import fingerprint
from speech_assets.errors import ConfigError
from speech_assets.quantize import values
from speech_assets.quantize.base_model import base_preset, find_base_model

VOICE = Path(__file__).parents[2] / "server" / "embedded" / "voice"


@pytest.fixture
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of presets: one of this tuned model, two from it, one from the embedded voice."""
    shutil.copytree(VOICE, tmp_path / "tuned")
    path = tmp_path / "presets.toml"
    path.write_text(
        '[presets.tuned]\nmodel = "tuned"\ncodec = "tuned"\ncheckpoint = { scheme = "bf16" }\n'
        '[presets.tuned-w4]\nmodel = "store"\ncodec = "tuned"\n'
        'checkpoint = { scheme = "w4a16", base = "tuned" }\n'
        '[presets.tuned-kv]\nmodel = "store:tuned-w4"\ncodec = "tuned"\n'
        '[presets.homeless]\nmodel = "store"\ncodec = "tuned"\n'
        'checkpoint = { scheme = "fp8" }\n'
    )
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_presets_of_one_base_model_share_it(presets: Path) -> None:
    names = ["tuned-kv", "tuned-w4", "tuned"]
    found = find_base_model(base_preset(names))
    assert found.location == str(presets.parent / "tuned")
    assert found.weights_sha256 == fingerprint(presets.parent / "tuned")
    assert (found.vocabulary_size, found.layers, found.live_codes) == (28_800, 6, 4_096)
    assert found.voices == ("heart",)
    assert found.tied_head
    assert (Path(found.folder) / "model.safetensors").is_file()


def test_presets_of_two_base_models_need_two_profiles(presets: Path) -> None:
    with pytest.raises(ConfigError, match=r"different base models \(tuned from .*embedded-w4a16"):
        base_preset(["tuned", "embedded-w4a16"])


def test_presets_without_a_recipe_have_no_base_model(presets: Path) -> None:
    with pytest.raises(ConfigError, match=r"\(tuned-kv\) has a checkpoint table; give one"):
        base_preset(["tuned-kv"])
    with pytest.raises(ConfigurationError, match=r"presets\.homeless\.checkpoint\.base is missing"):
        base_preset(["homeless"])
    with pytest.raises(ConfigurationError, match="no preset 'absent'"):
        base_preset(["absent"])


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("packed.safetensors", lambda data: data[: len(data) // 2], "packed.safetensors"),
        ("packed.safetensors", lambda data: data[:-4] + b"\0\1\2\3", "expands to other weights"),
        ("config.json", lambda data: data.replace(b"28800", b"20000"), "20000"),
        ("config.json", lambda data: data.replace(b'"llama"', b'"gpt2"'), "model_type 'gpt2'"),
        (
            "layout.json",
            lambda data: data.replace(b'"audio_base": 128', b'"audio_base": 900'),
            "28800|ids of the layout",
        ),
        ("layout.json", lambda _: b"{}", "layout.json"),
    ],
)
def test_a_base_model_that_is_damaged_or_of_another_layout_is_refused(
    presets: Path, monkeypatch: pytest.MonkeyPatch, file: str, change: object, message: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(presets.parent / "cache"))  # Nothing expanded yet.
    path = presets.parent / "tuned" / file
    path.write_bytes(change(path.read_bytes()))  # pyright: ignore[reportCallIssue]
    with pytest.raises(WeightsError, match=message):
        find_base_model(load_preset("tuned"))


@pytest.fixture
def tuned(presets: Path) -> Path:
    """The same presets, of a small plain model of random weights."""
    shutil.rmtree(presets.parent / "tuned")
    return write_small_voice(presets.parent / "tuned")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_no_number_is_found_wherever_it_is(
    tuned: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, value: float
) -> None:
    monkeypatch.setattr(values, "PIECE_BYTES", 1_000)
    path = tuned / "model.safetensors"
    state = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    save_file(state, path)
    assert find_base_model(load_preset("tuned")).layers == 2
    state["model.layers.1.mlp.up_proj.weight"][-1, -1] = value
    save_file(state, path)
    with pytest.raises(WeightsError, match=r"layers\.1\.mlp\.up_proj\.weight has values that are"):
        find_base_model(load_preset("tuned"))


def test_a_tensor_of_zeros_is_a_copy_that_broke_off(tuned: Path) -> None:
    path = tuned / "model.safetensors"
    state = load_file(path)
    state["model.layers.0.mlp.down_proj.weight"][1:] = 0  # Rows may be.
    save_file(state, path)
    assert find_base_model(load_preset("tuned")).layers == 2
    data = np.fromfile(path, np.uint8)
    data[-4_096:] = 0
    data.tofile(path)
    with pytest.raises(WeightsError, match=r"\.safetensors: model\.\S+ is all zeros; the model is"):
        find_base_model(load_preset("tuned"))


def test_a_base_model_that_is_quantized_already_is_refused(tuned: Path) -> None:
    config = json.loads((tuned / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (tuned / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"preset tuned is quantized already \(fp8\)"):
        find_base_model(load_preset("tuned"))
