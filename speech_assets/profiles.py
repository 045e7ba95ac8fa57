"""Profiles: one row of a table chooses corpus, codec and how the work is run.

The table is `profiles.toml` beside this file; `SPEECH_PROFILES` names a user's file of the same form whose
rows are added to it. `SPEECH_PROFILE` chooses the row (default `embedded`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Mapping  # noqa: TC003  (pydantic reads the annotations)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from speech_assets.errors import ConfigError

TABLE = Path(__file__).with_name("profiles.toml")
SHARD_ROWS = 1_000

CorpusKind = Literal["parquet", "folder", "libritts-r"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True, slots=True)
class Corpus:
    """One row of `corpora`: where rows of speech and text come from.

    `parquet`: files of LibriTTS-R's columns; `splits` maps a split to a pattern of file names.
    `folder`: audio files with a CSV of metadata; see `corpus/folder.py` for its columns.
    """

    name: str
    kind: CorpusKind
    path: str = ""
    splits: Mapping[str, str] = field(default_factory=dict[str, str])
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    shard_rows: int = SHARD_ROWS
    metadata: str = "metadata.csv"
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    split: str = "train"
    source: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True)
class CodecChoice:
    """One row of `codecs`: a folder or OWNER/NAME@REVISION, and the hash its weights must have."""

    name: str
    location: str
    weights_sha256: str = ""
    allow_untrained: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """One row of `profiles`, with the corpus and codec that it names.

    `batch_samples` bounds the padded samples of one encoder call (None: what suits the device); `compile`
    and `precision` are for CUDA.
    """

    name: str
    corpus: Corpus
    codec: CodecChoice
    device: Literal["auto", "cpu", "cuda"] = "auto"
    batch_samples: int | None = None
    compile: bool = False
    precision: Precision = "fp32"
    max_clip_s: float = 60.0


def load_profile(environment: Mapping[str, str] | None = None) -> Profile:
    """The profile that the environment chooses.

    Raises:
        ConfigError: a table, row or value is not what it must be.
    """
    environment = os.environ if environment is None else environment
    tables = _read(TABLE)
    user = environment.get("SPEECH_PROFILES", "")
    if user:
        for table, rows in _read(Path(user).expanduser().resolve()).items():
            tables.setdefault(table, {}).update(rows)
    name = environment.get("SPEECH_PROFILE", "") or "embedded"
    row = _row(tables, "profiles", name, "SPEECH_PROFILE")
    where = f"profiles.{name}"
    corpus_name, codec_name = row.pop("corpus", ""), row.pop("codec", "")
    corpus_row = _row(tables, "corpora", corpus_name, f"{where}.corpus")
    corpus = _build(Corpus, corpus_row, f"corpora.{corpus_name}", name=corpus_name)
    codec_row = _row(tables, "codecs", codec_name, f"{where}.codec")
    codec = _build(CodecChoice, codec_row, f"codecs.{codec_name}", name=codec_name)
    _check_corpus(corpus)
    profile = _build(Profile, row, where, name=name, corpus=corpus, codec=codec)
    for value, least, label in (
        (profile.batch_samples or 0, 0, "batch_samples"),
        (profile.max_clip_s, 1, "max_clip_s"),
    ):
        if value < least:
            raise ConfigError(f"{where}.{label} is {value}; it must be at least {least}")
    return profile


def _check_corpus(corpus: Corpus) -> None:
    where = f"corpora.{corpus.name}"
    if not 1 <= corpus.shard_rows <= SHARD_ROWS:
        raise ConfigError(
            f"{where}.shard_rows is {corpus.shard_rows}; a shard holds 1 to {SHARD_ROWS} rows"
        )
    if corpus.kind == "parquet" and not corpus.splits:
        raise ConfigError(
            f"{where}.splits is missing; say which files make a split: "
            'splits = { train = "train-*.parquet" }'
        )
    if corpus.kind != "libritts-r" and not corpus.path:
        raise ConfigError(f"{where}.path is missing; give the folder that holds the corpus")
    if corpus.kind == "folder" and len(corpus.delimiter) != 1:
        raise ConfigError(f"{where}.delimiter is {corpus.delimiter!r}; it must be one character")
    for split in [*corpus.splits, *corpus.rows, corpus.split]:
        if not split or not split.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(
                f"{where}: split {split!r} may hold only letters, digits, '-' and '_': it becomes a "
                "partition key and a folder name"
            )


def _read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"SPEECH_PROFILES={path}: {error.strerror}; give a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    for table, rows in tables.items():
        if table not in ("corpora", "codecs", "profiles"):
            raise ConfigError(
                f"{path}: unknown table [{table}]; the tables are corpora, codecs and profiles"
            )
        for name, row in rows.items():
            if not isinstance(row, dict):
                raise ConfigError(f"{path}: {table}.{name} must be a table of settings")
            # A folder is looked up from the file that names it, not from where the command runs.
            for key in ("path", "location"):
                value = row.get(key)
                if isinstance(value, str) and value and "://" not in value:
                    folder = path.parent / Path(value).expanduser()
                    if key == "path" or folder.exists() or value.startswith((".", "/", "~")):
                        row[key] = str(folder.resolve())
    return tables


def _row(
    tables: Mapping[str, Mapping[str, dict[str, Any]]], table: str, name: str, asked_by: str
) -> dict[str, Any]:
    rows = tables.get(table, {})
    if name not in rows:
        raise ConfigError(
            f"{asked_by} is {name!r}, which is not a row of {table}; "
            f"the rows are {', '.join(sorted(rows))}"
        )
    return dict(rows[name])


RowT = TypeVar("RowT", Corpus, CodecChoice, Profile)


def _build(kind: type[RowT], row: dict[str, Any], where: str, **given: Any) -> RowT:
    settings = {f.name: f for f in dataclasses.fields(kind) if f.name not in given}
    for key in row:
        if key not in settings:
            raise ConfigError(
                f"{where}.{key} is not a setting; the settings are {', '.join(sorted(settings))}"
            )
    given_json = {k: dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v
                  for k, v in given.items()}
    try:
        # Through JSON, so that strict types still take a list for a tuple.
        return TypeAdapter(kind).validate_json(json.dumps({**row, **given_json}), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([where, *map(str, first["loc"])])
        raise ConfigError(f"{place} is {first['input']!r}: {first['msg']}") from error
