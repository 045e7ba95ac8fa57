"""JSON files of the store that are no results: manifests, and what says which samples exist.

Their form is asked as far as the report reads it: one that is damaged is passed over with the
reason, as a result is.
"""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from speech_assets.errors import ConfigError
from speech_assets.quality.samples import SCHEMA_VERSION as SAMPLES_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST_VERSION = 1
_SHOWN = 80  # Characters of a value that is wrong.


@dataclass(frozen=True, slots=True)
class Sheet:
    """A manifest, or a description of samples, as it stands in the store; `sha256` of its file."""

    key: str
    sha256: str
    value: Mapping[str, Any]


def parse_manifest(data: bytes, where: str) -> dict[str, Any]:
    """The manifest of a split that `data` holds; `where` it was read from.

    Raises:
        ConfigError: it is none.
    """
    return _parse(data, where, _MANIFEST, "materialize manifest of its split again")


def parse_samples(data: bytes, where: str) -> dict[str, Any]:
    """The description of a preset's samples that `data` holds; `where` it was read from.

    Raises:
        ConfigError: it is none.
    """
    return _parse(data, where, _SAMPLES, "materialize samples of its preset again")


def _parse(data: bytes, where: str, form: TypeAdapter[Any], remedy: str) -> dict[str, Any]:
    try:
        form.validate_json(data, strict=True)
        value: dict[str, Any] = json.loads(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            raise ConfigError(f"{where} has no {place}; {remedy}") from error
        shown = f": {place} is {reprlib.repr(first['input'])[:_SHOWN]}" if place else " cannot be"
        raise ConfigError(f"{where}{shown}: {why}; {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON ({error}); {remedy}") from error
    return value


def _version(wanted: int) -> AfterValidator:
    def check(found: int) -> int:
        if found != wanted:
            raise ValueError(f"this version reads {wanted}")
        return found

    return AfterValidator(check)


_Count = Annotated[int, Field(ge=0, le=2**53)]  # As a float it is still exact.
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class _Codec:
    codec: str
    codec_trained: str


@dataclass(frozen=True, slots=True)
class _Totals:
    shards: _Count
    rows: _Count
    audio_hours: _Amount
    tokens: _Count
    tokens_per_hour: _Amount
    speakers: _Count
    quarantined_rows: _Count


@dataclass(frozen=True, slots=True)
class _Shard:
    agreement: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class _Manifest:
    schema_version: Annotated[int, _version(MANIFEST_VERSION)]
    corpus: str
    split: str
    made_with: _Codec
    totals: _Totals
    quarantine: dict[str, _Count]
    shards: list[_Shard]


@dataclass(frozen=True, slots=True)
class _SpokenClip:
    kind: str
    sentence: str
    seed: _Count
    file: Annotated[str, Field(pattern=r"^(samples/[^/\x00]+/[^/\x00]+)?$")]
    seconds: _Amount
    finish_reason: str
    sha256: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Asked:
    sentences: Annotated[int, Field(ge=1)]
    seeds: Annotated[list[_Count], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class _Samples:
    schema_version: Annotated[int, _version(SAMPLES_VERSION)]
    clips: Annotated[list[_SpokenClip], Field(min_length=1)]
    asked: _Asked | None = None


_MANIFEST = TypeAdapter(_Manifest)
_SAMPLES = TypeAdapter(_Samples)
