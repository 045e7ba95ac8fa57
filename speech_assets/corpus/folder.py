"""A corpus that is a folder of audio files with a CSV of metadata: LJSpeech, the hub's audiofolder.

A CSV that cannot be read is an error; a row whose audio is not there is a row without audio, for
the `speech` stage to set aside.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

from speech_assets.corpus.shards import is_split_name
from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from speech_assets.profiles import Corpus

_FILE_COLUMNS = ("file_name", "file", "path", "audio", "id")
_TEXT_COLUMNS = ("text_normalized", "text", "transcription", "transcript", "sentence")
_ORIGINAL_COLUMNS = ("text_original", "text", "transcription", "transcript", "sentence")
_SUFFIXES = ("", ".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")


def folder_rows(corpus: Corpus, split: str, metadata: Path) -> Iterator[dict[str, Any]]:
    """Rows of `split` with every column of the archive schema; one clip is in memory.

    Raises:
        CorpusError: the CSV or an audio file cannot be read.
    """
    root = metadata.parent.resolve()
    for row in csv_rows(corpus, metadata):
        if row["split"] != split:
            continue
        path = audio_file(root, row["file"])
        try:
            data = path.read_bytes() if path else None
        except OSError as error:
            raise CorpusError(f"{path} cannot be read: {error.strerror}; check the disk") from error
        yield {
            "audio": {"bytes": data, "path": row["file"]},
            "path": row["file"],
            "id": row["id"],
            "speaker_id": row["speaker"],
            "chapter_id": row["chapter"],
            "text_normalized": row["text"] or None,
            "text_original": row["original"] or None,
            "source": corpus.source or corpus.name,
            "licence": corpus.licence,
        }


def csv_rows(corpus: Corpus, metadata: Path) -> Iterator[dict[str, str]]:
    """Rows of a folder's CSV as {id, file, text, original, speaker, chapter, split}.

    Raises:
        CorpusError: it cannot be read, lacks a column, or names a split that cannot be one.
    """
    line = 0
    try:
        with metadata.open(encoding="utf-8-sig", newline="") as file:
            # Without a header (LJSpeech), quotes are text and the corpus' row names the columns.
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
                    f"{metadata} has columns {names}; it needs one of "
                    f"{', '.join(_FILE_COLUMNS)} and one of {', '.join(_TEXT_COLUMNS)} "
                    f"(set corpora.{corpus.name}.columns when the file has no header, and "
                    "delimiter when it is not a comma)"
                )
            original_column = next((n for n in _ORIGINAL_COLUMNS if n in names), text_column)
            for row in reader:
                line = reader.line_num
                if surplus := row.get(None):
                    raise CorpusError(
                        f"{metadata} line {line} has {len(names) + len(surplus)} fields, the header"
                        f" {len(names)}: quote a text that holds {corpus.delimiter!r}, or set"
                        f" corpora.{corpus.name}.delimiter"
                    )
                name = row[name_column].strip()
                identity = row.get("id", "").strip() or re.sub(r"\.\w+$", "", name)
                split = row.get("split", "").strip() or corpus.split
                if not is_split_name(split):
                    raise CorpusError(
                        f"{metadata}, line {line}: split {split!r} may hold only "
                        "letters, digits, '-' and '_'; rename it"
                    )
                yield {
                    "id": identity or f"{metadata.name}#{line}",
                    "file": name,
                    "text": row[text_column],
                    "original": row[original_column] or row[text_column],
                    "speaker": row.get("speaker_id") or row.get("speaker") or "",
                    "chapter": row.get("chapter_id") or "",
                    "split": split,
                }
    except UnicodeDecodeError as error:
        raise CorpusError(f"{metadata} is not UTF-8: {error}; save it as UTF-8") from error
    except csv.Error as error:
        raise CorpusError(
            f"{metadata}, after line {line}: {error}; check its quotes and delimiter "
            f"(corpora.{corpus.name}.delimiter)"
        ) from error
    except OSError as error:
        raise CorpusError(f"{metadata} cannot be read: {error.strerror}") from error


def audio_file(root: Path, name: str) -> Path | None:
    """The file that a CSV row names, in `root` or its folder `wavs`; None when there is none."""
    for folder in (root, root / "wavs"):
        for suffix in _SUFFIXES if name else ():
            try:
                path = (folder / f"{name}{suffix}").resolve()
                if path.is_relative_to(root) and path.is_file():
                    return path
            except (OSError, ValueError):  # Too long for a name, or a zero byte in it.
                return None
    return None
