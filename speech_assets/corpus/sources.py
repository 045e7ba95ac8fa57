"""Rows of a corpus from where it lies: parquet of LibriTTS-R's columns, or a folder of audio files.

Whatever is wrong with a whole file (not parquet, a column missing) is an error that names it;
whatever is wrong with one row is left for the `speech` stage to set aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from speech_assets.corpus.catalogue import rows_expected, taken_splits
from speech_assets.corpus.folder import audio_file, csv_rows, folder_rows
from speech_assets.corpus.shards import ARCHIVE_SCHEMA
from speech_assets.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from speech_assets.profiles import Corpus

OPTIONAL_COLUMNS = {"text_original", "speaker_id", "chapter_id", "path", "source", "licence"}
REQUIRED_COLUMNS = ("audio", "id", "text_normalized")
# What a damaged page makes pyarrow raise: its own errors, OSError (a checksum, a codec) or
# ValueError (text that is not UTF-8).
_DAMAGE = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a split: a parquet file or the metadata CSV of a folder."""

    path: Path

    def token(self) -> tuple[str, int, int]:
        """Name, bytes and modification time in nanoseconds: changes when the file does."""
        stat = self.path.stat()
        return self.path.name, stat.st_size, stat.st_mtime_ns


def source_files(corpus: Corpus) -> dict[str, list[SourceFile]]:
    """Files of every split, in order; none of LibriTTS-R, which `libritts.py` fetches.

    Raises:
        ConfigError: the folder, the metadata or the files of a split are missing.
    """
    if corpus.kind == "libritts-r":
        return {split: [] for split in taken_splits(corpus)}
    root = Path(corpus.path)
    if not root.is_dir():
        raise ConfigError(
            f"corpora.{corpus.name}.path {root} is not a folder; give the folder that holds the "
            "corpus"
        )
    if corpus.kind == "folder":
        metadata = root / corpus.metadata
        if not metadata.is_file():
            raise ConfigError(
                f"corpora.{corpus.name}: {metadata} is missing; a folder of audio needs a CSV with "
                "a column of file names and one of texts"
            )
        splits = sorted({row["split"] for row in csv_rows(corpus, metadata)})
        if not splits:
            raise CorpusError(f"{metadata} has no rows; a corpus needs at least one")
        return {split: [SourceFile(metadata)] for split in splits}
    found: dict[str, list[SourceFile]] = {}
    for split, pattern in corpus.splits.items():
        try:
            paths = sorted(path for path in root.glob(pattern) if path.is_file())
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(
                f"corpora.{corpus.name}.splits.{split} is {pattern!r}: {error}; give a pattern of "
                'files within path, such as "train-*.parquet"'
            ) from error
        if not paths:
            raise ConfigError(
                f"corpora.{corpus.name}.splits.{split}: no file in {root} matches {pattern!r}"
            )
        for other, files in found.items():
            if both := sorted({file.path for file in files} & set(paths)):
                raise ConfigError(
                    f"corpora.{corpus.name}.splits: {both[0]} belongs to {other!r} and {split!r};"
                    " give patterns that share no file"
                )
        found[split] = [SourceFile(path) for path in paths]
    return found


def row_count(corpus: Corpus, split: str, files: Sequence[SourceFile]) -> int:
    """Rows of `split`, without reading them; of LibriTTS-R, at most so many.

    Raises:
        CorpusError: a file is not parquet or not a CSV of the expected columns.
    """
    if corpus.kind == "libritts-r":
        return rows_expected(corpus, split)
    if corpus.kind == "folder":
        return sum(row["split"] == split for row in csv_rows(corpus, files[0].path))
    return sum(_open_parquet(file.path).metadata.num_rows for file in files)


def read_ids(corpus: Corpus, split: str, files: Sequence[SourceFile]) -> list[str]:
    """Ids of every row of `split` in file order; a row without one gets `<file>#<row>`.

    Raises:
        CorpusError: a file is not parquet or lacks a column.
    """
    if corpus.kind == "folder":
        return [row["id"] for row in csv_rows(corpus, files[0].path) if row["split"] == split]
    ids: list[str] = []
    for file in files:
        try:
            values = _open_parquet(file.path).read(columns=["id"])["id"].to_pylist()
        except _DAMAGE as error:
            raise CorpusError(
                f"{file.path}: column id is damaged: {str(error).strip()}; fetch the file again"
            ) from error
        place = _place(corpus, file.path)
        ids += [_id(value, place, row) for row, value in enumerate(values)]
    return ids


def audio_tokens(
    corpus: Corpus, split: str, files: Sequence[SourceFile]
) -> list[tuple[str, int, int]]:
    """Token of every audio file of a folder's split, which its CSV's own token says nothing of."""
    if corpus.kind != "folder":
        return []
    root = files[0].path.parent.resolve()
    names = (row["file"] for row in csv_rows(corpus, files[0].path) if row["split"] == split)
    paths = (path for name in names if (path := audio_file(root, name)))
    return [SourceFile(path).token() for path in paths]


def read_rows(corpus: Corpus, split: str, files: Sequence[SourceFile]) -> Iterator[dict[str, Any]]:
    """Rows of `split` in file order, with every column of the archive schema; a few in memory.

    Raises:
        CorpusError: a file is damaged.
    """
    if corpus.kind == "folder":
        yield from folder_rows(corpus, split, files[0].path)
        return
    for file in files:
        parquet = _open_parquet(file.path)
        columns = [name for name in ARCHIVE_SCHEMA.names if name in parquet.schema_arrow.names]
        place = _place(corpus, file.path)
        row = 0
        try:
            for batch in parquet.iter_batches(32, columns=columns):
                for values in batch.to_pylist():
                    yield _archive_row(corpus, values, place, row)
                    row += 1
        except _DAMAGE as error:
            raise CorpusError(
                f"{file.path} is damaged after row {row}: {str(error).strip()}; fetch the file "
                "again"
            ) from error


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        parquet = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(
            f"{path} is not parquet: {str(error).strip()}; fetch the file again"
        ) from error
    schema = parquet.schema_arrow
    missing = [name for name in REQUIRED_COLUMNS if name not in schema.names]
    if missing:
        raise CorpusError(
            f"{path} has no column {', '.join(missing)} (it has {', '.join(schema.names)}); a "
            f"corpus needs {', '.join(REQUIRED_COLUMNS)} and may have "
            f"{', '.join(sorted(OPTIONAL_COLUMNS))}"
        )
    taken = [name for name in schema.names if name in ARCHIVE_SCHEMA.names]
    if twice := sorted({name for name in taken if taken.count(name) > 1}):
        raise CorpusError(f"{path} has column {twice[0]} twice; write the file with each once")
    for name in taken:
        if name != "audio" and not _is_plain(kind := schema.field(name).type):
            raise CorpusError(
                f"{path}: column {name} is {kind}, must be text (or numbers); write it as strings"
            )
    audio = schema.field("audio").type
    at = audio.get_field_index("bytes") if pa.types.is_struct(audio) else -1
    if at < 0 or not (
        pa.types.is_binary(audio[at].type) or pa.types.is_large_binary(audio[at].type)
    ):
        raise CorpusError(
            f"{path}: column audio is {audio}, must be a struct with binary bytes (and path): the "
            "layout of the hub's audio datasets"
        )
    return parquet


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column's values are what Python's `str` makes the same text of."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_null(kind)
    )


def _archive_row(corpus: Corpus, values: dict[str, Any], place: str, row: int) -> dict[str, Any]:
    audio = values["audio"] or {}
    path = _text(values.get("path")) or _text(audio.get("path")) or ""
    normalized, original = _text(values["text_normalized"]), _text(values.get("text_original"))
    return {
        "audio": {"bytes": audio.get("bytes"), "path": path},
        "path": path,
        "id": _id(values["id"], place, row),
        "speaker_id": _text(values.get("speaker_id")) or "",
        "chapter_id": _text(values.get("chapter_id")) or "",
        "text_normalized": normalized,
        "text_original": original or normalized,
        "source": _text(values.get("source")) or corpus.source or corpus.name,
        "licence": _text(values.get("licence")) or corpus.licence,
    }


def _text(value: object) -> str | None:
    """A value as a string, 0 too: speakers are often numbers."""
    return None if value is None else str(value)


def _id(value: object, place: str, row: int) -> str:
    text = _text(value)
    return text if text and text.strip() else f"{place}#{row}"


def _place(corpus: Corpus, path: Path) -> str:
    """Name of a file within its corpus: files of one name may lie in several folders."""
    root = Path(corpus.path)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
