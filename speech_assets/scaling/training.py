"""Parameters of a model and the arithmetic of training it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.quantize.shapes import loaded_bytes

if TYPE_CHECKING:
    from speech_assets.quantize.shapes import LlamaShape

_BF16_BYTES = 2
_S_PER_HOUR = 3_600
FLOPS_PER_PARAMETER = 6
"""A token's of a parameter: a product and a sum forward, twice as many backward."""
ATTENTION_FLOPS = 12
"""A token's of a layer, for each number of its queries and each token of the sequence."""


def parameters(shape: LlamaShape, *, tied: bool) -> int:
    """All parameters: matrices, norms, the embedding, and a head that is not tied to it."""
    return loaded_bytes(shape, "bf16", 1, value_bytes=_BF16_BYTES, tied=tied) // _BF16_BYTES


def layer_parameters(shape: LlamaShape) -> int:
    """Parameters of one layer: its matrices and two norms."""
    outside = (shape.vocabulary_size + 1) * shape.hidden  # The embedding, and the last norm.
    return (parameters(shape, tied=True) - outside) // shape.layers


def multiplied_parameters(shape: LlamaShape) -> int:
    """Parameters that every token is multiplied by: all matrices and the head.

    The embedding is looked up and multiplies nothing; norms (0.01 %) are left out.
    """
    return parameters(shape, tied=True) - (2 * shape.layers + 1) * shape.hidden


def training_flops(shape: LlamaShape, tokens: float) -> float:
    """FLOPs of training on `tokens`, without attention: 6 N D.

    Kaplan et al. 2020, arXiv 2001.08361, section 2.1, where N leaves the head out; here it is
    `multiplied_parameters`, which has it.
    """
    return FLOPS_PER_PARAMETER * multiplied_parameters(shape) * tokens


def attention_flops(shape: LlamaShape, tokens: float, sequence_tokens: float) -> float:
    """FLOPs of attention in sequences of `sequence_tokens`, which 6 N D leaves out.

    12 x layers x heads x head size x sequence length a token: PaLM (Chowdhery et al. 2022, arXiv
    2204.02311), appendix B. It counts the whole square; a causal kernel does half of it.
    """
    queries = shape.query_heads * shape.head_size
    return ATTENTION_FLOPS * shape.layers * queries * sequence_tokens * tokens


def gpu_hours(flops: float, peak_tflops: float, mfu: float) -> float:
    """GPU-hours of `flops` on GPUs that do the share `mfu` of `peak_tflops` (1e12 a second)."""
    return flops / (peak_tflops * 1e12 * mfu) / _S_PER_HOUR
