"""A checkpoint in plain torch: what an engine computes from it, by code that can be read.

Weights of compressed-tensors are taken apart here and not by its library, which then is what tests
compare with. Beside the weights it does what an engine does: activations of 8-bit floats before
layers that have them, keys and values of 8-bit floats where the cache holds those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from server.checkpoint import open_checkpoint
from server.errors import WeightsError
from server.files import read_json
from server.frames import CODEBOOK_SIZE, TOKENS_PER_FRAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from server.frames import TokenLayout

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
"""Largest value of e4m3, to which larger ones are cut."""
SMALLEST_SCALE = 1.0 / (FP8_MAX * 512.0)  # vLLM's, of a token's activations.
_NIBBLES = 8  # 4-bit values in an int32, the lowest bits first.
_NIBBLE_ZERO = 8  # What stands for 0.


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """A Llama with its weights in dense form, or in 8-bit floats with their scales."""

    llama: LlamaForCausalLM
    kv_fp8: bool
    device: str


def reference_model(
    folder: Path, *, dtype: torch.dtype, kv_fp8: bool = False, device: str = "cpu"
) -> ReferenceModel:
    """The checkpoint in `folder`, computed in `dtype`.

    `kv_fp8` rounds keys and values as vLLM on `device` does with kv_cache_dtype="fp8" (e4m3, scale
    1): to the nearest on a GPU, towards zero on a CPU, whose kernels (0.32) drop the bits that do
    not fit. Queries keep their dtype, as on a CPU; attention kernels of some GPUs round those, too.

    Raises:
        WeightsError: the checkpoint is damaged, or quantized in a way that is not known here.
    """
    checkpoint = open_checkpoint(folder)
    folder = checkpoint.folder
    settings = read_json(folder / "config.json")
    quantizes_inputs = _quantizes_inputs(folder, settings.pop("quantization_config", None))
    config = LlamaConfig(**settings)
    config._attn_implementation = "sdpa"  # pyright: ignore[reportPrivateUsage]
    with torch.device("meta"):
        llama = LlamaForCausalLM(config)
    state: dict[str, Tensor] = {}
    for name, tensors in _parts(folder).items():
        parent, _, child = name.rpartition(".")
        if child.endswith("_proj") and "weight" in tensors and tensors["weight"].dtype == FP8:
            linear = _fp8_linear(folder, name, tensors, quantizes_inputs)
            setattr(llama.get_submodule(parent), child, linear.to(device))
        else:
            state[f"{name}.weight"] = _dense(folder, name, tensors).to(dtype=dtype, device=device)
    if checkpoint.tied_head:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    faults = [name for name, value in state.items() if not bool(torch.isfinite(value).all())]
    missing, unexpected = llama.load_state_dict(state, strict=False, assign=True)
    missing = [name for name in missing if not isinstance(_owner(llama, name), Fp8Linear)]
    if faults or missing or unexpected:
        raise WeightsError(
            f"{folder}: weights that are not finite: {faults}, missing: {missing}, unknown: "
            f"{unexpected}; make or copy the checkpoint again"
        )
    # Its table is no weight, and float32 whatever the dtype.
    llama.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
    llama.eval().requires_grad_(False)
    return ReferenceModel(llama, kv_fp8, device)


@torch.inference_mode()
def teacher_forced_logits(
    model: ReferenceModel,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    layout: TokenLayout,
    *,
    rounded: bool = False,
) -> Tensor:
    """Logits from which each of `token_ids` was to be chosen, given the prompt and those before.

    Float32 of shape (tokens, live codes + 1), on the host: the codes of the slot that is due, then
    end_of_speech, which is -inf but in slot 0. Rows of other slots are never computed, so that a
    token takes 16 kB. `rounded` rounds logits to the model's dtype, as an engine with a whole head
    does; with an audio head they are sums in float32 of products of that dtype.
    """
    codes = layout.live_codes
    ids = torch.tensor([[*prompt_ids, *token_ids[:-1]]], device=model.device)
    hidden = _hidden(model, ids)[0, len(prompt_ids) - 1 :]
    head = model.llama.lm_head.weight
    logits = torch.full((len(token_ids), codes + 1), float("-inf"))
    for slot in range(min(TOKENS_PER_FRAME, len(token_ids))):
        first = layout.audio_base + slot * CODEBOOK_SIZE
        of_slot = hidden[slot::TOKENS_PER_FRAME]
        logits[slot::TOKENS_PER_FRAME, :codes] = _product(
            of_slot, head[first : first + codes], rounded
        )
        if slot == 0:
            stop = head[layout.end_of_speech : layout.end_of_speech + 1]
            logits[::TOKENS_PER_FRAME, codes:] = _product(of_slot, stop, rounded)
    return logits


def rounded_to_fp8(values: Tensor, *, towards_zero: bool = False) -> Tensor:
    """The values as a cache of e4m3 with scale 1 gives them back; larger ones than 448 as 448."""
    cut = values.float().clamp(-FP8_MAX, FP8_MAX)
    if towards_zero:
        # e4m3 has 3 bits after the leading one, and no exponent below -6.
        exponent = (torch.frexp(cut).exponent - 1).clamp(min=-6)
        step = torch.exp2((exponent - 3).float())
        cut = torch.trunc(cut / step) * step
    return cut.to(FP8).to(values.dtype)


def quantized_by_token(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values (..., width) as e4m3, and each token's scale, float32 (..., 1): max / 448."""
    values = values.float()
    scale = (values.abs().amax(-1, keepdim=True) / FP8_MAX).clamp(min=SMALLEST_SCALE)
    return (values / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8), scale


def unpacked_int4(packed: Tensor, scale: Tensor, columns: int) -> Tensor:
    """Dense float32 weights (rows, columns) of int4 in groups: (nibble - 8) * scale of its group.

    `packed` is int32 (rows, columns / 8), value n of a word in its bits 4n to 4n + 3; `scale` is
    (rows, groups), and groups are of equal width.

    Raises:
        ValueError: the shapes do not fit each other.
    """
    rows, groups = scale.shape
    if packed.shape != (rows, -(-columns // _NIBBLES)) or columns % groups:
        raise ValueError(
            f"packed weights {tuple(packed.shape)} and scales {tuple(scale.shape)} are not of "
            f"{columns} inputs"
        )
    shifts = 4 * torch.arange(_NIBBLES, dtype=torch.int32, device=packed.device)
    nibbles = (packed[:, :, None] >> shifts & 15).reshape(rows, -1)[:, :columns]
    values = (nibbles - _NIBBLE_ZERO).float().view(rows, groups, columns // groups)
    return (values * scale.float()[:, :, None]).view(rows, columns)


class Fp8Linear(nn.Module):
    """A layer with weights of 8-bit floats: sums in float32, then the scales, then the dtype."""

    def __init__(self, weight: Tensor, scale: Tensor, quantizes_inputs: bool) -> None:
        super().__init__()
        self.register_buffer("rows", weight)  # (outputs, inputs), e4m3.
        self.register_buffer("scale", scale.float().reshape(1, -1))  # Of each output, or one.
        self._quantizes_inputs = quantizes_inputs

    def forward(self, values: Tensor) -> Tensor:
        """Outputs (..., outputs) of values (..., inputs), in their dtype."""
        rows, scale = cast("Tensor", self.rows).float(), cast("Tensor", self.scale)
        if self._quantizes_inputs:
            quantized, of_token = quantized_by_token(values)
            sums = F.linear(quantized.float(), rows) * of_token
        else:
            sums = F.linear(values.float(), rows)
        return (sums * scale).to(values.dtype)


class _Fp8Cache(DynamicCache):
    """Keys, after their rotation, and values as a cache of e4m3 gives them back."""

    towards_zero = False

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys = rounded_to_fp8(key_states, towards_zero=self.towards_zero)
        values = rounded_to_fp8(value_states, towards_zero=self.towards_zero)
        return super().update(keys, values, layer_idx, *args, **kwargs)


def _hidden(model: ReferenceModel, ids: Tensor) -> Tensor:
    """Hidden states (1, ids, hidden) after the last norm."""
    body = model.llama.model
    if not model.kv_fp8:
        return cast("Tensor", body(input_ids=ids, use_cache=False).last_hidden_state)
    cache = _Fp8Cache(config=model.llama.config)
    cache.towards_zero = model.device == "cpu"
    return cast(
        "Tensor", body(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state
    )


def _product(hidden: Tensor, rows: Tensor, rounded: bool) -> Tensor:
    if rounded:
        return F.linear(hidden, rows).float().cpu()
    return F.linear(hidden.float(), rows.float()).cpu()


def _quantizes_inputs(folder: Path, config: dict[str, Any] | None) -> bool:
    """Whether layers quantize their inputs, by the `quantization_config` of config.json.

    Raises:
        WeightsError: it has a scheme that is not known here.
    """
    if config is None:
        return False
    where = f"{folder / 'config.json'}: quantization_config"
    try:
        groups = list(config["config_groups"].values())
        if config["quant_method"] != "compressed-tensors" or len(groups) != 1:
            raise ValueError("is not compressed-tensors with one group")
        weights, inputs = groups[0]["weights"], groups[0].get("input_activations")
        kind = (weights["type"], weights["num_bits"], weights["strategy"], weights["symmetric"])
        if kind not in {
            ("int", 4, "group", True),
            ("float", 8, "channel", True),
            ("float", 8, "tensor", True),
        }:
            raise ValueError(f"has weights of {kind}")
        if inputs is not None:
            of_inputs = (inputs["type"], inputs["num_bits"], inputs["strategy"], inputs["dynamic"])
            if weights["type"] != "float" or of_inputs != ("float", 8, "token", True):
                raise ValueError(f"has inputs of {of_inputs} before weights of {kind}")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise WeightsError(
            f"{where} {error}; known are int4 in groups, and fp8 with or without inputs of fp8 by "
            "token"
        ) from error
    return inputs is not None


def _parts(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Tensors of each part (`model.norm`) by their last name (`weight`), from all files."""
    parts: dict[str, dict[str, Tensor]] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    part, _, last = name.rpartition(".")
                    parts.setdefault(part, {})[last] = file.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise WeightsError(
            f"{folder}: weights cannot be read ({error}); make or copy the checkpoint again"
        ) from error
    return parts


def _dense(folder: Path, name: str, tensors: dict[str, Tensor]) -> Tensor:
    """The weight of a part, float or as int4 in groups."""
    known = {"weight"}, {"weight_packed", "weight_scale", "weight_shape"}
    if set(tensors) == known[0]:
        return tensors["weight"]
    if set(tensors) != known[1]:
        raise WeightsError(f"{folder}: {name} has {sorted(tensors)}; known are {known}")
    columns = int(tensors["weight_shape"][1])
    try:
        return unpacked_int4(tensors["weight_packed"], tensors["weight_scale"], columns)
    except ValueError as error:
        raise WeightsError(f"{folder}: {name}: {error}; make the checkpoint again") from error


def _fp8_linear(
    folder: Path, name: str, tensors: dict[str, Tensor], quantizes_inputs: bool
) -> Fp8Linear:
    if set(tensors) != {"weight", "weight_scale"}:
        raise WeightsError(
            f"{folder}: {name} has {sorted(tensors)}, not e4m3 weights with a scale; make the "
            "checkpoint again"
        )
    weight, scale = tensors["weight"], tensors["weight_scale"]
    whole = bool(torch.isfinite(weight.float()).all() and torch.isfinite(scale.float()).all())
    if not whole or scale.numel() not in (1, len(weight)):
        raise WeightsError(
            f"{folder}: {name} has values that are not finite, or {scale.numel()} scales for "
            f"{len(weight)} outputs; make the checkpoint again"
        )
    return Fp8Linear(weight, scale, quantizes_inputs)


def _owner(llama: LlamaForCausalLM, name: str) -> nn.Module:
    return llama.get_submodule(name.rpartition(".")[0])
