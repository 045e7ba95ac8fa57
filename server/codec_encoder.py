"""Encoding many clips in one call without changing their codes.

SNAC's convolutions are not causal: zero-padding a short clip up to the longest of its batch lets
the padding reach valid latents through biases and changes 3-5 % of the codes (measured,
docs/decisions.md). A lone clip's convolutions see zeros beyond its own end, at every layer. So a
batch of unequal clips is encoded with each clip's activations set to zero beyond its own end before
every convolution that is wider than one sample; a batch of equal clips needs no mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import torch
from snac.layers import EncoderBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

from server import frames
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from server.codec import Codec

Precision = Literal["fp32", "tf32", "bf16", "fp16"]


class BatchEncoder(nn.Module):
    """Codes of a batch of clips, each the same as the clip encoded alone.

    Args:
        codec: the codec, on its device.
        compiled: run the convolution stack through `torch.compile` (fuses the elementwise work
            between convolutions; CUDA only, costs a compilation per process).
        precision: "fp32" is exact; the others are faster and change codes.

    Raises:
        ConfigurationError: the codec has attention (a lone clip's windows cannot be masked), or the
            options do not fit the device.
    """

    def __init__(
        self, codec: Codec, *, compiled: bool = False, precision: Precision = "fp32"
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
        self.codec = codec
        self.precision: Precision = precision
        self._convolve = torch.compile(self._latents, dynamic=True) if compiled else self._latents

    @torch.inference_mode()
    def launch(self, batch: Tensor, frame_counts: Tensor | None) -> list[Tensor]:
        """Start encoding `batch` and return SNAC's levels on the device, without waiting for them.

        Args:
            batch: float32 of shape (clips, 2,048 * frames), on the device, zero beyond each clip.
            frame_counts: int64 of shape (clips,) on the device, or None when all clips fill it.
        """
        autocast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        if self.codec.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
            torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        with torch.autocast(self.codec.device.type, dtype=autocast, enabled=autocast is not None):
            latents = self._convolve(batch[:, None], frame_counts)
        _, levels = self.codec.model.quantizer(latents.float())
        return levels

    def encode(self, clips: Sequence[NDArray[np.float32]]) -> list[NDArray[np.uint16]]:
        """Codes, uint16 of shape (frames, 7), of each clip (float32, 24 kHz, of any lengths)."""
        batch, counts = pad_clips(clips)
        device = self.codec.device
        masked = None if len(set(counts)) == 1 else torch.tensor(counts, device=device)
        levels = self.launch(torch.from_numpy(batch).to(device), masked)
        return split_levels([level.cpu().numpy() for level in levels], counts)

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
