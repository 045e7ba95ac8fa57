"""How the checkpoint of a preset is made from a base model: the `checkpoint` table of its row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scheme = Literal["bf16", "fp8", "fp8_weight_only", "w4a16", "w4a16_lmhead"]
"""Which weights are made:

- bf16: the base model as it is.
- fp8: weights and activations of 8-bit floats, with scales of each channel and of each token.
- fp8_weight_only: weights alone of 8-bit floats, with scales of each channel.
- w4a16: weights of 4 bits in groups, by GPTQ.
- w4a16_lmhead: those, and the head's, which is then untied from the embedding.
"""

DEFAULT_LIMIT_NATS: dict[Scheme, float] = {
    "bf16": 0.001,  # 0.00023: what rounding to bfloat16 costs by itself.
    "fp8": 0.02,  # 0.0093.
    "fp8_weight_only": 0.02,  # Not measured: as fp8, which rounds activations besides.
    "w4a16": 0.05,  # 0.0426.
    "w4a16_lmhead": 0.05,  # 0.0543, above it: as w4a16, whose head is whole, so it is not served.
}
"""Largest mean KL divergence from the base model, nats a token, that a checkpoint may have. Behind
each is what the embedded voice had, of 32 generations (results/fidelity/amd-epyc/embedded-*)."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One `[presets.NAME.checkpoint]` table.

    Attributes:
        scheme: which weights are made.
        base: the model that it is made from, folder or OWNER/NAME@REVISION; empty is the preset's
            own `model`.
        group_size: weights that share a scale, of 4-bit schemes; it divides a layer's inputs.
        max_mean_kl_nats: limit of the check `fidelity`; None is `DEFAULT_LIMIT_NATS`.
    """

    scheme: Scheme
    base: str = ""
    group_size: int = 128
    max_mean_kl_nats: float | None = None

    @property
    def in_words(self) -> str:
        """What decides which weights come of it: the same words, the same weights."""
        groups = f" in groups of {self.group_size}" if self.scheme.startswith("w4") else ""
        return f"{self.scheme}{groups}" + (f" from {self.base}" if self.base else "")

    @property
    def limit_nats(self) -> float:
        """The limit in force, nats a token."""
        given = self.max_mean_kl_nats
        return DEFAULT_LIMIT_NATS[self.scheme] if given is None else given
