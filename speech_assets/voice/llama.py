"""A Llama small enough to write out: fast to train in CUDA graphs, same weights as transformers'.

Parameter names, rotary positions, norms and grouped queries are those of ``LlamaForCausalLM`` with
a tied head, which `hf_config` describes and a test compares. Training adds dropout; `generate`
samples many prompts at once under the slot rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Widths of the model; heads are 64 wide."""

    vocab_size: int
    hidden: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int = 3
    feed_forward: int = 1024
    max_positions: int = 4096
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def hf_config(self, *, begin: int, end: int, pad: int) -> dict[str, object]:
        """config.json of the same model for transformers and vLLM."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.hidden // self.heads,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "rms_norm_eps": self.norm_eps,
            "initializer_range": 0.02,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "mlp_bias": False,
            "pretraining_tp": 1,
            "tie_word_embeddings": True,
            "use_cache": True,
            "bos_token_id": begin,
            "eos_token_id": end,
            "pad_token_id": pad,
            "dtype": "float16",
        }


class Norm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x (..., width) normed."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Causal attention with rotary positions and grouped key-value heads."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.width = shape.hidden // shape.heads
        self.q_proj = nn.Linear(shape.hidden, shape.heads * self.width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(shape.heads * self.width, shape.hidden, bias=False)

    def forward(
        self,
        x: Tensor,
        rotary: tuple[Tensor, Tensor],
        cache: tuple[Tensor, Tensor] | None = None,
        at: int = 0,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Output for x (batch, steps, hidden); `cache` keeps keys and values from step `at`."""
        batch, steps, _ = x.shape
        q = self.q_proj(x).view(batch, steps, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(batch, steps, self.kv_heads, self.width).transpose(1, 2)
        v = self.v_proj(x).view(batch, steps, self.kv_heads, self.width).transpose(1, 2)
        q, k = rotate(q, rotary), rotate(k, rotary)
        if cache is not None:
            keys, values = cache
            keys[:, :, at : at + steps], values[:, :, at : at + steps] = k, v
            k, v = keys[:, :, : at + steps], values[:, :, : at + steps]
        group = self.heads // self.kv_heads
        k, v = (
            t[:, :, None].expand(-1, -1, group, -1, -1).reshape(batch, self.heads, -1, self.width)
            for t in (k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(y.transpose(1, 2).reshape(batch, steps, -1))


class FeedForward(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down_proj = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., hidden) transformed."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm layer."""

    def __init__(self, shape: LlamaShape, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.input_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], **attention: object) -> Tensor:
        """x (batch, steps, hidden) after this layer."""
        y = self.self_attn(self.input_layernorm(x), rotary, **attention)
        x = x + F.dropout(y, self.dropout, self.training)
        y = self.mlp(self.post_attention_layernorm(x))
        return x + F.dropout(y, self.dropout, self.training)


class Body(nn.Module):
    """Embedding, layers and last norm, under the names of transformers."""

    def __init__(self, shape: LlamaShape, dropout: float) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.norm_eps)


class SmallLlama(nn.Module):
    """The model; its state dict is that of ``LlamaForCausalLM`` without the tied head."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: LlamaShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape, self.dropout = shape, dropout
        self.model = Body(shape, dropout)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)
        width = shape.hidden // shape.heads
        inverse = 1.0 / shape.rope_theta ** (torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(shape.max_positions).float(), inverse)
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states (batch, steps, hidden) of ids (batch, steps), right-padded if need be."""
        x = F.dropout(self.model.embed_tokens(ids), self.dropout, self.training)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        steps = ids.shape[1]
        rotary = (self.cos[:steps].to(x.dtype), self.sin[:steps].to(x.dtype))
        for layer in self.model.layers:
            x = layer(x, rotary)
        return self.model.norm(x)


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """x (batch, heads, steps, width) turned by its positions; rotary broadcasts over it."""
    cos, sin = rotary
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float = 0.6
    top_p: float = 0.9
    seed: int = 0
    max_frames: int = 240


@torch.inference_mode()
def generate(
    model: SmallLlama,
    prompts: list[list[int]],
    sampling: Sampling,
    *,
    audio_base: int,
    codes_per_slot: int,
    end_of_speech: int,
    tokens_per_frame: int = 7,
) -> list[tuple[list[list[int]], bool]]:
    """(codes by frame, whether it ended by itself) of each prompt, under the slot rule.

    Only the codes of the slot that is due can be drawn, plus the end before a frame. Prompts run as
    one batch, padded on the left.
    """
    device = model.cos.device
    weight = model.model.embed_tokens.weight
    shape, count = model.shape, len(prompts)
    longest = max(map(len, prompts))
    total = longest + sampling.max_frames * tokens_per_frame + 1
    ids = torch.zeros(count, longest, dtype=torch.long, device=device)
    pads = torch.tensor([longest - len(p) for p in prompts], device=device)
    for row, prompt in zip(ids, prompts, strict=True):
        row[longest - len(prompt) :] = torch.tensor(prompt, device=device)
    width = shape.hidden // shape.heads
    empty = (count, shape.kv_heads, total, width)
    caches = [
        tuple(torch.zeros(empty, dtype=weight.dtype, device=device) for _ in range(2))
        for _ in range(shape.layers)
    ]
    columns = torch.arange(total, device=device)
    visible = columns[None] >= pads[:, None]

    def run(ids: Tensor, at: int) -> Tensor:
        steps = ids.shape[1]
        position = (at + torch.arange(steps, device=device)[None] - pads[:, None]).clamp(min=0)
        rotary = tuple(t[position][:, None].to(weight.dtype) for t in (model.cos, model.sin))
        causal = columns[None, : at + steps] <= at + torch.arange(steps, device=device)[:, None]
        mask = (visible[:, None, : at + steps] & causal)[:, None]
        mask = mask | (~mask.any(-1, keepdim=True))  # A padding row looks at anything: no NaN.
        x = model.model.embed_tokens(ids)
        for layer, cache in zip(model.model.layers, caches, strict=True):
            x = layer(x, rotary, cache=cache, at=at, mask=mask)
        return model.model.norm(x[:, -1])

    generator = torch.Generator(device=device).manual_seed(sampling.seed)
    hidden = run(ids, 0)
    ended = torch.zeros(count, dtype=torch.bool, device=device)
    lengths = torch.full((count,), sampling.max_frames, device=device)
    drawn: list[Tensor] = []
    stop_row = weight[end_of_speech : end_of_speech + 1]
    for n in range(sampling.max_frames * tokens_per_frame):
        slot = n % tokens_per_frame
        first = audio_base + slot * codes_per_slot
        rows = weight[first : first + codes_per_slot]
        if slot == 0:
            rows = torch.cat([rows, stop_row])
        choice = draw((hidden @ rows.t()).float(), sampling, generator)
        if slot == 0:
            stops = (choice == codes_per_slot) & ~ended
            lengths = torch.where(stops, n // tokens_per_frame, lengths)
            ended |= stops
            if bool(ended.all()):
                break
            choice = choice.clamp(max=codes_per_slot - 1)
        drawn.append(choice)
        hidden = run((choice + first)[:, None], longest + n)
    frames = len(drawn) // tokens_per_frame
    codes = (
        torch.stack(drawn[: frames * tokens_per_frame], 1).view(count, frames, -1).cpu().tolist()
    )
    return [
        (row[: int(n)], bool(e))
        for row, n, e in zip(codes, lengths.cpu(), ended.cpu(), strict=True)
    ]


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """One index a row of logits (batch, choices), from the smallest set that holds `top_p`."""
    if sampling.temperature <= 0:
        return logits.argmax(-1)
    shares, order = torch.softmax(logits / sampling.temperature, -1).sort(-1, descending=True)
    before = shares.cumsum(-1) - shares
    shares = torch.where(before < sampling.top_p, shares, torch.zeros_like(shares))
    pick = torch.multinomial(shares, 1, generator=generator)
    return order.gather(-1, pick)[:, 0]
