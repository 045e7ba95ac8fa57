"""Forms of decode-only codecs: how the weights lie in a file, and what its header says of them.

A decode-only codec is a folder as any other (config.json, model.safetensors) without an encoder:
quantizer tables, their projections and the decoder, weight norm folded in. A form is the file's
alone: loading gives float32, whatever the form, and the dtype that decodes is the preset's
`codec_dtype`. So a form makes the file smaller and the loading quicker, and nothing else: the time
of decoding is the same in all, and so is a server's memory, whose decoder lets go of the encoder
of a whole codec, too. Measured: the table of docs/checkpoints.md, from results/codec_checkpoint.

Nothing here loads torch, so that who only needs the names of forms need not wait for it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from safetensors import SafetensorError, safe_open

from server.errors import ConfigurationError, WeightsError
from server.files import parse_object, read_json, sha256_of
from server.weights import CODEC_WEIGHTS, codec_weights_file

if TYPE_CHECKING:
    from pathlib import Path

Form = Literal["fp32", "fp16", "bf16", "int8"]
"""fp32, fp16, bf16: weights of convolutions and codebooks as such floats. int8: weights of
convolutions as 8-bit integers with a float32 scale of each output channel, codebooks as fp16.
Biases and Snake's alpha are float32 in all of them: together 0.3 % of the weights."""
FORMS: tuple[Form, ...] = get_args(Form)
RECORD_FILE = "codec.json"
"""What a form was made from, by what; written with its weights."""
SCALE_SUFFIX = "_scale"  # `decoder.model.0.weight` of int8 has `decoder.model.0.weight_scale`.
_METADATA = "speech_codec"  # One key: safetensors writes several in any order.
_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class FormHeader:
    """What a decode-only codec's file says of itself."""

    form: Form
    trained: bool  # False: made of random weights, to measure speed by
    parameter_count: int = 0  # without the scales

    def metadata(self) -> dict[str, str]:
        """Metadata of the safetensors file, by which it is known again."""
        value = {"schema_version": _SCHEMA_VERSION, "form": self.form, "trained": self.trained}
        return {_METADATA: json.dumps(value, sort_keys=True)}


def parse_form(text: str) -> Form:
    """The form called `text`.

    Raises:
        ConfigurationError: there is no such form.
    """
    if text not in FORMS:
        raise ConfigurationError(f"codec form {text!r}: there is none; use {', '.join(FORMS)}")
    return text


def read_form(path: Path) -> FormHeader | None:
    """Header of the weights file `path`; None: it holds a whole codec. No weights are read.

    Raises:
        WeightsError: the file is damaged, or of a form that this version does not know.
    """
    if path.suffix != ".safetensors":
        return None
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(_METADATA)
            names = [name for name in file.keys() if not name.endswith(SCALE_SUFFIX)]  # noqa: SIM118
            count = sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path}: weights do not load ({error}); make or fetch the codec again"
        ) from error
    if text is None:
        return None
    try:
        value = parse_object(text)
        if value["schema_version"] != _SCHEMA_VERSION:
            raise ValueError(f"schema version {value['schema_version']}, not {_SCHEMA_VERSION}")
        return FormHeader(parse_form(value["form"]), bool(value["trained"]), count)
    except (ValueError, KeyError, TypeError, ConfigurationError) as error:
        raise WeightsError(
            f"{path}: not a codec form of this version ({type(error).__name__}: {error}); make it "
            "again"
        ) from error


def origin_sha256(folder: Path) -> str:
    """Of the codec whose codes the one in `folder` decodes, the sha256 of its weights file.

    A whole codec is that codec itself, and a form the one that its record names, if the record is
    of these weights: all forms of a codec decode the same codes to the same sound.

    Raises:
        WeightsError: there are no weights, or the record is none.
    """
    weights = codec_weights_file(folder)
    if weights is None:
        raise WeightsError(
            f"{folder}: no weights file ({' or '.join(CODEC_WEIGHTS)}); give a folder with trained "
            "weights"
        )
    own_sha256 = sha256_of(weights)
    path = folder / RECORD_FILE
    if not path.is_file():
        return own_sha256
    record = read_json(path, remedy="make the codec's form again")
    parent: object = record.get("parent")
    of_parent: object = parent.get("weights_sha256") if isinstance(parent, dict) else None
    if record.get("weights_sha256") != own_sha256 or not isinstance(of_parent, str):
        return own_sha256
    return of_parent
