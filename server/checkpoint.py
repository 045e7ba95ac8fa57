"""A language model's checkpoint: what must be true of its folder before anything runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from server.errors import WeightsError
from server.files import is_plain_name, read_json
from server.frames import TokenLayout, read_layout
from server.packed import plain_folder
from server.tensor_files import StoredTensor, stored_tensors

if TYPE_CHECKING:
    from pathlib import Path

_MODEL_TYPE = "llama"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = "model.safetensors"
_LARGEST = (1 << 31) - 1  # Of a number in config.json.
_MOST_LAYERS = 10_000
FLOATS = ("F32", "F16", "BF16")
"""Dtypes of weights that are not quantized."""
_REMEDY = "copy, download or make the checkpoint again"
_BUFFER = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""What old exports keep beside the weights; nothing loads it."""


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
    untrained: bool = False  # There are no weights: the engine makes random ones of the shape.

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
        layout = read_layout(folder)
        tensors, size = checkpoint_tensors(folder)
        checkpoint = _checkpoint(folder, config, layout, size)
        expected, biases = _expected_shapes(config, checkpoint), _biases(config)
    except KeyError as error:
        raise WeightsError(f"{config_path}: field {error} is missing; {_REMEDY}") from error
    except ValueError as error:
        raise WeightsError(f"{config_path}: {error}; {_REMEDY}") from error
    if checkpoint.vocabulary_size < layout.vocabulary_size:
        raise WeightsError(
            f"{config_path}: vocab_size {checkpoint.vocabulary_size} is smaller than the "
            f"{layout.vocabulary_size} ids of the layout; is layout.json of another checkpoint?"
        )
    _check_shapes(checkpoint, tensors, expected)
    if checkpoint.quantization is None:
        _check_names(checkpoint, tensors, expected, biases)
    return checkpoint


def open_shape(folder: Path) -> Checkpoint:
    """The checkpoint that the config.json in `folder` describes, to be run with random weights.

    Raises:
        WeightsError: config.json or the layout is missing or contradicts itself.
    """
    config_path = folder / "config.json"
    config = read_json(config_path)
    if weights := sorted(folder.glob("*.safetensors")):
        raise WeightsError(
            f"{weights[0]} holds weights, and an untrained preset would serve random ones as them; "
            "set untrained = false, or give a folder without weights"
        )
    try:
        return replace(_checkpoint(folder, config, read_layout(folder), 0), untrained=True)
    except KeyError as error:
        raise WeightsError(f"{config_path}: field {error} is missing; {_REMEDY}") from error
    except ValueError as error:
        raise WeightsError(f"{config_path}: {error}; {_REMEDY}") from error


def _checkpoint(
    folder: Path, config: dict[str, Any], layout: TokenLayout, weights_bytes: int
) -> Checkpoint:
    """What `config` says of a checkpoint.

    Raises:
        KeyError: a field is missing.
        ValueError: a field cannot be what it is.
    """
    heads, hidden = _count(config, "num_attention_heads"), _count(config, "hidden_size")
    kv_heads = (
        heads
        if config.get("num_key_value_heads") is None
        else (_count(config, "num_key_value_heads"))
    )
    if heads % kv_heads:
        raise ValueError(
            f"num_key_value_heads {kv_heads} does not divide num_attention_heads {heads}"
        )
    if config.get("head_dim") is not None:
        head_size = _count(config, "head_dim")
    elif hidden % heads:
        raise ValueError(f"num_attention_heads {heads} does not divide hidden_size {hidden}")
    else:
        head_size = hidden // heads
    epsilon: object = config.get("rms_norm_eps", 1e-6)
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < 1:
        raise ValueError(f"rms_norm_eps is {epsilon!r}; it must be a number between 0 and 1")
    quantization: object = config.get("quantization_config")
    method: object = None
    if quantization is not None:
        method = (
            cast("dict[str, Any]", quantization).get("quant_method")
            if isinstance(quantization, dict)
            else quantization
        )
        if not isinstance(method, str) or not isinstance(quantization, dict):
            raise ValueError(f"quantization_config names no quant_method but {method!r}")
    return Checkpoint(
        folder=folder,
        layout=layout,
        vocabulary_size=_count(config, "vocab_size"),
        max_positions=_count(config, "max_position_embeddings"),
        layers=_count(config, "num_hidden_layers", most=_MOST_LAYERS),
        kv_heads=kv_heads,
        head_size=head_size,
        quantization=method,
        weights_bytes=weights_bytes,
        tied_head=_switch(config, "tie_word_embeddings"),
    )


def _count(config: dict[str, Any], name: str, *, most: int = _LARGEST) -> int:
    value: object = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from 1 to {most}")
    return value


def _switch(config: dict[str, Any], name: str) -> bool:
    value: object = config.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it must be true or false")
    return value


def _biases(config: dict[str, Any]) -> tuple[str, ...]:
    """Parts of a layer that have a bias."""
    attention = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    inner = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    return attention * _switch(config, "attention_bias") + inner * _switch(config, "mlp_bias")


def _expected_shapes(config: dict[str, Any], checkpoint: Checkpoint) -> dict[str, list[int]]:
    """Shape of each plain weight that a Llama of this configuration has."""
    hidden, inner = _count(config, "hidden_size"), _count(config, "intermediate_size")
    queries = _count(config, "num_attention_heads") * checkpoint.head_size
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
    checkpoint: Checkpoint, tensors: dict[str, StoredTensor], expected: dict[str, list[int]]
) -> None:
    """Refuse weights that are not those of config.json: vLLM loads the part that fits, unasked."""
    quantized = {name.rpartition(".")[0] for name in tensors}  # Under names other than `weight`.
    for part, shape in expected.items():
        name = f"{part}.weight"
        if name in tensors and list(tensors[name].shape) != shape:
            raise WeightsError(
                f"{checkpoint.folder}: {name} has shape {list(tensors[name].shape)}, config.json "
                f"says {shape}; the files are of different checkpoints, or one is damaged"
            )
        if name not in tensors and (checkpoint.quantization is None or part not in quantized):
            raise WeightsError(
                f"{checkpoint.folder}: {name} is missing; the checkpoint is incomplete, {_REMEDY}"
            )


def _check_names(
    checkpoint: Checkpoint,
    tensors: dict[str, StoredTensor],
    expected: dict[str, list[int]],
    biases: tuple[str, ...],
) -> None:
    """Refuse tensors that a Llama of this config.json does not have: they are another model's.

    A head beside a tied embedding may be there; it is not loaded.
    """
    known = {f"{part}.weight" for part in expected} | {"lm_head.weight"}
    known |= {f"model.layers.{n}.{part}.bias" for n in range(checkpoint.layers) for part in biases}
    for name, tensor in tensors.items():
        if name not in known and not _BUFFER.fullmatch(name):
            raise WeightsError(
                f"{checkpoint.folder}: {name} is no tensor of the model that config.json "
                f"describes; the files are of different checkpoints, {_REMEDY}"
            )
        if name in known and tensor.dtype not in FLOATS:
            raise WeightsError(
                f"{checkpoint.folder}: {name} is {tensor.dtype}, and config.json has no "
                f"quantization_config; weights are {', '.join(FLOATS)}, {_REMEDY}"
            )
    head = tensors.get("lm_head.weight")
    if head is not None and head.shape != tensors["model.embed_tokens.weight"].shape:
        raise WeightsError(
            f"{checkpoint.folder}: lm_head.weight has shape {list(head.shape)}, another one than "
            f"the embedding; the files are of different checkpoints, {_REMEDY}"
        )


def checkpoint_files(folder: Path) -> list[Path]:
    """The weights files of the plain checkpoint in `folder`: those of its index, or the one.

    Raises:
        WeightsError: the index is none, or a file is missing.
    """
    index = folder / _INDEX
    names = [_WEIGHTS]
    if index.is_file():
        held: object = read_json(index).get("weight_map")
        files = list(cast("dict[str, object]", held).values()) if isinstance(held, dict) else []
        plain = {name for name in files if isinstance(name, str) and is_plain_name(name)}
        if not files or any(not isinstance(name, str) or name not in plain for name in files):
            raise WeightsError(
                f"{index}: weight_map gives no tensors' files by plain names; {_REMEDY}"
            )
        names = sorted(plain)
    for name in names:
        if not (folder / name).is_file():
            raise WeightsError(
                f"{folder / name}: no such file; the checkpoint is incomplete, {_REMEDY}"
            )
    return [folder / name for name in names]


def checkpoint_tensors(folder: Path) -> tuple[dict[str, StoredTensor], int]:
    """Each tensor of a plain checkpoint by name, and the bytes of all weights files.

    Raises:
        WeightsError: a file is missing or damaged, or two have a tensor of one name.
    """
    tensors: dict[str, StoredTensor] = {}
    size = 0
    for path in checkpoint_files(folder):
        found = stored_tensors(path)
        if twice := sorted(tensors.keys() & found.keys()):
            raise WeightsError(
                f"{path}: {twice[0]} is in another file, too; the files are of different "
                f"checkpoints, {_REMEDY}"
            )
        tensors |= found
        size += path.stat().st_size
    return tensors, size
