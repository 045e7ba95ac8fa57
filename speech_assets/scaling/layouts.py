"""Ways to spread training over GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Layout = Literal["DDP", "FSDP", "HSDP", "TP"]
"""DDP: every GPU has the whole model. FSDP: all GPUs share it (ZeRO-3). HSDP: the GPUs of a node
share it, nodes have copies. TP: GPUs of a node share each matrix, groups of them have copies."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


@dataclass(frozen=True, slots=True)
class Cluster:
    """`gpus` in nodes of `gpus_per_node`; `tensor_degree` of a node share matrices under TP.

    Raises:
        ValueError: nodes are not whole, or a group of TP is not within one.
    """

    gpus: int
    gpus_per_node: int
    tensor_degree: int

    def __post_init__(self) -> None:
        if self.gpus % self.gpus_per_node:
            raise ValueError(f"{self.gpus} GPUs are no whole nodes of {self.gpus_per_node}")
        if self.gpus_per_node % self.tensor_degree:
            raise ValueError(
                f"groups of {self.tensor_degree} do not fill a node of {self.gpus_per_node} GPUs"
            )

    def shards(self, layout: Layout) -> int:
        """Parts that the model's state is cut into."""
        return {
            "DDP": 1,
            "FSDP": self.gpus,
            "HSDP": self.gpus_per_node,
            "TP": self.tensor_degree,
        }[layout]


@dataclass(frozen=True, slots=True)
class Pass:
    """What goes through a model at once: `sequences` of `sequence_tokens`."""

    sequences: int
    sequence_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of the pass."""
        return self.sequences * self.sequence_tokens
