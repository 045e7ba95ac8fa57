import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402

from server.codec import load_codec  # noqa: E402
from server.packed import plain_folder  # noqa: E402
from speech_assets.errors import ConfigError  # noqa: E402
from speech_assets.voice.export import EMBEDDING, expand_rows  # noqa: E402
from speech_assets.voice.layout import VoiceLayout, read_layout  # noqa: E402
from speech_assets.voice.llama import LlamaShape, SmallLlama  # noqa: E402
from speech_assets.work.voice_export import argument_parser, export, write_lm  # noqa: E402
from speech_assets.work.worker import Reporter  # noqa: E402

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"
LAYOUT = VoiceLayout(live_codes=8)


def run(*line: object) -> None:
    export(argument_parser().parse_args([str(word) for word in line]), Reporter("test"))


def small_lm() -> SmallLlama:
    torch.manual_seed(0)
    shape = LlamaShape(
        LAYOUT.compact_size, hidden=64, layers=2, heads=2, kv_heads=1, feed_forward=96
    )
    return SmallLlama(shape).eval()


def write_trained(folder, lm, *, layout=LAYOUT):
    """What `voice_lm` leaves in its folder, in float32."""
    save_file(dict(lm.state_dict()), folder / "compact.safetensors")
    config = dataclasses.replace(lm.shape, vocab_size=LAYOUT.vocab_size).hf_config(
        begin=LAYOUT.begin, end=LAYOUT.end_of_speech, pad=LAYOUT.pad
    )
    (folder / "config.json").write_text(json.dumps(config))
    layout.write(folder, sampling={"temperature": 0.5, "top_p": 0.8})


def test_every_id_gets_the_row_that_it_was_trained_with():
    state = dict(small_lm().state_dict())
    expanded = expand_rows(state, LAYOUT)
    rows = torch.from_numpy(LAYOUT.row_of_id())
    assert torch.equal(expanded[EMBEDDING], state[EMBEDDING][rows])
    assert len(state[EMBEDDING]) == LAYOUT.compact_size  # The given one is as it was.
    others = expanded.keys() - {EMBEDDING}
    assert all(expanded[name] is state[name] for name in others)


def test_rows_of_another_layout_are_refused():
    with pytest.raises(ValueError, match="two trainings"):
        expand_rows(dict(small_lm().state_dict()), VoiceLayout(live_codes=9))


def test_transformers_loads_the_export_and_computes_what_was_trained(tmp_path):
    transformers = pytest.importorskip("transformers")
    trained, out = tmp_path / "trained", tmp_path / "out"
    trained.mkdir()
    lm = small_lm()
    write_trained(trained, lm)
    run("--lm", trained, "--out", out, "--form", "plain")
    other, report = transformers.LlamaForCausalLM.from_pretrained(
        out, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    codes = torch.randint(0, LAYOUT.live_codes, (5, 7), generator=torch.Generator().manual_seed(0))
    prompt = LAYOUT.prompt("ðə kæt", "michael")
    ids = torch.tensor([[*prompt, *LAYOUT.audio_ids(codes.numpy())]])
    compact = torch.tensor([[*prompt, *LAYOUT.audio_ids(codes.numpy(), compact=True)]])
    with torch.no_grad():
        ours = lm(compact) @ lm.model.embed_tokens.weight.t()
        theirs = other.eval()(ids).logits
    assert torch.allclose(ours[..., torch.from_numpy(LAYOUT.row_of_id())], theirs, atol=1e-5)
    assert read_layout(out) == LAYOUT
    assert json.loads((out / "layout.json").read_text("utf-8"))["sampling"]["top_p"] == 0.8
    assert other.generation_config.eos_token_id == LAYOUT.end_of_speech
    assert other.generation_config.temperature == 0.5


def test_a_packed_export_expands_to_a_model_that_says_what_was_trained(tmp_path):
    transformers = pytest.importorskip("transformers")
    trained, out = tmp_path / "trained", tmp_path / "out"
    trained.mkdir()
    lm = small_lm()
    write_trained(trained, lm)
    run("--lm", trained, "--out", out)
    assert not (out / "model.safetensors").exists()
    # The rows of dead codes, 7 x 4,088 of 28,736, are one.
    size = sum(path.stat().st_size for path in out.iterdir())
    assert size < 1.5 * sum(p.numel() for p in lm.parameters())
    plain = plain_folder(out, tmp_path / "cache")
    other = transformers.LlamaForCausalLM.from_pretrained(plain, dtype=torch.float32).eval()
    ids = torch.tensor([[*LAYOUT.prompt("ðə kæt", "heart"), *LAYOUT.audio_ids(np.zeros((5, 7)))]])
    compact = ids.clone()
    compact[0, -35:] = torch.from_numpy(LAYOUT.audio_ids(np.zeros((5, 7)), compact=True))
    with torch.no_grad():
        wanted = (lm(compact) @ lm.model.embed_tokens.weight.t())[..., LAYOUT.row_of_id()]
        made = other(ids).logits
    assert (made - wanted).square().mean().sqrt() < 0.02 * wanted.std()
    assert (made.argmax(-1) == wanted.argmax(-1)).all()
    assert read_layout(plain) == LAYOUT
    assert other.generation_config.eos_token_id == LAYOUT.end_of_speech


def test_a_packed_codec_gives_the_same_codes_and_nearly_the_same_audio(tmp_path):
    out = tmp_path / "out"
    run("--codec", CODEC, "--out", out, "--form", "packed")
    whole, packed = load_codec(CODEC), load_codec(plain_folder(out, tmp_path / "cache"))
    time_s = np.arange(12_000) / 24_000
    samples = (0.3 * np.sin(2 * np.pi * 300 * time_s**1.5)).astype(np.float32)
    codes = whole.encode(samples)
    assert (packed.encode(samples) == codes).all()
    one, other = whole.decode(codes), packed.decode(codes)
    snr_db = 10 * np.log10(np.square(one).sum() / np.square(one - other).sum())
    assert snr_db > 30
    size = sum(path.stat().st_size for path in out.iterdir())
    assert size < 0.75 * (CODEC / "pytorch_model.bin").stat().st_size


def test_a_plain_codec_is_as_it_was_and_a_folder_that_is_none_is_refused(tmp_path):
    run("--codec", CODEC, "--out", tmp_path / "out")
    for name in ("config.json", "pytorch_model.bin"):
        assert (tmp_path / "out" / name).read_bytes() == (CODEC / name).read_bytes()
    with pytest.raises(ConfigError, match=r"config\.json: not readable"):
        run("--codec", tmp_path, "--out", tmp_path / "other")


def test_a_config_of_another_vocabulary_is_refused(tmp_path):
    write_trained(tmp_path, small_lm())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    with pytest.raises(ConfigError, match="vocabulary of 100"):
        write_lm(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
