"""A checkpoint's folder: the layout that it says it has, and whether its files fit each other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from small_voice import LAYOUT, PHONEMES, write_layout, write_small_voice

from server.checkpoint import open_checkpoint
from server.errors import WeightsError
from server.frames import ORPHEUS, read_layout
from speech_assets.voice.layout import VoiceLayout

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's and transformers', of their own use.

EMBEDDED_VOICE = Path(__file__).parents[2] / "server" / "embedded" / "voice"


@pytest.fixture
def voice(tmp_path: Path) -> Path:
    return write_small_voice(tmp_path / "voice")


def test_the_layout_that_training_writes_is_the_one_that_is_read(tmp_path: Path) -> None:
    written = VoiceLayout(live_codes=2_048)
    written.write(tmp_path, sampling={"temperature": 0.5, "top_p": 0.8})
    layout = read_layout(tmp_path)
    text = "h\u02c8ɛlO"
    ids = [layout.phoneme_base + layout.phonemes.index(symbol) for symbol in text]
    for voice in written.voices:
        assert layout.prompt(ids, voice) == written.prompt(text, voice)
    assert layout.audio_base == written.audio_base
    assert layout.vocabulary_size == written.vocab_size
    assert layout.live_codes == 2_048
    assert (layout.temperature, layout.top_p, layout.repetition_penalty) == (0.5, 0.8, 1.0)


def test_a_layout_may_do_without_voice_ids(tmp_path: Path) -> None:
    order = ["begin", "phonemes", "end_of_text", "start_of_speech"]
    write_layout(tmp_path, prompt_order=order, voices=["heart"])
    layout = read_layout(tmp_path)
    assert layout.voice_base is None
    assert layout.prompt([20, 21], "heart") == layout.prompt([20, 21]) == [1, 20, 21, 2, 3]


def test_a_voice_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_layout(tmp_path)
    with pytest.raises(ValueError, match="no voice 'tara'; there are heart, michael"):
        read_layout(tmp_path).prompt([20], "tara")


def test_a_llama_vocabulary_of_orpheus_needs_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 156940}')
    assert read_layout(tmp_path) is ORPHEUS
    (tmp_path / "config.json").write_text('{"vocab_size": 128256}')
    with pytest.raises(WeightsError, match=r"a vocabulary of 128256 rows is not that of Orpheus"):
        read_layout(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version 2 is not 1"),
        ({"codes_per_slot": 1_024}, "codes_per_slot 1024"),
        ({"text_front_end": "espeak"}, "text_front_end 'espeak'"),
        ({"prompt_order": ["begin", "voice"]}, "has no phonemes"),
        ({"prompt_order": ["voice", "begin", "phonemes"]}, "has the voice elsewhere"),
        ({"prompt_order": ["begin", "accent", "phonemes"]}, "field 'accent' is missing"),
        ({"voices": []}, "voices is empty"),
        ({"live_codes": 5_000}, "live_codes 5000"),
        ({"audio_base": 40}, "is an audio id"),
        ({"end_of_speech": 40_000}, "id 40000 of end_of_speech is outside"),
        ({"voice_base": 8}, "id 8 is of voice heart and of phoneme"),
        ({"phonemes": ["a", "a"]}, "a phoneme is listed twice"),
        ({"sampling": {"top_p": 0}}, "top_p 0"),
        ({"sampling": {"repetition_penalty": -1}}, "repetition_penalty -1"),
        ({"voices": 3}, "voices is 3; it must be a list"),
        ({"voices": [None]}, r"voices is \[None\]; it must be a list of texts"),
        ({"prompt_order": {"phonemes": 1}}, "prompt_order is .* it must be a list of texts"),
        ({"prompt_order": [[], "phonemes"]}, "prompt_order is .* it must be a list of texts"),
        ({"sampling": []}, r"sampling is \[\]; it must be an object"),
        ({"sampling": {"top_p": 10**400}}, r"sampling\.top_p is 1000"),
        ({"sampling": {"top_p": "all"}}, r"sampling\.top_p is 'all'"),
        ({"audio_base": 64.0}, r"audio_base is 64\.0; it must be a whole number"),
        ({"audio_base": -64}, "audio_base is -64; it must be a whole number"),
        ({"end_of_speech": True}, "end_of_speech is True; it must be a whole number"),
        ({"phonemes": 5}, "phonemes is 5; it must be a list"),
    ],
)
def test_a_layout_that_contradicts_itself_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    write_layout(tmp_path, **change)
    with pytest.raises(WeightsError, match=message) as caught:
        read_layout(tmp_path)
    assert str(tmp_path / "layout.json") in str(caught.value)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    value = {name: field for name, field in LAYOUT.items() if name != "audio_base"}
    (tmp_path / "layout.json").write_text(json.dumps(value))
    with pytest.raises(WeightsError, match=r"layout\.json: field 'audio_base' is missing"):
        read_layout(tmp_path)
    (tmp_path / "layout.json").write_text("{")
    with pytest.raises(WeightsError, match="not readable as JSON"):
        read_layout(tmp_path)


def test_a_whole_checkpoint_opens(voice: Path) -> None:
    checkpoint = open_checkpoint(voice)
    assert checkpoint.layout.phonemes == tuple(PHONEMES)
    assert checkpoint.vocabulary_size == 64 + 7 * 4_096
    assert checkpoint.kv_bytes_per_token(4) == 2 * 2 * 1 * 32 * 4
    assert checkpoint.weights_bytes == (voice / "model.safetensors").stat().st_size
    assert checkpoint.quantization is None


def test_what_is_missing_or_damaged_is_named(voice: Path) -> None:
    weights = voice / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(WeightsError, match="cut short or damaged"):
        open_checkpoint(voice)
    weights.write_bytes(b"<html>")
    with pytest.raises(WeightsError, match="not a safetensors file"):
        open_checkpoint(voice)
    weights.write_bytes((100).to_bytes(8, "little") + b"{" * 100)
    with pytest.raises(WeightsError, match="the header is damaged"):
        open_checkpoint(voice)
    weights.unlink()
    with pytest.raises(WeightsError, match=r"model\.safetensors: no such file"):
        open_checkpoint(voice)
    (voice / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json: no such file"):
        open_checkpoint(voice)
    with pytest.raises(WeightsError, match="no such folder"):
        open_checkpoint(voice / "elsewhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen3"}, "model_type 'qwen3' is not 'llama'"),
        ({"vocab_size": 30_000}, "the files are of different checkpoints"),
        ({"vocab_size": 20_000}, "smaller than the 28736 ids of the layout"),
        ({"num_hidden_layers": 3}, r"layers\.2\.input_layernorm\.weight is missing"),
        ({"intermediate_size": 128}, r"gate_proj\.weight has shape \[160, 64\], .*\[128, 64\]"),
        ({"num_key_value_heads": 2}, r"k_proj\.weight has shape \[32, 64\]"),
        ({"tie_word_embeddings": False}, r"lm_head\.weight is missing"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'; it must be a whole number"),
        ({"hidden_size": None}, "hidden_size is None; it must be a whole number"),
        ({"hidden_size": 64.0}, r"hidden_size is 64\.0"),
        ({"hidden_size": 10**400}, "hidden_size is 1000"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1; it must be a whole number from 1"),
        ({"num_hidden_layers": 1}, r"layers\.1\.\S+ is no tensor of the model that config"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_attention_heads": 0, "head_dim": None}, "num_attention_heads is 0"),
        ({"num_attention_heads": 3, "head_dim": None}, "3 does not divide hidden_size 64"),
        ({"num_key_value_heads": 3}, "3 does not divide num_attention_heads 2"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true"),
        ({"attention_bias": 1}, "attention_bias is 1; it must be true or false"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps is -1e-05"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"quantization_config": []}, "quantization_config names no quant_method"),
        ({"quantization_config": {}}, "quantization_config names no quant_method"),
    ],
)
def test_a_config_of_another_checkpoint_is_refused(
    voice: Path, change: dict[str, object], message: str
) -> None:
    path = voice / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(WeightsError, match=message):
        open_checkpoint(voice)


def test_a_config_without_a_field_is_refused(voice: Path) -> None:
    path = voice / "config.json"
    config = json.loads(path.read_text())
    del config["num_hidden_layers"]
    path.write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="field 'num_hidden_layers' is missing"):
        open_checkpoint(voice)


def test_quantized_weights_have_other_names(voice: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(voice / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    packed = state.pop(name)
    save_file(state, voice / "model.safetensors")
    with pytest.raises(WeightsError, match=rf"{name} is missing"):
        open_checkpoint(voice)
    save_file({**state, f"{name}_packed": packed[:, :8].contiguous()}, voice / "model.safetensors")
    with pytest.raises(WeightsError, match=rf"{name} is missing"):
        open_checkpoint(voice)
    config = json.loads((voice / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors"}
    (voice / "config.json").write_text(json.dumps(config))
    assert open_checkpoint(voice).layers == 2


def test_weights_in_several_files_are_read_by_their_index(voice: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(voice / "model.safetensors")
    (voice / "model.safetensors").unlink()
    names = sorted(state)
    files = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
    for file, part in files.items():
        save_file({name: state[name] for name in part}, voice / file)
    weight_map = {name: file for file, part in files.items() for name in part}
    index = voice / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert open_checkpoint(voice).layers == 2
    save_file({name: state[name] for name in names[4:]}, voice / "b.safetensors")
    with pytest.raises(WeightsError, match=rf"{re.escape(names[4])} is in another file, too"):
        open_checkpoint(voice)
    (voice / "b.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"b\.safetensors: no such file"):
        open_checkpoint(voice)


@pytest.mark.parametrize("held", ["[]", "{}", "3", '{"a": []}', '{"a": "../a"}', '{"a": null}'])
def test_an_index_that_names_no_files_is_refused(voice: Path, held: str) -> None:
    (voice / "model.safetensors.index.json").write_text(f'{{"weight_map": {held}}}')
    with pytest.raises(WeightsError, match=r"index\.json: weight_map gives no .* again"):
        open_checkpoint(voice)


DEEP = '{"a": ' * 100_000


@pytest.mark.parametrize(
    "text", [DEEP, '{"hidden_size": 1e400}', '{"a": NaN}', "[]", "{", "\udcff"]
)
@pytest.mark.parametrize("name", ["config.json", "layout.json", "model.safetensors.index.json"])
def test_a_file_that_is_no_json_object_is_one_line(voice: Path, name: str, text: str) -> None:
    (voice / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(WeightsError, match=rf"{name}: not readable as JSON: .*again$") as caught:
        open_checkpoint(voice)
    assert "\n" not in str(caught.value)


def test_a_tensor_of_another_model_is_refused_and_a_loose_head_is_not(voice: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = voice / "model.safetensors"
    state = load_file(path)
    embedding = state["model.embed_tokens.weight"]
    save_file({**state, "lm_head.weight": embedding.clone()}, path)
    assert open_checkpoint(voice).tied_head
    save_file({**state, "lm_head.weight": embedding[:, :8].contiguous()}, path)
    with pytest.raises(WeightsError, match=r"lm_head\.weight has shape .* than the embedding"):
        open_checkpoint(voice)
    bias = "model.layers.0.self_attn.q_proj.bias"
    for name in ("visual.weight", bias, "model.layers.2.mlp.up_proj.weight"):
        save_file({**state, name: embedding[0].clone()}, path)
        with pytest.raises(WeightsError, match=rf"{name} is no tensor of the model"):
            open_checkpoint(voice)
    whole = state["model.norm.weight"]
    save_file({**state, "model.norm.weight": whole.int()}, path)
    with pytest.raises(WeightsError, match=r"norm\.weight is I32, and config\.json has no quant"):
        open_checkpoint(voice)


def test_a_packed_checkpoint_is_expanded_and_opened(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(EMBEDDED_VOICE, cache=tmp_path)
    assert checkpoint.folder.parent == tmp_path
    assert checkpoint.layout.front_end == "phonemes"
    assert (checkpoint.folder / "model.safetensors").is_file()
    assert checkpoint == open_checkpoint(EMBEDDED_VOICE, cache=tmp_path)
