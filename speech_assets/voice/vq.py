"""Training of SNAC's quantizers, which the package leaves out: losses, first codes, dead codes.

The package's `VectorQuantize` looks codes up and stops there. `train_quantizers` makes the same
lookup trainable: straight-through gradients, a commitment and a codebook loss, a codebook filled
from the first batch and codes that nobody chose moved to where data is. Only the first `live_codes`
of each codebook are used, which trades bits for codes that a small language model can learn;
`retire_codes` zeroes the rest, so that the package's own lookup (nearest by cosine, zero being
farther than any cosine above 0.5) never chooses them.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from snac import SNAC
from snac.vq import VectorQuantize
from torch import Tensor

COMMITMENT_WEIGHT = 0.25


@dataclass(slots=True)
class QuantizerTraining:
    """Losses of the last forward pass, and what keeps codes alive, of one model's quantizers."""

    live_codes: int
    commitment: list[Tensor] = field(default_factory=list)
    codebook: list[Tensor] = field(default_factory=list)
    quantizers: list[VectorQuantize] = field(default_factory=list)

    def loss(self) -> Tensor:
        """Weighted sum of the last pass' losses, a scalar; the next pass starts new lists."""
        return (
            COMMITMENT_WEIGHT * torch.stack(self.commitment).sum()
            + torch.stack(self.codebook).sum()
        )

    @torch.no_grad()
    def dimensions(self) -> list[float]:
        """By level, how many dimensions the last batch's vectors fill (participation ratio, 1-8).

        Near 1 the codes count steps along one line: entropy looks healthy, speech is lost.
        """
        return [participation(quantizer.latest) for quantizer in self.quantizers]

    @torch.no_grad()
    def revive(self, *, unused_passes: int = 100, most: int = 128) -> int:
        """Move codes unused for `unused_passes` onto vectors of the last batch; how many moved."""
        moved = 0
        for quantizer in self.quantizers:
            dead = (quantizer.age > unused_passes).nonzero()[:most, 0]
            if len(dead):
                rows = quantizer.latest
                pick = torch.randint(len(rows), (len(dead),), device=rows.device)
                quantizer.codebook.weight[dead] = rows[pick]
                quantizer.age[dead] = 0
                moved += len(dead)
        return moved


def participation(rows: Tensor) -> float:
    """(sum of variances)^2 / sum of their squares, over the principal axes of rows (count, dim).

    0 when nothing varies or there are fewer than two rows.
    """
    if len(rows) < 2:
        return 0.0
    covariance = rows.float().T.cov()
    return float(covariance.trace().square() / covariance.square().sum().clamp(min=1e-30))


def train_quantizers(model: SNAC, *, live_codes: int) -> QuantizerTraining:
    """Make the quantizers of `model` trainable in place.

    Raises:
        ValueError: `live_codes` is not within the codebook.
    """
    if not 1 <= live_codes <= model.codebook_size:
        raise ValueError(f"live_codes {live_codes} is outside 1..{model.codebook_size}")
    training = QuantizerTraining(live_codes)
    for quantizer in model.quantizer.quantizers:
        device = quantizer.codebook.weight.device
        quantizer.age = torch.zeros(live_codes, device=device)
        quantizer.latest = torch.zeros(0, quantizer.codebook_dim, device=device)
        quantizer.filled = False
        training.quantizers.append(quantizer)
        quantizer.forward = types.MethodType(_forward(training), quantizer)
    return training


def _forward(training: QuantizerTraining):
    def forward(self: VectorQuantize, z: Tensor) -> tuple[Tensor, Tensor]:
        """Quantized z (batch, dim, latents) and codes (batch, latents / stride), in float32."""
        with torch.autocast(z.device.type, enabled=False):
            z = z.float()
            if self.stride > 1:
                z = F.avg_pool1d(z, self.stride, self.stride)
            encoded = self.in_proj(z)
            batch, dim, _ = encoded.shape
            rows = encoded.transpose(1, 2).reshape(-1, dim)
            book = self.codebook.weight[: training.live_codes]
            if self.training and not self.filled:
                self.filled = True
                with torch.no_grad():
                    pick = torch.randint(len(rows), (len(book),), device=z.device)
                    noise = 0.01 * rows.std() * torch.randn_like(book)
                    self.codebook.weight[: training.live_codes] = rows[pick] + noise
                    self.codebook.weight[training.live_codes :] = 0
                book = self.codebook.weight[: training.live_codes]
            with torch.no_grad():
                index = (F.normalize(rows) @ F.normalize(book).t()).argmax(1)
            chosen = F.embedding(index, book)
            if self.training:
                training.commitment.append(F.mse_loss(rows, chosen.detach()))
                training.codebook.append(F.mse_loss(chosen, rows.detach()))
                with torch.no_grad():
                    self.age += 1
                    self.age.index_fill_(0, index, 0.0)
                    self.latest = rows.detach()
            chosen = rows + (chosen - rows).detach()
            out = self.out_proj(chosen.view(batch, -1, dim).transpose(1, 2))
            if self.stride > 1:
                out = out.repeat_interleave(self.stride, dim=-1)
            return out, index.view(batch, -1)

    return forward


def retire_codes(state: dict[str, Tensor], *, live_codes: int) -> dict[str, Tensor]:
    """`state` (a SNAC state dict) with every codebook row from `live_codes` on set to zero."""
    return {
        name: torch.cat([value[:live_codes], torch.zeros_like(value[live_codes:])])
        if name.endswith("codebook.weight")
        else value
        for name, value in state.items()
    }
