"""Training of SNAC's quantizers, which the package leaves out: losses, first codes, dead codes.

The package's `VectorQuantize` looks codes up and stops there. `train_quantizers` makes the same
lookup trainable: straight-through gradients, a commitment and a codebook loss, and codes that
nobody chose moved to where data is. Two things keep the vectors from collapsing onto a line, as
they once did: vectors pass unquantized until `fill` has seen what a trained encoder gives, and a
loss asks their directions, which are all that the lookup sees, to spread. Only the first
`live_codes` of each codebook are used, which trades bits for codes that a small language model can
learn; `retire_codes` zeroes the rest, so that the package's own lookup (nearest by cosine, zero
being farther than any cosine above 0.5) never chooses them.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from snac import SNAC
from torch import Tensor

COMMITMENT_WEIGHT = 0.25
SPREAD_WEIGHT = 0.5


@dataclass(slots=True)
class QuantizerTraining:
    """Losses of the last forward pass, and what keeps codes alive, of one model's quantizers."""

    live_codes: int
    quantizing: Tensor  # 1 where vectors are quantized, 0 before; read by captured steps.
    commitment: list[Tensor] = field(default_factory=list[Tensor])
    codebook: list[Tensor] = field(default_factory=list[Tensor])
    spread: list[Tensor] = field(default_factory=list[Tensor])
    # VectorQuantize of the package, each with `age` and `latest` of its training.
    quantizers: list[Any] = field(default_factory=list[Any])

    def clear(self) -> None:
        """Forget the last pass' losses."""
        for losses in (self.commitment, self.codebook, self.spread):
            losses.clear()

    def loss(self) -> Tensor:
        """Weighted sum of the last pass' losses, a scalar."""
        lookup = (
            COMMITMENT_WEIGHT * torch.stack(self.commitment).sum()
            + torch.stack(self.codebook).sum()
        )
        return self.quantizing * lookup + SPREAD_WEIGHT * torch.stack(self.spread).sum()

    @torch.no_grad()
    def fill(self, vectors: list[Tensor]) -> None:
        """Take codes from `vectors` (count, codebook_dim) of each level and begin to quantize."""
        for quantizer, rows in zip(self.quantizers, vectors, strict=True):
            pick = torch.randint(len(rows), (self.live_codes,), device=rows.device)
            picked = rows[pick]
            noise = 0.01 * rows.std() * torch.randn_like(picked)
            quantizer.codebook.weight[: self.live_codes] = picked + noise
            quantizer.codebook.weight[self.live_codes :] = 0
            quantizer.age.zero_()
        self.quantizing.fill_(1.0)

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


def unevenness(rows: Tensor) -> Tensor:
    """How far the directions of rows (count, dim) are from filling all of them: 0 to dim - 1.

    dim * |E[u u']|^2 - 1 over unit vectors u, not centred: 0 when isotropic, dim - 1 when all lie
    along one line through the origin, a narrow cone away from it included.
    """
    unit = F.normalize(rows.float())
    second = unit.T @ unit / len(unit)
    return rows.shape[1] * second.square().sum() - 1


def train_quantizers(model: SNAC, *, live_codes: int) -> QuantizerTraining:
    """Make the quantizers of `model` trainable in place.

    Raises:
        ValueError: `live_codes` is not within the codebook.
    """
    if not 1 <= live_codes <= model.codebook_size:
        raise ValueError(f"live_codes {live_codes} is outside 1..{model.codebook_size}")
    quantizers: list[Any] = list(model.quantizer.quantizers)
    device = quantizers[0].codebook.weight.device
    training = QuantizerTraining(live_codes, torch.zeros((), device=device))
    for quantizer in quantizers:
        quantizer.age = torch.zeros(live_codes, device=device)
        quantizer.latest = torch.zeros(0, quantizer.codebook_dim, device=device)
        training.quantizers.append(quantizer)
        quantizer.forward = types.MethodType(_forward(training), quantizer)
    return training


def _forward(training: QuantizerTraining) -> Callable[[Any, Tensor], tuple[Tensor, Tensor]]:
    def forward(self: Any, z: Tensor) -> tuple[Tensor, Tensor]:
        """Quantized z (batch, dim, latents) and codes (batch, latents / stride), in float32."""
        with torch.autocast(z.device.type, enabled=False):
            z = z.float()
            if self.stride > 1:
                z = F.avg_pool1d(z, self.stride, self.stride)
            encoded = self.in_proj(z)
            batch, dim, _ = encoded.shape
            rows = encoded.transpose(1, 2).reshape(-1, dim)
            book = self.codebook.weight[: training.live_codes]
            with torch.no_grad():
                index = (F.normalize(rows) @ F.normalize(book).t()).argmax(1)
            chosen = F.embedding(index, book)
            if self.training:
                training.commitment.append(F.mse_loss(rows, chosen.detach()))
                training.codebook.append(F.mse_loss(chosen, rows.detach()))
                training.spread.append(unevenness(rows))
                with torch.no_grad():
                    self.age += 1
                    self.age.index_fill_(0, index, 0.0)
                    self.latest = rows.detach()
            chosen = rows + training.quantizing * (chosen - rows).detach()
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
