"""A decode-only codec decodes as its parent does, in every form, and says what it cannot do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from server.codec import Codec, load_codec, read_identity
from server.codec_decode_only import pack_codec, quantize_channels
from server.codec_decoder import CodecDecoder, DecoderOptions
from server.codec_encoder import BatchEncoder
from server.codec_form import FORMS, Form, FormHeader, parse_form, read_form
from server.errors import ConfigurationError, WeightsError
from speech_assets.corpus.audio import decode_clip

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
CODEC = ROOT / "server" / "embedded" / "codec"
# Relative errors on speech were 0, 5e-4, 6e-3 and 9e-3 (embedded codec, float32); twice of it.
LARGEST_ERRORS: dict[Form, float] = {"fp32": 0.0, "fp16": 1e-3, "bf16": 1.2e-2, "int8": 2e-2}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def parent() -> Codec:
    return load_codec(CODEC)


@pytest.fixture(scope="module")
def folders(parent: Codec, tmp_path_factory: pytest.TempPathFactory) -> dict[Form, Path]:
    """A folder of each form of the embedded codec."""
    root = tmp_path_factory.mktemp("forms")
    return {form: write_form(root / form, parent, form) for form in FORMS}


@pytest.fixture(scope="module")
def codes(parent: Codec, short_rows: list[dict[str, Any]]) -> NDArray[np.uint16]:
    """Codes of real speech."""
    clip = decode_clip(short_rows[0]["audio"]["bytes"], path=short_rows[0]["path"]).samples
    return parent.encode(clip)[:40]


def write_form(folder: Path, codec: Codec, form: Form, *, trained: bool = True) -> Path:
    folder.mkdir()
    shutil.copy(CODEC / "config.json", folder)
    (folder / "model.safetensors").write_bytes(pack_codec(codec.model, form, trained=trained))
    return folder


def relative_error(audio: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    return float(np.linalg.norm(audio - reference) / np.linalg.norm(reference))


@pytest.mark.parametrize("form", FORMS)
def test_a_form_decodes_as_its_parent_within_its_rounding(
    form: Form, parent: Codec, folders: dict[Form, Path], codes: NDArray[np.uint16]
) -> None:
    codec = load_codec(folders[form])
    audio, reference = codec.decode(codes), parent.decode(codes)
    assert audio.shape == reference.shape
    error = relative_error(audio, reference)
    assert error <= LARGEST_ERRORS[form]
    assert form == "fp32" or error > 0


def test_int8_decodes_as_its_weights_multiplied_out_by_hand(
    folders: dict[Form, Path], codes: NDArray[np.uint16]
) -> None:
    whole = load_codec(CODEC)
    tensors = load_file(folders["int8"] / "model.safetensors")
    held = whole.model.state_dict()
    quantized = [name for name, tensor in tensors.items() if tensor.dtype == torch.int8]
    assert len(quantized) > 30
    for name in quantized:
        scale = tensors[f"{name}_scale"]
        restored = tensors[name].float() * scale
        assert ((restored - held[name]).abs() <= scale / 2 * 1.001).all(), name
        held[name].copy_(restored)
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float16:
            held[name].copy_(tensor.float())
    assert np.array_equal(load_codec(folders["int8"]).decode(codes), whole.decode(codes))


@pytest.mark.parametrize("form", ["fp32", "int8"])
def test_the_servers_decoder_takes_a_form(
    form: Form, folders: dict[Form, Path], codes: NDArray[np.uint16]
) -> None:
    codec = load_codec(folders[form])
    decoder = CodecDecoder(codec, DecoderOptions(noise=False))
    assert relative_error(decoder.decode_utterance(codes, 0), codec.decode(codes)) < 1e-5


def test_scales_are_of_each_output_channel_and_nothing_is_clipped() -> None:
    weight = torch.tensor([[[1.0, -127.0]], [[0.5, 0.25]], [[0.0, 0.0]]])
    values, scale = quantize_channels(weight, channels=0)
    # Scales are 127 / 127, 0.5 / 127 and, of zeros, 1. 0.25 is 63.5 scales: even, 64.
    assert values.tolist() == [[[1, -127]], [[127, 64]], [[0, 0]]]
    assert scale.flatten().tolist() == pytest.approx([1.0, 0.5 / 127, 1.0])
    assert scale.shape == (3, 1, 1)
    values, scale = quantize_channels(weight.transpose(0, 1), channels=1)
    assert values.tolist() == [[[1, -127], [127, 64], [0, 0]]]
    assert scale.shape == (1, 3, 1)


def test_a_file_holds_no_encoder_and_is_as_small_as_its_form_says(
    parent: Codec, folders: dict[Form, Path]
) -> None:
    bytes_of: dict[str, int] = {}
    for form, folder in folders.items():
        tensors = load_file(folder / "model.safetensors")
        assert not [name for name in tensors if name.startswith("encoder") or ".in_proj" in name]
        assert all(
            tensor.dtype == torch.float32
            for name, tensor in tensors.items()
            if name.endswith(("bias", "alpha"))
        )
        bytes_of[form] = (folder / "model.safetensors").stat().st_size
    assert bytes_of["fp16"] == pytest.approx(bytes_of["fp32"] / 2, rel=0.01)
    assert bytes_of["bf16"] == pytest.approx(bytes_of["fp16"], rel=0.001)
    assert bytes_of["int8"] < 0.53 * bytes_of["fp16"]
    whole = sum(tensor.numel() for tensor in parent.model.state_dict().values())
    assert read_identity(folders["fp32"]).parameter_count < 0.7 * whole


def test_the_same_codec_gives_the_same_bytes(parent: Codec) -> None:
    first = pack_codec(parent.model, "int8", trained=True)
    assert pack_codec(load_codec(CODEC).model, "int8", trained=True) == first


def test_a_form_made_of_a_form_with_the_same_weights_is_the_same(
    folders: dict[Form, Path],
) -> None:
    again = pack_codec(load_codec(folders["fp32"]).model, "fp16", trained=True)
    assert again == (folders["fp16"] / "model.safetensors").read_bytes()


def test_encoding_is_refused_in_one_line(folders: dict[Form, Path]) -> None:
    codec = load_codec(folders["int8"])
    clip = np.zeros(5_000, np.float32)
    message = r"^[^\n]*int8: a decode-only codec has no encoder; encode with the codec[^\n]*$"
    with pytest.raises(WeightsError, match=message):
        codec.encode(clip)
    with pytest.raises(WeightsError, match=message):
        BatchEncoder(codec).encode([clip, clip])


def test_its_name_tells_the_form_and_counts_what_is_there(folders: dict[Form, Path]) -> None:
    identity = read_identity(folders["int8"])
    assert identity == load_codec(folders["int8"]).identity
    assert identity.name == f"snac-int8-3.4M-{identity.weights_sha256[:12]}"
    assert identity.parameter_count == read_identity(folders["fp32"]).parameter_count
    assert identity.config_sha256 == read_identity(CODEC).config_sha256


def test_a_form_of_random_weights_is_refused_unless_asked_for(
    parent: Codec, tmp_path: Path
) -> None:
    folder = write_form(tmp_path / "random", parent, "fp16", trained=False)
    with pytest.raises(WeightsError, match=r"random: a form of random weights.*allow_untrained"):
        load_codec(folder)
    identity = load_codec(folder, allow_untrained=True).identity
    assert not identity.trained
    assert identity.name.startswith("untrained-fp16-")


def test_weights_that_a_form_cannot_hold_are_refused(tmp_path: Path) -> None:
    codec = load_codec(CODEC)
    held = codec.model.state_dict()
    held["quantizer.quantizers.1.codebook.weight"][3, 2] = 70_000.0
    for form in ("fp16", "int8"):
        with pytest.raises(WeightsError, match=r"1\.codebook\.weight reaches 70000.*use bf16"):
            pack_codec(codec.model, form, trained=True)
    assert pack_codec(codec.model, "bf16", trained=True)
    held["decoder.model.7.bias"][0] = float("nan")
    with pytest.raises(WeightsError, match=r"decoder\.model\.7\.bias is not finite"):
        pack_codec(codec.model, "bf16", trained=True)


def test_a_whole_codec_has_no_form(folders: dict[Form, Path], tmp_path: Path) -> None:
    assert read_form(CODEC / "pytorch_model.bin") is None
    path = tmp_path / "model.safetensors"
    save_file(load_file(folders["fp32"] / "model.safetensors"), path, {"format": "pt"})
    assert read_form(path) is None
    header = read_form(folders["bf16"] / "model.safetensors")
    assert header is not None
    assert (header.form, header.trained) == ("bf16", True)


def test_an_unknown_form_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"codec form 'int4'.*use fp32, fp16, bf16, int8"):
        parse_form("int4")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"form": "int4"}, "codec form 'int4'"),
        ({"schema_version": 2}, "schema version 2, not 1"),
        ({"form": ["int8"]}, "not a codec form of this version"),
    ],
)
def test_a_file_of_another_version_is_refused(
    metadata: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    value = json.loads(FormHeader("int8", True).metadata()["speech_codec"]) | metadata
    save_file({"a": torch.zeros(1)}, path, {"speech_codec": json.dumps(value)})
    with pytest.raises(WeightsError, match=message):
        read_form(path)


def test_damaged_files_are_named(folders: dict[Form, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["int8"], tmp_path / "damaged")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for data in (whole[:-1], whole[:100], b"", b"x" * 5_000):
        path.write_bytes(data)
        with pytest.raises(WeightsError, match=r"^[^\n]*model\.safetensors: weights do not load"):
            load_codec(folder)


@pytest.mark.parametrize("missing", ["decoder.model.0.weight_scale", "decoder.model.0.weight"])
def test_a_file_that_lacks_a_tensor_is_refused(
    missing: str, folders: dict[Form, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["int8"], tmp_path / "lacking")
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    del tensors[missing]
    save_file(tensors, path, metadata)
    with pytest.raises(WeightsError, match=r"^[^\n]*decoder\.model\.0\.weight[^\n]*$"):
        load_codec(folder)


def test_a_config_of_another_codec_is_refused(folders: dict[Form, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["fp16"], tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"decoder_dim": 256}))
    with pytest.raises(WeightsError, match=r"^[^\n]*config\.json belongs to these weights$"):
        load_codec(folder)


def test_the_names_of_forms_load_no_torch() -> None:
    code = "import sys, server.codec_form; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
