"""A language model's checkpoint: what must be true of its folder before anything runs."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from server.errors import WeightsError
from server.frames import TokenLayout, read_json, read_layout
from server.packed import plain_folder

if TYPE_CHECKING:
    from pathlib import Path

_MODEL_TYPE = "llama"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = "model.safetensors"
_LONGEST_HEADER = 100_000_000  # The format's own limit, bytes.


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that vLLM can load: its layout, and the numbers of its `config.json`."""

    folder: Path
    layout: TokenLayout
    vocabulary_size: int  # Rows of the embedding, padding included.
    max_positions: int
    layers: int
    kv_heads: int
    head_size: int
    quantization: str | None  # Method of config.json's quantization_config.
    weights_bytes: int
    tied_head: bool = True

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """Bytes of keys and values that one token takes in the cache."""
        return 2 * self.layers * self.kv_heads * self.head_size * bytes_per_value


def open_checkpoint(folder: Path, *, cache: Path | None = None) -> Checkpoint:
    """Check the checkpoint in `folder`: config.json, weights whole, layout within the vocabulary.

    Packed weights are expanded first (`packed.plain_folder`, into `cache`); of others only headers
    are read. The checkpoint's own folder is then the one that can be loaded.

    Raises:
        WeightsError: something is missing, cut short or contradicts another file.
    """
    if not folder.is_dir():
        raise WeightsError(f"{folder}: no such folder; give one that holds a checkpoint")
    folder = plain_folder(folder, cache)
    config_path = folder / "config.json"
    config = read_json(config_path)
    if config.get("model_type") != _MODEL_TYPE:
        raise WeightsError(
            f"{config_path}: model_type {config.get('model_type')!r} is not {_MODEL_TYPE!r}; only "
            "LlamaForCausalLM is served"
        )
    try:
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        vocabulary_size = int(config["vocab_size"])
        quantization: dict[str, Any] | None = config.get("quantization_config")
        layout = read_layout(folder)
        shapes, size = _tensor_shapes(folder)
        checkpoint = Checkpoint(
            folder=folder,
            layout=layout,
            vocabulary_size=vocabulary_size,
            max_positions=int(config["max_position_embeddings"]),
            layers=int(config["num_hidden_layers"]),
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden // heads),
            quantization=None if quantization is None else str(quantization["quant_method"]),
            weights_bytes=size,
            tied_head=bool(config.get("tie_word_embeddings", False)),
        )
        expected = _expected_shapes(config, checkpoint)
    except KeyError as error:
        raise WeightsError(f"{config_path}: field {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise WeightsError(f"{config_path}: {error}") from error
    if vocabulary_size < layout.vocabulary_size:
        raise WeightsError(
            f"{config_path}: vocab_size {vocabulary_size} is smaller than the "
            f"{layout.vocabulary_size} ids of the layout; is layout.json of another checkpoint?"
        )
    _check_shapes(folder, shapes, expected)
    return checkpoint


def _expected_shapes(config: dict[str, Any], checkpoint: Checkpoint) -> dict[str, list[int]]:
    """Shape of each plain weight that a Llama of this configuration has."""
    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    queries = int(config["num_attention_heads"]) * checkpoint.head_size
    keys = checkpoint.kv_heads * checkpoint.head_size
    of_layer = {
        "input_layernorm": [hidden],
        "self_attn.q_proj": [queries, hidden],
        "self_attn.k_proj": [keys, hidden],
        "self_attn.v_proj": [keys, hidden],
        "self_attn.o_proj": [hidden, queries],
        "post_attention_layernorm": [hidden],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
    }
    layers = {
        f"model.layers.{layer}.{part}": shape
        for layer in range(checkpoint.layers)
        for part, shape in of_layer.items()
    }
    head = {} if checkpoint.tied_head else {"lm_head": [checkpoint.vocabulary_size, hidden]}
    embedding = {"model.embed_tokens": [checkpoint.vocabulary_size, hidden]}
    return {**embedding, **layers, "model.norm": [hidden], **head}


def _check_shapes(
    folder: Path, shapes: dict[str, list[int]], expected: dict[str, list[int]]
) -> None:
    """Refuse weights that are not those of config.json: vLLM loads the part that fits, unasked."""
    quantized = {name.rpartition(".")[0] for name in shapes}  # Under names other than `weight`.
    for part, shape in expected.items():
        name = f"{part}.weight"
        if name in shapes and shapes[name] != shape:
            raise WeightsError(
                f"{folder}: {name} has shape {shapes[name]}, config.json says {shape}; the files "
                "are of different checkpoints"
            )
        if part not in quantized:
            raise WeightsError(f"{folder}: {name} is missing; the checkpoint is incomplete")


def _tensor_shapes(folder: Path) -> tuple[dict[str, list[int]], int]:
    """Shape of each tensor by name, and the bytes of all weights files, each of its full length."""
    if (folder / _INDEX).is_file():
        names = sorted(set(read_json(folder / _INDEX)["weight_map"].values()))
    else:
        names = [_WEIGHTS]
    shapes: dict[str, list[int]] = {}
    size = 0
    for name in names:
        path = folder / name
        if not path.is_file():
            raise WeightsError(f"{path}: no such file; the checkpoint is incomplete")
        header, start = read_header(path)
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        length, expected = path.stat().st_size, start + max(ends, default=0)
        if length != expected:
            raise WeightsError(
                f"{path}: {length} bytes, its header says {expected}; the file is cut short or "
                "damaged, copy or download it again"
            )
        size += length
        shapes |= {key: value["shape"] for key, value in header.items() if key != "__metadata__"}
    return shapes, size


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file and where its data start, in bytes.

    Raises:
        WeightsError: it is damaged, or the file is none.
    """
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else _LONGEST_HEADER
        if length >= _LONGEST_HEADER:
            raise WeightsError(f"{path}: not a safetensors file; copy or download it again")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise WeightsError(
                f"{path}: the header is damaged ({error}); copy or download the file again"
            ) from error
    entries = header.items() if isinstance(header, dict) else [("header", None)]
    for name, entry in entries:
        whole = isinstance(entry, dict) and {"shape", "data_offsets"} <= entry.keys()
        if not whole and name != "__metadata__":
            raise WeightsError(
                f"{path}: the header is damaged at {name!r}; copy or download the file again"
            )
    return cast("dict[str, Any]", header), 8 + length
