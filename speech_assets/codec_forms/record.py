"""The record of a decode-only codec, `codec.json` beside its weights: made from what, by what.

It is what tells that a codec need not be made again, and to the server whose codes it decodes.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from server.codec_form import RECORD_FILE
from server.errors import WeightsError
from server.files import read_json, sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from server.codec_form import Form

SCHEMA_VERSION = 1
CODE_VERSION = "1"
"""Of what makes the forms: to be raised when the same parent would give other bytes."""
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
_PACKAGES = ("torch", "snac", "safetensors")


@dataclass(frozen=True, slots=True)
class Parent:
    """The whole codec that a form was made of; `location` as it was given."""

    location: str
    name: str
    weights_sha256: str
    config_sha256: str


@dataclass(frozen=True, slots=True)
class CodecRecord:
    """What `codec.json` holds."""

    form: Form
    parent: Parent
    trained: bool
    weights_sha256: str
    weights_bytes: int  # of the weights file
    versions: Mapping[str, str] = field(
        default_factory=lambda: {name: importlib.metadata.version(name) for name in _PACKAGES}
    )
    schema_version: int = SCHEMA_VERSION
    code_version: str = CODE_VERSION

    def as_json(self) -> dict[str, Any]:
        """JSON value."""
        return asdict(self)


def codec_key(form: Form) -> str:
    """The folder of a form in the store."""
    return f"codecs/{form}"


def find_whole(folder: Path, form: Form, parent: Parent) -> dict[str, Any] | None:
    """Record of the codec in `folder`, if it is whole and what would be made of `parent` now.

    Where the parent lies and which versions made it are not looked at: they change no byte.
    """
    try:
        record = read_json(folder / RECORD_FILE)
        held = {name: record["parent"][name] for name in ("weights_sha256", "config_sha256")}
        wanted = (SCHEMA_VERSION, CODE_VERSION, form)
        if tuple(record[n] for n in ("schema_version", "code_version", "form")) != wanted:
            return None
        if held != {name: getattr(parent, name) for name in held}:
            return None
        if sha256_of(folder / CONFIG_FILE) != parent.config_sha256:
            return None
        if sha256_of(folder / WEIGHTS_FILE) != record["weights_sha256"]:
            return None
    except (WeightsError, OSError, KeyError, TypeError):
        return None
    return record
