"""A checkpoint in plain torch: its weights by compressed-tensors, its logits by a real vLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from engines import ids, opened, prompt, run
from rounded_voice import Form, scheme_of, write_rounded_voice
from safetensors.torch import load_file, save_file
from small_voice import write_small_voice
from transformers import LlamaForCausalLM

from server.checkpoint import open_checkpoint
from server.engine import EngineSettings, Generation, Sampling
from server.errors import WeightsError
from speech_assets.quantize.reference import (
    Fp8Linear,
    quantized_by_token,
    reference_model,
    rounded_to_fp8,
    teacher_forced_logits,
    unpacked_int4,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

LIVE = 1_500
FP8_CACHE = pytest.mark.skipif(
    not torch.cpu._is_avx512_supported(), reason="vLLM's fp8 cache on a CPU needs AVX-512"
)
FORMS: tuple[Form, ...] = ("fp8", "fp8_weight_only", "w4a16", "w4a16_lmhead")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_voice(tmp_path_factory.mktemp("voice"), live_codes=LIVE)


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory, plain: Path) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("rounded")
    return {"plain": plain} | {
        form: write_rounded_voice(plain, root / form, form) for form in FORMS
    }


def test_int4_is_unpacked_as_worked_out_by_hand() -> None:
    """Word 0x76543210 is the nibbles 0 to 7, of the values -8 to -1; 0xFEDCBA98 is 0 to 7."""
    packed = torch.tensor([[0x76543210, 0xFEDCBA98 - (1 << 32)]], dtype=torch.int32)
    scale = torch.tensor([[0.5, 1.0, 2.0, 4.0]])  # Groups of 4.
    got = unpacked_int4(packed, scale, 16)
    assert got.tolist() == [
        [-4.0, -3.5, -3.0, -2.5, -4.0, -3.0, -2.0, -1.0, 0.0, 2.0, 4.0, 6.0, 16.0, 20.0, 24.0, 28.0]
    ]
    assert unpacked_int4(packed, scale[:, :3], 12).shape == (1, 12)  # The last 4 are padding.


@pytest.mark.parametrize(("columns", "groups"), [(24, 2), (16, 3)])
def test_int4_of_other_shapes_is_refused(columns: int, groups: int) -> None:
    with pytest.raises(ValueError, match=f"are not of {columns} inputs"):
        unpacked_int4(torch.zeros((1, 2), dtype=torch.int32), torch.ones((1, groups)), columns)


def test_a_token_is_quantized_by_its_largest_value() -> None:
    """Of 1, 896 and -3 the scale is 2: halves 0.5, 448 and -1.5 are e4m3's own."""
    values, scale = quantized_by_token(torch.tensor([[1.0, 896.0, -3.0], [0.0, 0.0, 0.0]]))
    assert scale.tolist() == [[2.0], [pytest.approx(1 / (448 * 512))]]
    assert values.float().tolist() == [[0.5, 448.0, -1.5], [0.0, 0.0, 0.0]]


def test_an_fp8_cache_rounds_to_three_bits_and_cuts_at_448() -> None:
    # Between 16 and 32 e4m3 has steps of 2; below 2**-6 of 2**-9.
    values = torch.tensor([17.9, -18.9, 19.1, 500.0, -1e4, 2.9 * 2**-9, 0.4 * 2**-9])
    nearest = [18.0, -18.0, 20.0, 448.0, -448.0, 3 * 2**-9, 0.0]
    below = [16.0, -18.0, 18.0, 448.0, -448.0, 2 * 2**-9, 0.0]
    assert rounded_to_fp8(values).tolist() == nearest
    assert rounded_to_fp8(values, towards_zero=True).tolist() == below


@FP8_CACHE
def test_vllms_cache_on_a_cpu_drops_the_bits_that_do_not_fit() -> None:
    """If this fails, vLLM rounds to the nearest here, too, and `reference_model` must."""
    from vllm import _custom_ops as ops
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    for scale in (1e-3, 0.1, 3.0, 200.0):
        keys = torch.randn((32, 1, 64), generator=torch.manual_seed(7)) * scale
        cache = torch.zeros((1, 1, 64, 64), dtype=torch.uint8)
        of_keys, of_values = cache.chunk(2, dim=2)
        slots = torch.arange(32)
        ops.cpu_attn_reshape_and_cache(
            keys, keys, of_keys, of_values, slots, "vec", 1.0, 1.0, "fp8"
        )
        expected = rounded_to_fp8(keys, towards_zero=True).flatten().sort().values
        for held in (of_keys, of_values):  # Their order is the kernel's own.
            stored = held.contiguous().view(torch.float8_e4m3fn).float().flatten()
            assert torch.equal(stored.sort().values, expected)


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_those_of_compressed_tensors(form: Form, rounded: dict[str, Path]) -> None:
    from compressed_tensors.compressors import BaseCompressor

    scheme = scheme_of(form)
    compressor = BaseCompressor.get_value_from_registry(str(scheme.format))
    stored = load_file(rounded[form] / "model.safetensors")
    llama = reference_model(rounded[form], dtype=torch.float32).llama
    parts = sorted({name.rpartition(".")[0] for name in stored if name.endswith("weight_scale")})
    assert len(parts) == 14 + (form == "w4a16_lmhead")
    for part in parts:
        of_part = {
            name.rpartition(".")[2]: value
            for name, value in stored.items()
            if name.rpartition(".")[0] == part
        }
        expected = compressor.decompress(of_part, scheme)["weight"].float()
        module = llama.get_submodule(part)
        if isinstance(module, Fp8Linear):
            dense = module.rows.float() * module.scale.T
        else:
            dense = module.weight
        assert torch.equal(dense, expected), part


def test_plain_logits_are_those_of_transformers(plain: Path) -> None:
    checkpoint = open_checkpoint(plain)
    layout = checkpoint.layout
    codes = torch.randint(0, LIVE, (3, 7), generator=torch.manual_seed(1)).numpy()
    tokens = [*layout.token_ids(codes).tolist(), layout.end_of_speech]
    text = prompt(checkpoint, "wʌt ɪz")  # noqa: RUF001
    got = teacher_forced_logits(reference_model(plain, dtype=torch.float32), text, tokens, layout)
    assert got.shape == (22, LIVE + 1)
    assert got.dtype == torch.float32
    whole = LlamaForCausalLM.from_pretrained(plain, dtype=torch.float32)
    expected = whole(torch.tensor([text + tokens])).logits[0]
    for position in range(22):
        row = expected[len(text) - 1 + position]
        first = layout.audio_base + position % 7 * 4_096
        assert torch.allclose(got[position, :LIVE], row[first : first + LIVE], atol=1e-4)
        if position % 7 == 0:
            assert got[position, LIVE] == pytest.approx(float(row[layout.end_of_speech]), abs=1e-4)
        else:
            assert got[position, LIVE] == float("-inf")


@pytest.mark.parametrize(
    ("form", "dtype", "cache", "worst"),
    [
        # In float32 both round the same values alike; in bfloat16 a value may fall on the other
        # side of a step of its own or of e4m3 (0.03 and 0.1 nats were measured).
        ("plain", "float32", "auto", 1e-3),
        pytest.param("plain", "float32", "fp8", 1e-3, marks=FP8_CACHE),
        ("fp8", "float32", "auto", 1e-3),
        pytest.param("fp8", "float32", "fp8", 1e-3, marks=FP8_CACHE),
        ("w4a16", "bfloat16", "auto", 0.06),
    ],
)
def test_logprobs_are_those_of_vllm(
    rounded: dict[str, Path], form: str, dtype: str, cache: str, worst: float
) -> None:
    checkpoint = open_checkpoint(rounded[form])
    layout = checkpoint.layout
    settings = EngineSettings(
        dtype=dtype, max_streams=1, max_model_len=256, vllm_args={"kv_cache_dtype": cache}
    )
    text = prompt(checkpoint, "wʌt ɪz ðə taɪm")  # noqa: RUF001
    with opened(checkpoint, settings) as engine:
        sampling = Sampling(max_tokens=36, logprobs=20, seed=3)
        outputs = run(engine, Generation("r", text, sampling))["r"]
    found = [row for output in outputs for row in output.logprobs or []]
    model = reference_model(rounded[form], dtype=getattr(torch, dtype), kv_fp8=cache == "fp8")
    expected = teacher_forced_logits(model, text, ids(outputs), layout).log_softmax(-1)
    differences = [
        abs(value - float(expected[position, token_id - layout.audio_base - position % 7 * 4_096]))
        for position, row in enumerate(found)
        for token_id, value in row.items()
        if token_id != layout.end_of_speech
    ]
    assert len(differences) > 36 * 19
    assert max(differences) <= worst
    other = reference_model(rounded[form], dtype=getattr(torch, dtype), kv_fp8=cache != "fp8")
    without = teacher_forced_logits(other, text, ids(outputs), layout).log_softmax(-1)
    assert float((without - expected).nan_to_num().abs().max()) > 1.5 * worst  # It would be seen.


def test_rounded_logits_are_of_the_models_dtype(plain: Path) -> None:
    checkpoint = open_checkpoint(plain)
    layout, text = checkpoint.layout, prompt(checkpoint, "wʌt")
    tokens = layout.token_ids(torch.arange(14).numpy()).tolist()
    model = reference_model(plain, dtype=torch.bfloat16)
    exact, rough = (
        teacher_forced_logits(model, text, tokens, layout, rounded=rounded)
        for rounded in (False, True)
    )
    assert torch.equal(rough, rough.bfloat16().float())
    assert not torch.equal(exact, exact.bfloat16().float())
    assert float((exact - rough).nan_to_num().abs().max()) < 0.05


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def _not_finite(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state["model.layers.1.mlp.up_proj.weight_scale"][3] = float("nan")
    save_file(state, folder / "model.safetensors")


def _one_scale_less(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight_scale"
    state[name] = state[name][:, :1].repeat(1, 3).contiguous()
    save_file(state, folder / "model.safetensors")


def _zero_point(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state["model.layers.1.mlp.up_proj.weight_zero_point"] = torch.zeros(1)
    save_file(state, folder / "model.safetensors")


def _two_bits(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 2
    (folder / "config.json").write_text(json.dumps(config))


def _other_method(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq"}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "cut short or damaged"),
        (_not_finite, "not finite"),
        (_one_scale_less, "are not of 64 inputs"),
        (_zero_point, "weight_zero_point"),
        (_two_bits, "has weights of"),
        (_other_method, "quantization_config"),
    ],
)
def test_what_cannot_be_computed_is_one_clear_line(
    plain: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = write_rounded_voice(plain, tmp_path / "voice", "w4a16")
    damage(folder)
    with pytest.raises(WeightsError, match=message) as refusal:
        reference_model(folder, dtype=torch.float32)
    assert str(folder) in str(refusal.value)
    assert "\n" not in str(refusal.value)
