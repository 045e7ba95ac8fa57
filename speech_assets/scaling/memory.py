"""Memory of one GPU in training, by what it holds: a prediction, not a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from speech_assets.scaling.training import layer_parameters, parameters

if TYPE_CHECKING:
    from speech_assets.quantize.shapes import LlamaShape
    from speech_assets.scaling.layouts import Cluster, Layout, Pass

WEIGHT_BYTES, GRADIENT_BYTES = 2, 2  # bfloat16.
MASTER_BYTES, MOMENTS_BYTES = 4, 4 + 4  # float32: weights, and Adam's two moments.
STATE_BYTES = WEIGHT_BYTES + GRADIENT_BYTES + MASTER_BYTES + MOMENTS_BYTES
LAYER_BYTES = 34  # Of activations, for each token and number of the hidden state.
INPUT_BYTES = 2  # The same, where only a layer's input is kept.
LOGIT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU: `state` is weights, gradients and the optimizer's."""

    state_bytes: float
    gathered_bytes: float
    activation_bytes: float
    logits_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of it."""
        return self.state_bytes + self.gathered_bytes + self.activation_bytes + self.logits_bytes


def memory_per_gpu(
    shape: LlamaShape,
    layout: Layout,
    cluster: Cluster,
    batch: Pass,
    *,
    tied: bool,
    recompute: bool = False,
) -> Memory:
    """What one GPU holds at the peak of a step.

    State: 16 bytes a parameter, over the GPUs that share it. ZeRO, Rajbhandari et al. 2020 (arXiv
    1910.02054), section 3.1.

    Gathered, under FSDP and HSDP: bfloat16 weights of what is outside the layers (embedding, head)
    and of two layers, the one that computes and the next, and gradients of the largest of these
    before they are reduced. PyTorch FSDP, Zhao et al. 2023 (arXiv 2304.11277).

    Activations: 34 s b h bytes a layer with attention's square not kept, as flash attention does
    not; with `recompute` 2 s b h a layer and one layer's whole. Under TP, with sequence
    parallelism, divided by the GPUs of a group. Korthikanti et al. 2022 (arXiv 2205.05198),
    sections 4.1, 4.2.2 and 5. That is of a GPT's layer; `llama_layer_bytes` says what a Llama's
    has in place of 34. Logits: 4 s b v bytes, section 4.3 there.
    """
    whole = parameters(shape, tied=tied)
    layer = layer_parameters(shape)
    root = whole - shape.layers * layer
    gathered = 0
    if layout in ("FSDP", "HSDP"):
        gathered = WEIGHT_BYTES * (root + 2 * layer) + GRADIENT_BYTES * max(root, layer)
    split = cluster.tensor_degree if layout == "TP" else 1
    numbers = batch.tokens * shape.hidden
    if recompute:
        activations = INPUT_BYTES * numbers * shape.layers + LAYER_BYTES * numbers
    else:
        activations = LAYER_BYTES * numbers * shape.layers
    return Memory(
        state_bytes=STATE_BYTES * whole / cluster.shards(layout),
        gathered_bytes=gathered,
        activation_bytes=activations / split,
        logits_bytes=LOGIT_BYTES * batch.tokens * shape.vocabulary_size / split,
    )


def llama_layer_bytes(shape: LlamaShape) -> float:
    """Bytes for each token and number of the hidden state, of a Llama's layer counted like the 34.

    What each operation keeps for the way back, in bfloat16: inputs and outputs of two norms; q, k,
    v; attention's output; gate, up and their product.
    """
    queries, keys = shape.query_heads * shape.head_size, shape.kv_heads * shape.head_size
    numbers = 4 * shape.hidden + 2 * queries + 2 * keys + 3 * shape.inner
    return INPUT_BYTES * numbers / shape.hidden


Fit = Literal["yes", "with recomputation", "no"]


def fit(kept: Memory, recomputed: Memory, memory_gb: float, reserve: float) -> Fit:
    """Whether a GPU of `memory_gb` (1e9 bytes) holds it, the share `reserve` of it left free."""
    room = memory_gb * 1e9 * (1 - reserve)
    if kept.total_bytes <= room:
        return "yes"
    return "with recomputation" if recomputed.total_bytes <= room else "no"
