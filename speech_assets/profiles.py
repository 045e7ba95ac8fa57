"""Profiles: one row of a table chooses corpus, codec and how the work is run.

The table is `profiles.toml` beside this file; `SPEECH_PROFILES` names a user's file of the same
form whose rows are added to it. `SPEECH_PROFILE` chooses the row (default `embedded`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from server.errors import ConfigurationError
from server.files import PLAIN_NAME, is_plain_name, user_path
from server.presets import DEFAULT_STORE as DEFAULT_STORE
from speech_assets.corpus.catalogue import Origin
from speech_assets.corpus.shards import is_split_name
from speech_assets.errors import ConfigError
from speech_assets.load.levels import check_levels

TABLE = Path(__file__).with_name("profiles.toml")
SHARD_ROWS = 1_000
LONGEST_CLIP_S = 3_600  # 345 MB of float samples in a decoding process.

CorpusKind = Literal["parquet", "folder", "libritts-r"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True, slots=True)
class Corpus:
    """One row of `corpora`: where rows of speech and text come from.

    `parquet`: files of LibriTTS-R's columns; `splits` maps a split to a pattern of file names.
    `folder`: audio files with a CSV of metadata; see `corpus/folder.py` for its columns.
    `libritts-r`: downloaded from `origin`, the splits in `take` (none named: all seven) into the
    folder `path` (default: beside the store). `url` is another address: a mirror of OpenSLR's
    folder, or a hub; `catalogue` is a file of the form of `libritts_r.toml`.
    """

    name: str
    kind: CorpusKind
    path: str = ""
    splits: Mapping[str, str] = field(default_factory=dict[str, str])
    origin: Origin = "openslr"
    take: tuple[str, ...] = ()
    url: str = ""
    catalogue: str = ""
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

    `presets` are the rows of `server/presets.toml` (or SPEECH_PRESETS) that it speaks with.
    `load_levels` are the streams at once that a load test of them tries, ascending.
    `asr` is the Whisper that hears its samples: "tiny.en-package", a name of openai-whisper's or a
    `.pt` file (`asr.transcriber.load_transcriber`).
    `rebenchmark` is how the runs that nobody starts by hand differ from whole ones: of its assets
    (samples, wer, load_tests) the configuration, `rebenchmark.load_tests = { duration_s = 30 }`.
    `gpus_per_run` is what a cluster is asked for, for a run with work for a device (`placement`).
    `batch_samples` bounds the padded samples of one encoder call (None: what suits the device);
    `compile`, `precision` and `kernels` are for CUDA: `kernels` says whether the encoder's fused
    kernels run ("auto": where they were measured, and nothing is compiled).
    """

    name: str
    corpus: Corpus
    codec: CodecChoice
    presets: tuple[str, ...] = ("embedded-bf16",)
    load_levels: tuple[float, ...] = (1, 2, 3, 4, 6, 8)
    asr: str = "tiny.en-package"
    rebenchmark: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus_per_run: int = 0
    batch_samples: int | None = None
    compile: bool = False
    precision: Precision = "fp32"
    kernels: Literal["auto", "torch", "triton"] = "auto"
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
        for table, rows in _read(_path(user, "SPEECH_PROFILES").resolve()).items():
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
    _check_presets(profile.presets, where)
    check_levels(profile.load_levels, f"{where}.load_levels")
    if profile.batch_samples is not None and profile.batch_samples < 0:
        raise ConfigError(f"{where}.batch_samples is {profile.batch_samples}; it must be 0 or more")
    if profile.gpus_per_run < 0:
        raise ConfigError(f"{where}.gpus_per_run is {profile.gpus_per_run}; it must be 0 or more")
    if not 1 <= profile.max_clip_s <= LONGEST_CLIP_S:
        raise ConfigError(
            f"{where}.max_clip_s is {profile.max_clip_s}; it must be 1 to {LONGEST_CLIP_S}"
        )
    return profile


def _check_presets(presets: tuple[str, ...], where: str) -> None:
    """Names only: what a preset holds is the server's to judge, when it starts."""
    for name in presets:
        if not is_plain_name(name) or presets.count(name) > 1:
            raise ConfigError(
                f"{where}.presets has {name!r}; give names of presets, each once, of "
                f"{PLAIN_NAME}: they become partition keys and folder names"
            )


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
    if corpus.url and not corpus.url.startswith(("http://", "https://")):
        raise ConfigError(f"{where}.url is {corpus.url!r}; it must begin with http:// or https://")
    if len(corpus.delimiter) != 1 or corpus.delimiter in '"\r\n\0':
        raise ConfigError(
            f"{where}.delimiter is {corpus.delimiter!r}; it must be one character, such as '|', "
            "and no quote or line end"
        )
    for split in [*corpus.splits, *corpus.take, corpus.split]:
        if not is_split_name(split):
            raise ConfigError(
                f"{where}: split {split!r} may hold only letters, digits, '-' and '_': it becomes "
                "a partition key and a folder name"
            )


def _path(text: str, where: str) -> Path:
    try:
        return user_path(text)
    except ConfigurationError as error:
        raise ConfigError(f"{where} is {error}") from error


def _read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"SPEECH_PROFILES={path}: {error.strerror}; give a TOML file") from error
    except (ValueError, TypeError, RecursionError) as error:  # A number too long, bad UTF-8, too.
        raise ConfigError(f"{path} is not TOML: {error}; correct the file") from error
    for table, rows in tables.items():
        if table not in ("corpora", "codecs", "profiles"):
            raise ConfigError(
                f"{path}: unknown table [{table}]; the tables are corpora, codecs and profiles"
            )
        if not isinstance(rows, dict):
            raise ConfigError(f"{path}: {table} is {rows!r}; it must be a table of rows")
        for name, row in rows.items():
            if not isinstance(row, dict):
                raise ConfigError(f"{path}: {table}.{name} must be a table of settings")
            # A folder is looked up from the file that names it, not from where the command runs.
            asr = row.get("asr")
            if isinstance(asr, str) and asr.endswith(".pt"):
                row["asr"] = str(
                    (path.parent / _path(asr, f"{path}: {table}.{name}.asr")).resolve()
                )
            for key in ("path", "location", "catalogue"):
                value = row.get(key)
                if isinstance(value, str) and value and "://" not in value:
                    folder = path.parent / _path(value, f"{path}: {table}.{name}.{key}")
                    if key != "location" or folder.exists() or value.startswith((".", "/", "~")):
                        row[key] = str(folder.resolve())
    return tables


def _row(
    tables: Mapping[str, Mapping[str, dict[str, Any]]], table: str, name: object, asked_by: str
) -> dict[str, Any]:
    rows = tables.get(table, {})
    if not isinstance(name, str) or name not in rows:
        raise ConfigError(
            f"{asked_by} is {name!r}, which is not a row of {table}; "
            f"the rows are {', '.join(sorted(rows))}"
        )
    return dict(rows[name])


RowT = TypeVar("RowT", Corpus, CodecChoice, Profile)


def _build(
    kind: type[RowT], row: dict[str, Any], where: str, **given: str | Corpus | CodecChoice
) -> RowT:
    settings = {f.name: f for f in dataclasses.fields(kind) if f.name not in given}
    for key in row:
        if key not in settings:
            raise ConfigError(
                f"{where}.{key} is not a setting; the settings are {', '.join(sorted(settings))}"
            )
    given_json = {k: v if isinstance(v, str) else dataclasses.asdict(v) for k, v in given.items()}
    try:
        # Through JSON, so that strict types still take a list for a tuple.
        text = json.dumps({**row, **given_json}, default=str, allow_nan=False)
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([where, *map(str, first["loc"])])
        if first["type"] == "missing":
            raise ConfigError(f"{place} is missing; the row must have it") from error
        raise ConfigError(f"{place} is {first['input']!r}: {first['msg']}; correct it") from error
    except ValueError as error:
        raise ConfigError(f"{where} has a number that is not finite; correct it") from error
