"""Bytes that one GPU sends in one step of training, by ring algorithms: a prediction.

A ring of n members that reduces M bytes to all of them has each send 2 M (n - 1) / n; one that
gathers, or reduces and scatters, M (n - 1) / n. ZeRO, Rajbhandari et al. 2020 (arXiv 1910.02054),
section 7, which counts the same in the limit of many members.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.scaling.memory import GRADIENT_BYTES, WEIGHT_BYTES
from speech_assets.scaling.training import parameters

if TYPE_CHECKING:
    from speech_assets.quantize.shapes import LlamaShape
    from speech_assets.scaling.layouts import Cluster, Layout, Pass

_ACTIVATION_BYTES = 2
_REDUCTIONS_A_LAYER = 4  # After attention and after the MLP, forward; before each, backward.


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a GPU sends within its node, and to other nodes."""

    in_node_bytes: float
    between_nodes_bytes: float

    def seconds(self, node_gb_per_s: float, network_gb_per_s: float) -> float:
        """How long they take at these rates (1e9 bytes a second), one after the other."""
        return self.in_node_bytes / (node_gb_per_s * 1e9) + self.between_nodes_bytes / (
            network_gb_per_s * 1e9
        )


def all_reduce_bytes(size_bytes: float, members: int) -> float:
    """Bytes that each member of a ring sends to add up `size_bytes` for all."""
    return 2 * gather_bytes(size_bytes, members)


def gather_bytes(size_bytes: float, members: int) -> float:
    """Bytes that each sends to gather `size_bytes` from all, or to reduce and scatter them."""
    return size_bytes * (members - 1) / members


def traffic_per_step(
    shape: LlamaShape, layout: Layout, cluster: Cluster, batch: Pass, *, tied: bool
) -> Traffic:
    """What one GPU sends in a step of one pass, gradients in bfloat16.

    DDP adds up the gradients of all. FSDP gathers weights forward and backward, and reduces and
    scatters gradients. HSDP does that within a node and adds up each GPU's part between nodes. TP
    adds up activations within a group, four times a layer (Megatron-LM, Shoeybi et al. 2019, arXiv
    1909.08053, section 3; embedding and head left out), and gradients between groups. A ring over
    several nodes goes at the rate of the network.
    """
    whole = parameters(shape, tied=tied)
    weights, gradients = WEIGHT_BYTES * whole, GRADIENT_BYTES * whole

    def shared(members: int) -> float:
        return 2 * gather_bytes(weights, members) + gather_bytes(gradients, members)

    in_node = between = 0.0
    match layout:
        case "DDP":
            between = all_reduce_bytes(gradients, cluster.gpus)
        case "FSDP":
            between = shared(cluster.gpus)
        case "HSDP":
            in_node = shared(cluster.gpus_per_node)
            copies = cluster.gpus // cluster.gpus_per_node
            between = all_reduce_bytes(gradients / cluster.gpus_per_node, copies)
        case "TP":
            numbers = batch.tokens * shape.hidden
            reductions = _REDUCTIONS_A_LAYER * shape.layers
            in_node = reductions * all_reduce_bytes(
                _ACTIVATION_BYTES * numbers, cluster.tensor_degree
            )
            groups = cluster.gpus // cluster.tensor_degree
            between = all_reduce_bytes(gradients / cluster.tensor_degree, groups)
    if cluster.gpus == cluster.gpus_per_node:
        return Traffic(in_node + between, 0.0)
    return Traffic(in_node, between)
