"""What makes a decode step cheaper on a CPU: the layers kernel by kernel, and rows by slot.

A step of one stream is bound by the bytes of the weights and by Python, not by arithmetic: between
vLLM's kernels lie modules, dispatch of custom operations and lookups, some forty a layer. Here a
layer is its kernels and nothing else. Weights, kernels, keys and values stay vLLM's, and a model
with anything that is not written here keeps vLLM's own forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

from server.frames import TOKENS_PER_FRAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_KERNELS = ("rms_norm", "fused_add_rms_norm", "silu_and_mul", "rotary_embedding")


def slot_heads(weight: Tensor, codes: int) -> list[Callable[[Tensor], Tensor]]:
    """For each slot, float32 hidden states (n, hidden) to logits (n, codes), from packed rows."""
    heads: list[Callable[[Tensor], Tensor]] = []
    for slot in range(TOKENS_PER_FRAME):
        holder = nn.Module()
        rows = weight[slot * codes : (slot + 1) * codes]
        holder.weight = nn.Parameter(rows, requires_grad=False)
        dispatch_cpu_unquantized_gemm(holder, remove_weight=False)
        heads.append(_unquantized(holder, None))
    return heads


def body_of(model: Any) -> Body | None:
    """The layers of vLLM's `LlamaModel`, its weights loaded; None if they are not as known here."""
    kernels = torch.ops._C  # Where vLLM registers its kernels.
    if not all(hasattr(kernels, name) for name in _KERNELS):
        return None
    if not all(_is_usual(layer) for layer in model.layers) or not _is_plain(model.norm):
        return None
    return Body(model)


def _is_usual(layer: Any) -> bool:
    attention = layer.self_attn
    return (
        _is_plain(layer.input_layernorm)
        and _is_plain(layer.post_attention_layernorm)
        and type(layer.mlp.act_fn) is SiluAndMul
        and type(attention.attn) is Attention
        and hasattr(attention.attn.impl, "do_kv_cache_update")
        and attention.attn.query_quant is None
        and attention.attn.kv_sharing_target_layer_name is None
        # Scaled forms that only have another table are it too.
        and type(attention.rotary_emb).forward_cuda is RotaryEmbedding.forward_cuda
    )


def _is_plain(norm: Any) -> bool:
    return type(norm) is RMSNorm and norm.variance_size_override is None


class Body:
    """Callable as `LlamaModel`: token ids and positions (tokens,) to hidden states."""

    def __init__(self, model: Any) -> None:
        self._embedding: Tensor = model.embed_tokens.weight.data
        self._layers = [_Layer(layer) for layer in model.layers]
        self._norm: Tensor = model.norm.weight.data
        self._epsilon: float = model.norm.variance_epsilon

    def __call__(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Hidden states (tokens, hidden) after the last norm."""
        kernels = torch.ops._C
        context = get_forward_context()
        residual = F.embedding(input_ids, self._embedding)
        branch: Tensor | None = None
        for layer in self._layers:
            branch = layer(kernels, context, positions, branch, residual)
        if branch is None:
            branch = torch.zeros_like(residual)
        kernels.fused_add_rms_norm(branch, residual, self._norm, self._epsilon)
        return branch


class _Layer:
    """One decoder layer. `residual` is added to in place; what is to be added next comes back."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._first_norm: Tensor = layer.input_layernorm.weight.data
        self._first_epsilon: float = layer.input_layernorm.variance_epsilon
        self._second_norm: Tensor = layer.post_attention_layernorm.weight.data
        self._second_epsilon: float = layer.post_attention_layernorm.variance_epsilon
        self._qkv, self._out = _linear(attention.qkv_proj), _linear(attention.o_proj)
        self._gate_up, self._down = _linear(mlp.gate_up_proj), _linear(mlp.down_proj)
        self._rotary: Any = attention.rotary_emb
        self._attention: Any = attention.attn
        self._name: str = attention.attn.layer_name
        self._q_end: int = attention.q_size
        self._k_end: int = attention.q_size + attention.kv_size
        self._head_size: int = attention.head_dim

    def __call__(
        self,
        kernels: Any,
        context: Any,
        positions: Tensor,
        branch: Tensor | None,
        residual: Tensor,
    ) -> Tensor:
        if branch is None:
            normed = torch.empty_like(residual)
            kernels.rms_norm(normed, residual, self._first_norm, self._first_epsilon)
        else:
            kernels.fused_add_rms_norm(branch, residual, self._first_norm, self._first_epsilon)
            normed = branch
        mixed = self._out(self._attend(kernels, context, positions, self._qkv(normed)))
        kernels.fused_add_rms_norm(mixed, residual, self._second_norm, self._second_epsilon)
        gate_up = self._gate_up(mixed)
        act = gate_up.new_empty((gate_up.shape[0], gate_up.shape[1] // 2))
        kernels.silu_and_mul(act, gate_up)
        return self._down(act)

    def _attend(self, kernels: Any, context: Any, positions: Tensor, qkv: Tensor) -> Tensor:
        count, size, attention = qkv.shape[0], self._head_size, self._attention
        q, k = qkv[:, : self._q_end], qkv[:, self._q_end : self._k_end]
        table = self._rotary._match_cos_sin_cache_dtype(q)
        kernels.rotary_embedding(positions, q, k, size, table, self._rotary.is_neox_style)
        heads = qkv.view(count, -1, size)
        q_heads, k_heads = self._q_end // size, self._k_end // size
        query, key, value = heads.tensor_split((q_heads, k_heads), 1)
        output = qkv.new_empty((count, q_heads, size))
        metadata = context.attn_metadata
        if metadata is None:  # vLLM's own warm-up.
            return output.zero_().view(count, -1)
        cache, impl = attention.kv_cache, attention.impl
        impl.do_kv_cache_update(attention, key, value, cache, context.slot_mapping[self._name])
        impl.forward(attention, query, key, value, cache, metadata[self._name], output)
        return output.view(count, -1)


def _linear(module: Any) -> Callable[[Tensor], Tensor]:
    """A linear layer of vLLM without what it does for several devices."""
    method, bias = module.quant_method, module.bias
    if type(method) is UnquantizedLinearMethod and hasattr(module, "cpu_linear"):
        return _unquantized(module, bias)
    return lambda x: method.apply(module, x, bias)


def _unquantized(module: Any, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    multiply, weight = module.cpu_linear, module.weight
    return lambda x: multiply(x, weight, bias)
