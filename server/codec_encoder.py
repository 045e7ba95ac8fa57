"""Encoding many clips in one call without changing their codes.

SNAC's convolutions are not causal: zero-padding a short clip up to the longest of its batch lets
the padding reach valid latents through biases and changes 3-5 % of the codes (measured,
docs/decisions.md). A lone clip's convolutions see zeros beyond its own end, at every layer. So a
batch of unequal clips is encoded with each clip's activations set to zero beyond its own end before
every convolution that is wider than one sample; a batch of equal clips needs no mask.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import torch
from snac.layers import EncoderBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

from server import frames
from server.codec import float32_products, use_exact_float32
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from server.codec import Codec
    from server.codec_encoder_fused import FusedEncoder
    from server.codec_encoder_shapes import Product, Shape

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Kernels = Literal["auto", "torch", "triton"]
FP32_PRODUCT: Product = "fp16x3"
"""How fused kernels multiply in fp32: as exact as float32 on tensor cores (docs/decisions.md)."""
WIDE_PRODUCT: Product = "tf32x3"
"""The same for activations beyond float16's 65,504: its range is float32's."""

_LOG = logging.getLogger("server.codec_encoder")
_AUTO_CAPABILITY = (9, 0)  # Of CUDA devices: those that the kernels were measured on, and later.
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_OF_FLOAT16: frozenset[Product] = frozenset({"fp16x3", "half"})
_LOST = -1  # A code of a clip whose activations overflowed.


class BatchEncoder(nn.Module):
    """Codes of a batch of clips, each the same as the clip encoded alone.

    Args:
        codec: the codec, on its device.
        compiled: run the convolution stack through `torch.compile` (fuses the elementwise work
            between convolutions; CUDA only, costs a compilation per process).
        precision: "fp32" is exact; the others are faster and change codes.
        kernels: "torch" runs each layer by PyTorch, "triton" fused kernels (CUDA); "auto" takes
            fused kernels where they were measured and nothing is compiled.
        product: how fused kernels multiply in fp32, `FP32_PRODUCT` where None.
        shapes: tuned shapes of their programs, where there are any.

    Raises:
        ConfigurationError: the codec has attention (a lone clip's windows cannot be masked), or the
            options do not fit the device.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        compiled: bool = False,
        precision: Precision = "fp32",
        kernels: Kernels = "auto",
        product: Product | None = None,
        shapes: Mapping[str, Shape] | None = None,
    ) -> None:
        super().__init__()
        window = cast("int | None", codec.model.attn_window_size)
        if window is not None:
            raise ConfigurationError(
                f"codec {codec.identity.name} has attention windows; batches of it cannot be"
                " masked: use SNAC 24 kHz (attn_window_size null)"
            )
        if codec.device.type == "cpu" and (compiled or precision != "fp32"):
            raise ConfigurationError(
                f"compiled={compiled}, precision={precision} on the CPU: both are for CUDA; "
                "leave them at their defaults"
            )
        if codec.device.type == "cuda":
            use_exact_float32()
        self.codec = codec
        self.precision: Precision = precision
        self._wide: BatchEncoder | None = None
        self.fused = _fused(codec, compiled, precision, kernels, product, shapes)
        self._convolve = torch.compile(self._latents, dynamic=True) if compiled else self._latents

    @torch.inference_mode()
    def launch(self, batch: Tensor, frame_counts: Tensor | None) -> list[Tensor]:
        """Start encoding `batch` and return SNAC's levels on the device, without waiting for them.

        They are for `codes`: a clip whose activations are beyond float16 has codes of -1 there.

        Args:
            batch: float32 of shape (clips, 2,048 * frames), on the device, zero beyond each clip.
            frame_counts: int64 of shape (clips,) on the device, or None when all clips fill it.
        """
        autocast = _HALVES.get(self.precision)
        if self.fused is not None:
            latents = self.fused.latents(batch, frame_counts)
        else:
            kind = self.codec.device.type
            rounded = self.precision == "tf32"
            with (
                float32_products(tf32=True) if rounded else nullcontext(),
                torch.autocast(kind, dtype=autocast, enabled=autocast is not None),
            ):
                latents = self._convolve(batch[:, None], frame_counts)
        _, levels = self.codec.model.quantizer(latents.float())
        if self.fused is None or self.fused.product not in _OF_FLOAT16:
            return levels
        # What overflows becomes infinite and stays so, or not a number, up to the latents.
        lost = ~torch.isfinite(latents).flatten(1).all(1, keepdim=True)
        return [level.masked_fill(lost, _LOST) for level in levels]

    def encode(self, clips: Sequence[NDArray[np.float32]]) -> list[NDArray[np.uint16]]:
        """Codes, uint16 of shape (frames, 7), of each clip (float32, 24 kHz, of any lengths)."""
        batch, counts = pad_clips(clips)
        device = self.codec.device
        masked = None if len(set(counts)) == 1 else torch.tensor(counts, device=device)
        levels = self.launch(torch.from_numpy(batch).to(device), masked)
        return self.codes([level.cpu().numpy() for level in levels], counts, clips.__getitem__)

    def codes(
        self,
        levels: Sequence[NDArray[np.integer]],
        frame_counts: Sequence[int],
        clip_of: Callable[[int], NDArray[np.float32]],
    ) -> list[NDArray[np.uint16]]:
        """Codes (frames, 7) of each clip of a batch, from what `launch` gave of it, on the host.

        A clip that float16 could not hold is asked for by its row and encoded again, alone and as
        wide as float32.
        """
        codes = split_levels(levels, frame_counts)
        for row in np.flatnonzero(levels[0][:, 0] == _LOST).tolist():
            if self._wide is None:
                self._wide = BatchEncoder(self.codec, product=WIDE_PRODUCT)
            [codes[row]] = self._wide.encode([clip_of(row)])
        return codes

    def _latents(self, audio: Tensor, frame_counts: Tensor | None) -> Tensor:
        """Latents (clips, channels, latents) of audio (clips, 1, samples)."""
        mask = None
        if frame_counts is not None:
            positions = torch.arange(audio.shape[-1], device=audio.device)
            ends = frame_counts[:, None] * frames.SAMPLES_PER_FRAME
            mask = (positions[None] < ends)[:, None].to(audio.dtype)
        x = audio
        for layer in self.codec.model.encoder.block:
            if isinstance(layer, EncoderBlock):
                x, mask = _encoder_block(layer, x, mask)
            else:
                x = layer(_masked(x, mask))
        return x


def _fused(
    codec: Codec,
    compiled: bool,
    precision: Precision,
    kernels: Kernels,
    product: Product | None,
    shapes: Mapping[str, Shape] | None,
) -> FusedEncoder | None:
    """The fused encoder that the options mean; None where PyTorch runs the layers.

    Raises:
        ConfigurationError: "triton" is asked for and cannot be.
    """
    on_cuda = codec.device.type == "cuda"
    if kernels == "triton" and (compiled or not on_cuda):
        raise ConfigurationError(
            f"encoder kernels triton: they run on CUDA, not compiled, and not with compiled="
            f"{compiled} on {codec.device.type}; use 'auto' or 'torch'"
        )
    if kernels == "torch" or compiled or not on_cuda:
        return None
    if kernels == "auto" and torch.cuda.get_device_capability(codec.device) < _AUTO_CAPABILITY:
        return None
    dtype = _HALVES.get(precision, torch.float32)
    exact = FP32_PRODUCT if product is None else product
    try:
        from server.codec_encoder_fused import FusedEncoder

        return FusedEncoder(
            codec,
            "half" if precision in _HALVES else "tf32" if precision == "tf32" else exact,
            dtype,
            shapes,
        )
    except (ImportError, ConfigurationError) as error:
        if kernels == "auto":
            _LOG.warning("the encoder runs layer by layer, at a fraction of its speed: %s", error)
            return None
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"encoder kernels triton: {error}; install the GPU environment, or use 'torch'"
        ) from error


def pad_clips(clips: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], list[int]]:
    """Clips as one zero-padded array (clips, 2,048 * longest), and the frames of each."""
    counts = [frames.frame_count(len(clip)) for clip in clips]
    batch = np.zeros((len(clips), max(counts) * frames.SAMPLES_PER_FRAME), np.float32)
    for row, clip in zip(batch, clips, strict=True):
        row[: len(clip)] = clip
    return batch, counts


def split_levels(
    levels: Sequence[NDArray[np.integer]], counts: Sequence[int]
) -> list[NDArray[np.uint16]]:
    """Codes (frames, 7) of each clip of a batch, from SNAC's levels of the whole batch."""
    return [
        frames.slots_from_levels(
            [
                level[row, : count * len(slots)]
                for level, slots in zip(levels, frames.SLOTS_OF_LEVEL, strict=True)
            ]
        )
        for row, count in enumerate(counts)
    ]


def _encoder_block(
    block: EncoderBlock, x: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """`x` through a block, and the mask at the block's lower rate."""
    for layer in block.block:
        if isinstance(layer, ResidualUnit):
            snake_in, wide, snake_out, pointwise = layer.block.children()
            x = x + pointwise(snake_out(wide(_masked(snake_in(x), mask))))
        elif isinstance(layer, Snake1d):
            x = layer(x)
        else:
            x = layer(_masked(x, mask))
            if mask is not None:
                mask = mask[..., :: cast("nn.Conv1d", layer).stride[0]]
    return x, mask


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask.to(x.dtype)
