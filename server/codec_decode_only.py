"""Decode-only codecs: a SNAC without its encoder, to tensors of a form and back.

The encoder and the projections into the codebooks are left out; a preset that only speaks never
runs them. See `server.codec_form` for what a form is, and what it does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, cast

import torch
from safetensors.torch import load_file, save
from snac import SNAC
from torch import Tensor, nn
from torch.nn.utils import parametrize

from server.codec_form import SCALE_SUFFIX, Form, FormHeader
from server.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

    from snac.vq import VectorQuantize

_INT8_MAX = 127  # Symmetric: -128 is not used, so that -w is as near to its value as w.
_DTYPES: dict[Form, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int8": torch.float16,  # of what is not int8
}


class NoEncoder(nn.Module):
    """Stands where a decode-only codec has no encoder: whatever asks it for codes is refused."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    @property
    def block(self) -> Never:
        """The encoder's layers, of which there are none (`BatchEncoder` asks for them).

        Raises:
            WeightsError: always.
        """
        self._refuse()

    def forward(self, _audio: Tensor) -> Never:
        """Refuse, as `block` does."""
        self._refuse()

    def _refuse(self) -> Never:
        raise WeightsError(
            f"{self._where}: a decode-only codec has no encoder; encode with the codec that it was "
            "made from"
        )


def pack_codec(model: SNAC, form: Form, *, trained: bool) -> bytes:
    """A safetensors file: what decoding reads of `model`, in `form`.

    Args:
        model: a codec as `server.codec.load_codec` gives it: float32, weight norm folded in.
        trained: False marks random weights.

    Raises:
        WeightsError: a weight is not finite, or too large for the form.
    """
    transposed = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.ConvTranspose1d)
    }
    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if not _is_decoded(name):
            continue
        tensor = value.detach().cpu().float()
        if not torch.isfinite(tensor).all():
            raise WeightsError(f"the codec's {name} is not finite throughout; fetch it again")
        if not name.endswith(".weight"):
            tensors[name] = tensor.contiguous()
        elif form == "int8" and tensor.ndim == 3:
            channels = 1 if name in transposed else 0
            tensors[name], tensors[name + SCALE_SUFFIX] = quantize_channels(tensor, channels)
        else:
            tensors[name] = tensor.to(_DTYPES[form]).contiguous()
            if not torch.isfinite(tensors[name]).all():
                raise WeightsError(
                    f"the codec's {name} reaches {float(tensor.abs().max()):g}, more than form "
                    f"{form} can hold; use bf16"
                )
    return save(tensors, FormHeader(form, trained).metadata())


def quantize_channels(weight: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """int8 values of the shape of `weight`, and float32 scales that broadcast to it.

    Each channel's scale is its largest magnitude / 127, so that nothing is clipped and no value is
    off by more than half a scale. A channel of zeros has scale 1.

    Args:
        weight: float32 of shape (a, b, taps).
        channels: the dimension of output channels: 0, or 1 of a transposed convolution.
    """
    others = [dimension for dimension in range(weight.ndim) if dimension != channels]
    scale = weight.abs().amax(others, keepdim=True) / _INT8_MAX
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    values = (weight / scale).round().clamp(-_INT8_MAX, _INT8_MAX).to(torch.int8)
    return values.contiguous(), scale.contiguous()


def load_decode_only(config: dict[str, Any], path: Path) -> SNAC:
    """The codec of the weights file `path`, on the CPU, in float32, without an encoder.

    Nothing is computed or initialised that the file replaces, and no float32 copy of an encoder is
    ever made.

    Args:
        config: of the codec's config.json.

    Raises:
        WeightsError: the file is damaged, or is not of this config.
    """
    with torch.device("meta"):
        model = SNAC(**config)
    model.add_module("encoder", NoEncoder(str(path.parent)))
    for module in model.quantizer.quantizers:
        del cast("VectorQuantize", module).in_proj
    model = model.eval().requires_grad_(False)
    fold_weight_norm(model)
    try:
        model.load_state_dict(_restored(load_file(path)), assign=True)
    except Exception as error:  # torch and safetensors raise many unrelated types here
        lines = str(error).splitlines() or [type(error).__name__]
        detail = lines[1].strip() if len(lines) > 1 else lines[0]  # torch's first line is a title
        raise WeightsError(
            f"{path}: weights do not load ({detail[:200]}); make the codec's form again, or check "
            "that config.json belongs to these weights"
        ) from error
    return model


def fold_weight_norm(model: SNAC) -> None:
    """Replace each weight's direction and length by the weight itself."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)


def _restored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights in float32: int8 ones multiplied by their scales."""
    return {
        name: tensor.float() * tensors[name + SCALE_SUFFIX]
        if tensor.dtype == torch.int8
        else tensor.float()
        for name, tensor in tensors.items()
        if not name.endswith(SCALE_SUFFIX)
    }


def _is_decoded(name: str) -> bool:
    """Whether decoding reads the tensor called `name`."""
    return not name.startswith("encoder.") and ".in_proj." not in name
