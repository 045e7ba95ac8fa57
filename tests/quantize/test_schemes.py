"""Schemes: what config.json must say, bytes of a step, and what fits a model and a device."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from server.frames import ORPHEUS, TokenLayout
from server.recipe import Recipe, Scheme
from speech_assets.errors import ConfigError
from speech_assets.quantize.schemes import (
    DeviceFacts,
    UnsupportedError,
    bytes_per_step,
    check_fits,
    check_runs,
    config_faults,
    has_fp8_cache,
    quantization_config,
    tied_head,
)
from speech_assets.quantize.shapes import SHAPES, LlamaShape

ORPHEUS_3B = SHAPES["orpheus-3b"]
EMBEDDED = LlamaShape(28_800, 384, 1_024, 6, 6, 3, 64)
T4 = DeviceFacts("cuda", "Tesla T4", (7, 5))
H200 = DeviceFacts("cuda", "NVIDIA H200", (9, 0))
CPU = DeviceFacts("cpu")
OLD_CPU = DeviceFacts("cpu", avx512=False)


@pytest.mark.parametrize(
    ("scheme", "full_gb", "audio_gb"),
    [  # notes of the model: 2,818.7 M numbers of body, 482.1 M of head, 28,673 rows of it cut.
        ("bf16", 6.60, 5.81),
        ("w4a16", 2.42, 1.63),
        ("w4a16_lmhead", 1.70, 1.70),
        ("fp8", 3.79, 3.00),
    ],
)
def test_bytes_of_a_step_of_orpheus_are_those_of_its_table(
    scheme: Scheme, full_gb: float, audio_gb: float
) -> None:
    found = bytes_per_step(Recipe(scheme), ORPHEUS_3B, ORPHEUS)
    assert found["full"] / 1e9 == pytest.approx(full_gb, abs=0.006)
    assert found["audio"] / 1e9 == pytest.approx(audio_gb, abs=0.006)


def test_an_audio_head_has_the_live_codes_of_seven_slots_and_the_stop() -> None:
    layout = TokenLayout(live_codes=1_500)
    found = bytes_per_step(Recipe("bf16"), ORPHEUS_3B, layout)
    assert found["full"] - found["audio"] == (156_940 - 7 * 1_500 - 1) * 3_072 * 2


def test_a_config_names_the_head_only_where_it_is_quantized() -> None:
    with_head = quantization_config(Recipe("w4a16_lmhead", group_size=64))
    group = with_head["config_groups"]["group_0"]
    assert group["targets"] == ["Linear", "lm_head"]
    assert group["weights"]["group_size"] == 64
    assert with_head["ignore"] == []
    assert quantization_config(Recipe("w4a16"))["ignore"] == ["lm_head"]
    with pytest.raises(ConfigError, match="bf16 is the base model as it is"):
        quantization_config(Recipe("bf16"))


def test_only_fp8_quantizes_activations() -> None:
    def inputs(scheme: Scheme) -> Any:
        return quantization_config(Recipe(scheme))["config_groups"]["group_0"]["input_activations"]

    assert inputs("fp8")["strategy"] == "token"
    assert inputs("fp8")["dynamic"] is True
    assert [inputs(s) for s in ("fp8_weight_only", "w4a16", "w4a16_lmhead")] == [None] * 3


def test_faults_of_a_config_are_what_differs_and_not_what_it_has_besides() -> None:
    expected = quantization_config(Recipe("w4a16"))
    found = {**quantization_config(Recipe("w4a16", group_size=32)), "version": "0.19.0"}
    assert config_faults(expected, {**expected, "version": "0.19.0"}) == []
    assert config_faults(expected, found) == [
        "quantization_config.config_groups.group_0.weights.group_size is 32, not 128"
    ]
    assert config_faults(expected, None) == ["quantization_config is None"]


def test_only_a_quantized_head_is_untied() -> None:
    assert {s for s in get_args(Scheme) if not tied_head(s, base_is_tied=True)} == {"w4a16_lmhead"}
    assert not tied_head("fp8", base_is_tied=False)


@pytest.mark.parametrize("shape", [ORPHEUS_3B, EMBEDDED])
@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_every_scheme_fits_the_projects_models(scheme: Scheme, shape: LlamaShape) -> None:
    check_fits(Recipe(scheme), shape, what="test")


def test_a_group_that_does_not_divide_is_refused_with_those_that_do() -> None:
    message = "preset p: group_size 100 does not divide the 384 inputs of q_proj.*32, 64, 128"
    with pytest.raises(ConfigError, match=message):
        check_fits(Recipe("w4a16", group_size=100), EMBEDDED, what="preset p")
    with pytest.raises(ConfigError, match="does not divide the 320 inputs"):
        check_fits(Recipe("w4a16"), LlamaShape(512, 320, 1_024, 1, 5, 5, 64), what="p")
    check_fits(Recipe("fp8", group_size=100), EMBEDDED, what="p")  # Has no groups.
    with pytest.raises(ConfigError, match="q_proj has 72 inputs, 64 outputs"):
        check_fits(Recipe("w4a16", group_size=8), LlamaShape(512, 72, 128, 1, 2, 2, 32), what="p")


@pytest.mark.parametrize(
    ("scheme", "device", "args", "message"),
    [
        ("fp8", T4, {}, r"needs a GPU of compute capability 8.9 or more, and Tesla T4 has 7.5"),
        ("w4a16", T4, {"kv_cache_dtype": "fp8"}, "w4a16 with a cache of fp8: needs a GPU"),
        ("fp8_weight_only", CPU, {}, "no kernel for it on a CPU"),
        ("bf16", OLD_CPU, {"kv_cache_dtype": "fp8"}, "on a CPU need AVX-512, which this one lacks"),
        ("w4a16", CPU, {}, 'float32; give the preset cpu_dtype = "bfloat16"'),
    ],
)
def test_what_a_device_cannot_run_is_one_line(
    scheme: Scheme, device: DeviceFacts, args: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        check_runs(Recipe(scheme), device, dtype="float32", vllm_args=args)


def test_a_cache_of_8_bits_is_known_by_its_name() -> None:
    assert [has_fp8_cache({"kv_cache_dtype": name}, what="p") for name in ("fp8", "fp8_e4m3")] == [
        *(True, True),
    ]
    assert not has_fp8_cache({}, what="p")
    assert not has_fp8_cache({"kv_cache_dtype": "bfloat16"}, what="p")
    with pytest.raises(ConfigError, match="preset p: kv_cache_dtype 'fp8_e5m2' cannot be compared"):
        has_fp8_cache({"kv_cache_dtype": "fp8_e5m2"}, what="preset p")


def test_what_a_device_runs_passes() -> None:
    for scheme in get_args(Scheme):
        check_runs(Recipe(scheme), H200, dtype="bfloat16", vllm_args={"kv_cache_dtype": "fp8"})
    for scheme in ("bf16", "fp8", "w4a16", "w4a16_lmhead"):
        check_runs(Recipe(scheme), CPU, dtype="bfloat16", vllm_args={"kv_cache_dtype": "fp8"})
    check_runs(Recipe("w4a16"), T4, dtype="float16")
    check_runs(Recipe("fp8"), OLD_CPU, dtype="float32")
    with pytest.raises(UnsupportedError, match="no group_size 96; give one of 32, 64, 128"):
        check_runs(Recipe("w4a16", group_size=96), H200, dtype="bfloat16")
