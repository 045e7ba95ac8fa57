"""Rows of a corpus from where it lies: parquet of LibriTTS-R's columns, or a folder of audio files.

Whatever is wrong with a whole file (not parquet, a column missing) is an error that names it; whatever is
wrong with one row is left for the `speech` stage to set aside.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from speech_assets.corpus.shards import ARCHIVE_SCHEMA
from speech_assets.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speech_assets.profiles import Corpus

OPTIONAL_COLUMNS = {"text_original", "speaker_id", "chapter_id", "path", "source", "licence"}
REQUIRED_COLUMNS = ("audio", "id", "text_normalized")
_FILE_COLUMNS = ("file_name", "file", "path", "audio", "id")
_TEXT_COLUMNS = ("text_normalized", "text", "transcription", "transcript", "sentence")
_SUFFIXES = ("", ".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a split: a parquet file or the metadata CSV of a folder."""

    path: Path
    split: str

    def token(self) -> tuple[str, int, int]:
        """Name, bytes and modification time in nanoseconds: changes when the file does."""
        stat = self.path.stat()
        return self.path.name, stat.st_size, stat.st_mtime_ns


def source_files(corpus: Corpus) -> dict[str, list[SourceFile]]:
    """Files of every split, in order.

    Raises:
        ConfigError: the folder, the metadata or the files of a split are missing.
    """
    if corpus.kind == "libritts-r":
        return {split: [] for split in corpus.rows}
    root = Path(corpus.path)
    if not root.is_dir():
        raise ConfigError(
            f"corpora.{corpus.name}.path {root} is not a folder; give the folder that holds the corpus"
        )
    if corpus.kind == "folder":
        metadata = root / corpus.metadata
        if not metadata.is_file():
            raise ConfigError(
                f"corpora.{corpus.name}: {metadata} is missing; a folder of audio needs a CSV with a "
                "column of file names and one of texts"
            )
        splits = sorted({row["split"] for row in _csv_rows(corpus, metadata)})
        return {split: [SourceFile(metadata, split)] for split in splits}
    found: dict[str, list[SourceFile]] = {}
    for split, pattern in corpus.splits.items():
        paths = sorted(root.glob(pattern))
        if not paths:
            raise ConfigError(
                f"corpora.{corpus.name}.splits.{split}: no file in {root} matches {pattern!r}"
            )
        found[split] = [SourceFile(path, split) for path in paths]
    return found


def row_count(corpus: Corpus, split: str, files: list[SourceFile]) -> int:
    """Rows of `split`, without reading them.

    Raises:
        CorpusError: a file is not parquet or not a CSV of the expected columns.
    """
    if corpus.kind == "libritts-r":
        return corpus.rows[split]
    if corpus.kind == "folder":
        return sum(row["split"] == split for row in _csv_rows(corpus, files[0].path))
    return sum(_open_parquet(file.path).metadata.num_rows for file in files)


def read_ids(corpus: Corpus, split: str, files: list[SourceFile]) -> list[str]:
    """Ids of every row of `split` in file order; a row without one gets `<file>#<row>`.

    Raises:
        CorpusError: a file is not parquet or lacks a column.
    """
    if corpus.kind == "folder":
        return [row["id"] for row in _csv_rows(corpus, files[0].path) if row["split"] == split]
    ids: list[str] = []
    for file in files:
        column = _open_parquet(file.path).read(columns=["id"])["id"]
        ids += [_id(value, file.path, row) for row, value in enumerate(column.to_pylist())]
    return ids


def read_rows(corpus: Corpus, split: str, files: list[SourceFile]) -> Iterator[dict[str, Any]]:
    """Rows of `split` in file order, with every column of the archive schema; a few in memory.

    Raises:
        CorpusError: a file is damaged.
    """
    if corpus.kind == "folder":
        yield from _folder_rows(corpus, split, files[0].path)
        return
    for file in files:
        parquet = _open_parquet(file.path)
        columns = [name for name in ARCHIVE_SCHEMA.names if name in parquet.schema_arrow.names]
        row = 0
        try:
            for batch in parquet.iter_batches(32, columns=columns):
                for values in batch.to_pylist():
                    yield _archive_row(corpus, values, file.path, row)
                    row += 1
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(
                f"{file.path} is damaged after row {row}: {error}; fetch the file again"
            ) from error


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        parquet = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path} is not parquet: {error}; fetch the file again") from error
    schema = parquet.schema_arrow
    missing = [name for name in REQUIRED_COLUMNS if name not in schema.names]
    if missing:
        raise CorpusError(
            f"{path} has no column {', '.join(missing)} (it has {', '.join(schema.names)}); a corpus "
            f"needs {', '.join(REQUIRED_COLUMNS)} and may have {', '.join(sorted(OPTIONAL_COLUMNS))}"
        )
    audio = schema.field("audio").type
    if not pa.types.is_struct(audio) or audio.get_field_index("bytes") < 0:
        raise CorpusError(
            f"{path}: column audio is {audio}, must be a struct with bytes (and path): the layout of "
            "the hub's audio datasets"
        )
    return parquet


def _archive_row(corpus: Corpus, values: dict[str, Any], file: Path, row: int) -> dict[str, Any]:
    audio = values["audio"] or {}
    path = values.get("path") or audio.get("path") or ""
    text = {
        name: None if values.get(name) is None else str(values[name])
        for name in ("text_normalized", "text_original")
    }
    return {
        "audio": {"bytes": audio.get("bytes"), "path": path},
        "path": path,
        "id": _id(values["id"], file, row),
        "speaker_id": str(values.get("speaker_id") or ""),
        "chapter_id": str(values.get("chapter_id") or ""),
        "text_normalized": text["text_normalized"],
        "text_original": text["text_original"] or text["text_normalized"],
        "source": values.get("source") or corpus.source or corpus.name,
        "licence": values.get("licence") or corpus.licence,
    }


def _id(value: object, file: Path, row: int) -> str:
    return str(value) if value not in (None, "") else f"{file.name}#{row}"


def _csv_rows(corpus: Corpus, metadata: Path) -> Iterator[dict[str, str]]:
    """Rows of a folder's CSV as {id, file, text, original, speaker, chapter, split}."""
    try:
        with metadata.open(encoding="utf-8-sig", newline="") as file:
            # Without a header (LJSpeech), quotes are text and the columns are named in the corpus row.
            quoting = csv.QUOTE_NONE if corpus.columns else csv.QUOTE_MINIMAL
            reader = csv.DictReader(
                file,
                fieldnames=corpus.columns or None,
                delimiter=corpus.delimiter,
                quoting=quoting,
                restval="",
            )
            names = list(reader.fieldnames or [])
            name_column = next((n for n in _FILE_COLUMNS if n in names), None)
            text_column = next((n for n in _TEXT_COLUMNS if n in names), None)
            if name_column is None or text_column is None:
                raise CorpusError(
                    f"{metadata} has columns {names}; it needs one of {', '.join(_FILE_COLUMNS)} and "
                    f"one of {', '.join(_TEXT_COLUMNS)} (set corpora.{corpus.name}.columns when the "
                    "file has no header, and delimiter when it is not a comma)"
                )
            for row in reader:
                name = row[name_column] or ""
                identity = row.get("id") or re.sub(r"\.\w+$", "", name)
                yield {
                    "id": identity or f"{metadata.name}#{reader.line_num}",
                    "file": name,
                    "text": row[text_column] or "",
                    "original": row.get("text_original") or row[text_column] or "",
                    "speaker": row.get("speaker_id") or row.get("speaker") or "",
                    "chapter": row.get("chapter_id") or "",
                    "split": row.get("split") or corpus.split,
                }
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{metadata} is not a CSV in UTF-8: {error}") from error


def _folder_rows(corpus: Corpus, split: str, metadata: Path) -> Iterator[dict[str, Any]]:
    root = metadata.parent.resolve()
    for row in _csv_rows(corpus, metadata):
        if row["split"] != split:
            continue
        path = _audio_file(root, row["file"])
        yield {
            "audio": {"bytes": path.read_bytes() if path else None, "path": row["file"]},
            "path": row["file"],
            "id": row["id"],
            "speaker_id": row["speaker"],
            "chapter_id": row["chapter"],
            "text_normalized": row["text"] or None,
            "text_original": row["original"] or None,
            "source": corpus.source or corpus.name,
            "licence": corpus.licence,
        }


def _audio_file(root: Path, name: str) -> Path | None:
    """The file that a CSV row names, below `root` or in its folder `wavs`; None when there is none."""
    if not name:
        return None
    for folder in (root, root / "wavs"):
        for suffix in _SUFFIXES:
            path = (folder / f"{name}{suffix}").resolve()
            if path.is_file() and path.is_relative_to(root):
                return path
    return None
