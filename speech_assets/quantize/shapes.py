"""Shapes of Llama models: bytes a decode step reads, and folders of a shape without weights.

The speed of a step does not depend on what the weights are. Of a folder without them an engine
makes random ones (`server.engine_random`), so that every precision of Orpheus 3B is timed where its
weights are not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from server.checkpoint import open_shape
from server.files import read_json
from server.frames import ORPHEUS
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from server.checkpoint import Checkpoint
    from server.engine import EngineFacts
    from server.frames import TokenLayout
    from server.recipe import Scheme

_FP8_SCALE_BYTES = 4  # float32, one a row.
_WEIGHT_BITS: dict[Scheme, int] = {
    "fp8": 8,
    "fp8_weight_only": 8,
    "w4a16": 4,
    "w4a16_lmhead": 4,
}
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a Llama model, as `config.json` has them."""

    vocabulary_size: int
    hidden: int
    inner: int
    layers: int
    query_heads: int
    kv_heads: int
    head_size: int
    max_positions: int = 131_072

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of each matrix of one layer, by its name in a layer."""
        queries, keys = self.query_heads * self.head_size, self.kv_heads * self.head_size
        return {
            "self_attn.q_proj": (queries, self.hidden),
            "self_attn.k_proj": (keys, self.hidden),
            "self_attn.v_proj": (keys, self.hidden),
            "self_attn.o_proj": (self.hidden, queries),
            "mlp.gate_proj": (self.inner, self.hidden),
            "mlp.up_proj": (self.inner, self.hidden),
            "mlp.down_proj": (self.hidden, self.inner),
        }

    def config(self, quantization: Mapping[str, Any] | None, *, tied: bool) -> dict[str, Any]:
        """Its `config.json`, with Orpheus' token ids and Llama 3.2's rotary scaling."""
        rope = {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8_192,
        }
        value: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocabulary_size,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.query_heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size,
            "max_position_embeddings": self.max_positions,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": tied,
            "rope_parameters": rope,
            "bos_token_id": ORPHEUS.begin_of_text,
            "eos_token_id": ORPHEUS.end_of_speech,
            "pad_token_id": 128_263,
            "torch_dtype": "bfloat16",
        }
        return value if quantization is None else {**value, "quantization_config": quantization}


SHAPES = {
    "orpheus-3b": LlamaShape(ORPHEUS.vocabulary_size, 3_072, 8_192, 28, 24, 8, 128),
    # Of the same form, small enough for any machine: a trial of the command, not of a model.
    "orpheus-tiny": LlamaShape(ORPHEUS.vocabulary_size, 128, 256, 2, 2, 1, 64),
}


def shape_of(folder: Path) -> LlamaShape:
    """The shape that the `config.json` in `folder` gives, of a checkpoint that was opened.

    Raises:
        WeightsError: there is no such file.
    """
    config = read_json(folder / "config.json")
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return LlamaShape(
        vocabulary_size=int(config["vocab_size"]),
        hidden=hidden,
        inner=int(config["intermediate_size"]),
        layers=int(config["num_hidden_layers"]),
        query_heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or hidden // heads),
        max_positions=int(config["max_position_embeddings"]),
    )


def named_shape(name: str) -> LlamaShape:
    """The shape of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in SHAPES:
        raise ConfigError(f"no shape {name!r} for --random-weights; there are {', '.join(SHAPES)}")
    return SHAPES[name]


def step_bytes(
    shape: LlamaShape,
    scheme: Scheme,
    group_size: int,
    *,
    head_rows: int,
    value_bytes: int = 2,
    head_value_bytes: int | None = None,
) -> int:
    """Bytes of weights that one decode step of one stream reads.

    All matrices of all layers with their scales, norms, and `head_rows` rows of the head. What is
    not quantized has `value_bytes` a number, the head `head_value_bytes` where that differs. One
    row of the embedding, and keys and values, are left out: the latter are 1 % at 500 tokens of
    Orpheus 3B in bfloat16 (57 MB of 6.6 GB).
    """
    bits = _WEIGHT_BITS.get(scheme, 8 * value_bytes)

    def matrix(rows: int, columns: int, bits: int) -> int:
        values = rows * columns
        scales = 0
        if scheme != "bf16" and bits == 8:
            scales = rows * _FP8_SCALE_BYTES
        elif bits == 4:
            scales = rows * -(-columns // group_size) * value_bytes
        return values * bits // 8 + scales

    body = shape.layers * sum(matrix(*size, bits) for size in shape.matrices.values())
    norms = (2 * shape.layers + 1) * shape.hidden * value_bytes
    if scheme == "w4a16_lmhead":
        head = matrix(head_rows, shape.hidden, 4)
    else:
        head = head_rows * shape.hidden * (head_value_bytes or value_bytes)
    return body + norms + head


def loaded_bytes(
    shape: LlamaShape, scheme: Scheme, group_size: int, *, value_bytes: int, tied: bool
) -> int:
    """Bytes of all weights in memory: those of a step with the whole head, and the embedding.

    A tied head is the embedding.
    """
    step = step_bytes(
        shape, scheme, group_size, head_rows=shape.vocabulary_size, value_bytes=value_bytes
    )
    return step if tied else step + shape.vocabulary_size * shape.hidden * value_bytes


def bytes_read(
    shape: LlamaShape, scheme: Scheme, group_size: int, facts: EngineFacts, layout: TokenLayout
) -> int:
    """Bytes of weights that a decode step of an open engine reads.

    Its head is cut to the rows that can be sampled; on a CPU the audio head multiplies the due
    slot's rows alone, in float32 (`server.engine_model`).
    """
    own_head = facts.head == "audio" and facts.device == "cpu"
    return step_bytes(
        shape,
        scheme,
        group_size,
        head_rows=layout.live_codes if own_head else facts.vocabulary_rows,
        value_bytes=VALUE_BYTES[facts.dtype],
        head_value_bytes=4 if own_head else None,
    )


def write_shape(
    folder: Path, shape: LlamaShape, scheme: Scheme, quantization: Mapping[str, Any] | None
) -> Checkpoint:
    """A checkpoint in `folder` without weights, which an engine runs with random ones.

    `quantization` is what config.json says of them. The layout is Orpheus' own, known by the
    vocabulary.
    """
    tied = scheme != "w4a16_lmhead"
    config = json.dumps(shape.config(quantization, tied=tied), indent=1)
    (folder / "config.json").write_text(config, encoding="utf-8")
    return open_shape(folder)
