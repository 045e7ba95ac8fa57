"""What is published of LibriTTS-R: its splits, their files, sizes, checksums and counts of rows.

The table is `libritts_r.toml`; every column says where its values were read. What is not known is
None: it is learnt when the source is observed or repacked, and kept in the store (`pins.py`).
"""

from __future__ import annotations

import dataclasses
import json
import re
import reprlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from speech_assets.corpus.shards import is_split_name
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from speech_assets.profiles import Corpus

TABLE = Path(__file__).parent.parent / "libritts_r.toml"

# Least and most. More rows are a typing error: these are some 100,000 hours in one split, and every
# shard is counted whenever the definitions load.
_COUNTS = {
    "size_bytes": (1, 1e15),
    "files": (1, 1e6),
    "rows": (1, 5e7),
    "rows_at_most": (1, 5e7),
}

Origin = Literal["openslr", "hub"]


@dataclass(frozen=True, slots=True)
class ArchivedSplit:
    """A split as OpenSLR publishes it: one tar.gz.

    `rows` are its clips; where that is not known, `rows_at_most` bounds them, by which shards are
    counted before anything is downloaded.
    """

    file: str
    size_bytes: int | None = None
    md5: str | None = None
    rows: int | None = None
    rows_at_most: int | None = None


@dataclass(frozen=True, slots=True)
class HubSplit:
    """A split as the hub publishes it: the parquet files of one folder."""

    folder: str
    files: int | None = None
    rows: int | None = None
    rows_at_most: int | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Both origins; `revision` None means: what branch main is at the first observation."""

    source: str
    licence: str
    url: str
    repository: str
    revision: str | None
    archived: Mapping[str, ArchivedSplit]
    on_hub: Mapping[str, HubSplit]

    def splits(self, origin: Origin) -> Mapping[str, ArchivedSplit] | Mapping[str, HubSplit]:
        """Splits of `origin`, by name."""
        return self.archived if origin == "openslr" else self.on_hub


def corpus_catalogue(corpus: Corpus) -> Catalogue:
    """The catalogue that a corpus row names, or the one that ships.

    Raises:
        ConfigError: it is not what a catalogue must be, or lacks a split that the row takes.
    """
    catalogue = load_catalogue(Path(corpus.catalogue) if corpus.catalogue else TABLE)
    known = catalogue.splits(corpus.origin)
    if not known:
        raise ConfigError(
            f"corpora.{corpus.name}: its catalogue has no split of origin {corpus.origin!r}; name "
            "one, or take the other origin"
        )
    for split in corpus.take:
        if split not in known:
            raise ConfigError(
                f"corpora.{corpus.name}.take has {split!r}, which origin {corpus.origin!r} does not"
                f" have; its splits are {', '.join(known)}"
            )
    return catalogue


def taken_splits(corpus: Corpus) -> list[str]:
    """Splits that a corpus row takes, in the catalogue's order: all, when it names none."""
    known = corpus_catalogue(corpus).splits(corpus.origin)
    return [split for split in known if not corpus.take or split in corpus.take]


def rows_expected(corpus: Corpus, split: str) -> int:
    """Clips of `split`: their number, or its upper bound where the number is not published."""
    entry = corpus_catalogue(corpus).splits(corpus.origin)[split]
    rows = entry.rows or entry.rows_at_most
    assert rows  # `load_catalogue` takes no split without.
    return rows


@cache
def load_catalogue(path: Path) -> Catalogue:
    """The catalogue in a TOML file.

    Raises:
        ConfigError: it is not TOML, a value has another type, or a column does not say its source.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"catalogue {path}: {error.strerror}; give a TOML file") from error
    except ValueError as error:
        raise ConfigError(f"catalogue {path} is not TOML: {error}; correct the file") from error
    except RecursionError as error:
        raise ConfigError(f"catalogue {path} is nested too deep; correct the file") from error
    try:
        openslr, hub = tables["openslr"], tables["hub"]
        catalogue = Catalogue(
            source=tables["source"],
            licence=tables["licence"],
            url=openslr["url"],
            repository=hub["repository"],
            revision=hub.get("revision"),
            archived=_splits(path, "openslr", openslr, ArchivedSplit),
            on_hub=_splits(path, "hub", hub, HubSplit),
        )
        for name in ("source", "licence", "url", "repository", "revision"):
            if not isinstance(value := getattr(catalogue, name), str | None) or value == "":
                raise ConfigError(f"catalogue {path}: {name} is {value!r}; it must be a text")
        revision = catalogue.revision
        if revision is not None and not _is_place(revision):
            raise ConfigError(
                f"catalogue {path}: hub.revision is {reprlib.repr(revision)}; give a commit, branch"
                " or tag"
            )
        for place, table in (("", tables), ("openslr.", openslr), ("hub.", hub)):
            _check_sources(path, place, table)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"catalogue {path} lacks {error}; it has the form of {TABLE.name}, which ships"
        ) from error
    return catalogue


EntryT = TypeVar("EntryT", ArchivedSplit, HubSplit)


def _splits(
    path: Path, origin: str, table: Mapping[str, Any], kind: type[EntryT]
) -> dict[str, EntryT]:
    splits: dict[str, EntryT] = {}
    places: dict[str, str] = {}
    for name, row in table["splits"].items():
        place = f"catalogue {path}: {origin}.splits.{name}"
        try:
            entry = TypeAdapter(kind).validate_json(json.dumps(row, default=str), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                f"{place}.{'.'.join(map(str, first['loc']))} is {first['input']!r}: {first['msg']};"
                " correct it"
            ) from error
        if unknown := row.keys() - set(kind.__slots__):
            raise ConfigError(
                f"{place}.{min(unknown)} is no column; the columns are {', '.join(kind.__slots__)}"
            )
        if not is_split_name(name):
            raise ConfigError(f"{place}: a split's name may hold only letters, digits, '-' and '_'")
        if not (entry.rows or entry.rows_at_most):
            raise ConfigError(
                f"{place} has neither rows nor rows_at_most; shards are counted by one of them"
            )
        for column in kind.__slots__:
            least, most = _COUNTS.get(column, (None, None))
            value = getattr(entry, column)
            if least is not None and value is not None and not least <= value <= most:
                raise ConfigError(
                    f"{place}.{column} is {value}; it must be from {least} to {most:.0e}"
                )
        where = _place(entry)
        if not _is_place(where):
            raise ConfigError(
                f"{place} is at {reprlib.repr(where)}; give a place below its origin, as "
                "train/clean.tar.gz"
            )
        if (other := places.setdefault(where, name)) != name:
            raise ConfigError(f"{place} is at {where!r}, where {other} is; give each its own")
        if isinstance(entry, ArchivedSplit) and entry.md5 is not None:
            if not re.fullmatch(r"[0-9a-f]{32}", md5 := entry.md5.lower()):
                raise ConfigError(f"{place}.md5 is {entry.md5!r}; it must be 32 hex digits")
            entry = dataclasses.replace(entry, md5=md5)
        splits[name] = entry
    return splits


def _place(entry: ArchivedSplit | HubSplit) -> str:
    return entry.file if isinstance(entry, ArchivedSplit) else entry.folder


def _is_place(text: str) -> bool:
    """Whether it is a relative path of plain names, and no more of a URL."""
    return (
        text.isprintable()
        and not set(text) & set("?#:\\")
        and all(part not in ("", ".", "..") and len(part) <= 200 for part in text.split("/"))
    )


def _check_sources(path: Path, place: str, table: Mapping[str, Any]) -> None:
    """Every value must say where it was read: nobody could check it otherwise."""
    columns = {name for name, value in table.items() if not isinstance(value, dict)} - {"from"}
    columns |= {column for row in table.get("splits", {}).values() for column in row}
    said = table.get("from", {})
    if not isinstance(said, dict):
        raise ConfigError(f"catalogue {path}: {place}from is {said!r}; it must be a table of texts")
    for column in sorted(columns):
        if not said.get(column):
            raise ConfigError(
                f"catalogue {path}: {place}from.{column} is missing; say where its values were read"
            )
