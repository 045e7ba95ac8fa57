"""A plain checkpoint with its weights rounded by compressed-tensors: quantized, uncalibrated."""

from __future__ import annotations

import json
import shutil
import warnings
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import load_file, save_file

with warnings.catch_warnings(action="ignore"):  # torch's, of what the library compiles at import.
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

if TYPE_CHECKING:
    from pathlib import Path

Form = Literal["fp8", "fp8_weight_only", "w4a16", "w4a16_lmhead"]


def write_rounded_voice(source: Path, folder: Path, form: Form, group_size: int = 32) -> Path:
    """The checkpoint in `source`, of one float file, in `form`."""
    scheme = scheme_of(form, group_size)
    compressor = BaseCompressor.get_value_from_registry(str(scheme.format))
    state = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    if form == "w4a16_lmhead":
        state["lm_head.weight"] = state.get(
            "lm_head.weight", state["model.embed_tokens.weight"]
        ).clone()
        config["tie_word_embeddings"] = False
    rounded: dict[str, torch.Tensor] = {}
    for name, weight in state.items():
        part = name.removesuffix(".weight")
        if not part.endswith("_proj") and not (part == "lm_head" and form == "w4a16_lmhead"):
            rounded[name] = weight
            continue
        values = {
            "weight": weight.float(),
            "weight_scale": scales(weight.float(), form, group_size),
        }
        made = compressor.compress(values, scheme)
        rounded |= {f"{part}.{last}": value.contiguous() for last, value in made.items()}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": scheme.format,
        "config_groups": {"group_0": scheme.model_dump(mode="json")},
        "ignore": [] if form == "w4a16_lmhead" else ["lm_head"],
    }
    folder.mkdir(parents=True)
    save_file(rounded, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copyfile(source / "layout.json", folder / "layout.json")
    return folder


def scales(weight: torch.Tensor, form: Form, group_size: int) -> torch.Tensor:
    """Scales with which the largest weight of a channel or group is the largest value."""
    if form.startswith("fp8"):
        return weight.abs().amax(1, keepdim=True) / 448
    groups = weight.reshape(len(weight), -1, group_size)
    return groups.abs().amax(-1) / 7.5


def scheme_of(form: Form, group_size: int = 32) -> QuantizationScheme:
    """How compressed-tensors names the form."""
    if form.startswith("fp8"):
        inputs: dict[str, Any] = {
            "num_bits": 8,
            "type": "float",
            "strategy": "token",
            "dynamic": True,
            "symmetric": True,
        }
        return QuantizationScheme(
            targets=["Linear"],
            weights=QuantizationArgs(num_bits=8, type="float", strategy="channel"),
            input_activations=QuantizationArgs(**inputs) if form == "fp8" else None,
            format="float-quantized" if form == "fp8" else "naive-quantized",
        )
    return QuantizationScheme(
        targets=["Linear", "lm_head"] if form == "w4a16_lmhead" else ["Linear"],
        weights=QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=group_size),
        format="pack-quantized",
    )
