"""Corpora as they lie on disk, folders of audio with a CSV and parquet, and their faults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources.store import Store
from speech_assets.corpus import sources
from speech_assets.corpus.repack import repack_split
from speech_assets.corpus.shards import ARCHIVE_SCHEMA, Shard
from speech_assets.corpus.speech_rows import speech_row
from speech_assets.corpus.trim import TrimSettings
from speech_assets.errors import ConfigError, CorpusError
from speech_assets.profiles import Corpus

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path, short_rows: list[Row]) -> Path:
    """A folder corpus without its CSV: two clips beside it, one below wavs/; a secret above it."""
    root = tmp_path / "corpus"
    (root / "wavs").mkdir(parents=True)
    for name, row in zip(("one.ogg", "two.ogg", "wavs/three.ogg"), short_rows, strict=False):
        (root / name).write_bytes(row["audio"]["bytes"])
    (tmp_path / "secret.ogg").write_bytes(short_rows[3]["audio"]["bytes"])
    return root


def folder_corpus(root: Path, csv: str | bytes, **settings: Any) -> Corpus:
    data = csv.encode() if isinstance(csv, str) else csv
    (root / "metadata.csv").write_bytes(data)
    return Corpus("mine", "folder", str(root), **settings)


def read(corpus: Corpus, split: str = "train") -> list[Row]:
    """Rows of a split, after its ids and count have been found to agree with them."""
    files = sources.source_files(corpus)[split]
    rows = list(sources.read_rows(corpus, split, files))
    assert [row["id"] for row in rows] == sources.read_ids(corpus, split, files)
    assert len(rows) == sources.row_count(corpus, split, files)
    return rows


def refusal(corpus: Corpus) -> str:
    with pytest.raises((CorpusError, ConfigError)) as caught:
        read(corpus)
    return str(caught.value)


def test_a_csv_with_a_header_gives_rows_with_their_audio(
    folder: Path, short_rows: list[Row]
) -> None:
    rows = read(
        folder_corpus(
            folder,
            "file_name,text,speaker_id,chapter_id\none.ogg,Hello,ann,7\ntwo.ogg,Bye,,\n",
            source="home",
            licence="CC0",
        )
    )
    assert [row["audio"]["bytes"] for row in rows] == [
        row["audio"]["bytes"] for row in short_rows[:2]
    ]
    assert {k: v for k, v in rows[0].items() if k != "audio"} == {
        "id": "one",
        "path": "one.ogg",
        "speaker_id": "ann",
        "chapter_id": "7",
        "text_normalized": "Hello",
        "text_original": "Hello",
        "source": "home",
        "licence": "CC0",
    }
    assert (rows[1]["speaker_id"], rows[1]["chapter_id"]) == ("", "")


@pytest.mark.parametrize(
    "names", ["file,transcription", "path,sentence", "audio,transcript", "id,text"]
)
def test_the_hubs_usual_column_names_are_known(folder: Path, names: str) -> None:
    (row,) = read(folder_corpus(folder, f"{names}\none.ogg,Hello\n"))
    assert row["text_normalized"] == "Hello"
    assert row["audio"]["bytes"]


def test_ljspeech_has_no_header_and_two_texts_and_quotes_are_text(folder: Path) -> None:
    rows = read(
        folder_corpus(
            folder,
            'one|He said "12|He said "twelve\nthree|in 1999|in nineteen ninety nine\n',
            delimiter="|",
            columns=("id", "text", "text_normalized"),
        )
    )
    assert [row["id"] for row in rows] == ["one", "three"]
    assert rows[0]["text_normalized"] == 'He said "twelve'
    assert rows[0]["text_original"] == 'He said "12'
    # Below wavs/, without a suffix, as LJSpeech has it.
    assert rows[1]["audio"]["bytes"] == (folder / "wavs" / "three.ogg").read_bytes()
    assert rows[1]["text_original"] == "in 1999"


def test_quotes_commas_and_newlines_within_a_quoted_text_are_kept(folder: Path) -> None:
    (first, second) = read(
        folder_corpus(folder, 'file,text\none.ogg,"Yes, ""no"",\r\nand 日本 🙂"\ntwo.ogg,Bye\n')
    )
    assert first["text_normalized"] == 'Yes, "no",\r\nand 日本 🙂'
    assert second["text_normalized"] == "Bye"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_and_windows_line_ends_are_no_text(
    folder: Path, bom: bytes, line_end: str
) -> None:
    csv = bom + line_end.join(["file,text", "one.ogg,Grüße", ""]).encode()
    (row,) = read(folder_corpus(folder, csv))
    assert (row["path"], row["text_normalized"]) == ("one.ogg", "Grüße")


@pytest.mark.parametrize(
    "name",
    [
        "gone.ogg",
        "",
        ".",
        "wavs",
        "../secret.ogg",
        "../secret",
        "wavs/../../secret.ogg",
        "{parent}/secret.ogg",
        "link.ogg",
        "a\0b.ogg",
        "x" * 5_000,
    ],
    ids=lambda name: name[:20].replace("\0", "NUL"),
)
def test_audio_that_is_not_below_the_folder_is_missing_and_named(folder: Path, name: str) -> None:
    (folder / "link.ogg").symlink_to(folder.parent / "secret.ogg")
    name = name.format(parent=folder.parent)
    bad, good = read(folder_corpus(folder, f"file,text\n{name},Hello\none.ogg,Bye\n"))
    assert bad["audio"]["bytes"] is None
    aside = speech_row(bad, 60.0, TrimSettings())
    assert aside.reason == "missing_audio"  # type: ignore[union-attr]
    assert repr(name) in aside.detail or not name  # type: ignore[union-attr]
    assert good["audio"]["bytes"]


def test_duplicate_rows_are_all_given_and_left_to_the_next_stage(folder: Path) -> None:
    rows = read(folder_corpus(folder, "file,text\none.ogg,A\none.ogg,A\none.ogg,B\n"))
    assert [(row["id"], row["text_normalized"]) for row in rows] == [
        ("one", "A"),
        ("one", "A"),
        ("one", "B"),
    ]


def test_a_row_without_text_or_without_a_name_stays_a_row(folder: Path) -> None:
    rows = read(folder_corpus(folder, "file,text\none.ogg,\n,lost\ntwo.ogg\n\n"))
    assert [row["id"] for row in rows] == ["one", "metadata.csv#3", "two"]
    assert [row["text_normalized"] for row in rows] == [None, "lost", None]


def test_ids_come_from_their_column_or_the_files_name(folder: Path) -> None:
    rows = read(folder_corpus(folder, "id,file,text\n007,one.ogg,A\n , wavs/three.ogg ,B\n"))
    assert [row["id"] for row in rows] == ["007", "wavs/three"]
    assert rows[1]["audio"]["bytes"]


def test_a_column_of_splits_makes_splits(folder: Path) -> None:
    corpus = folder_corpus(
        folder, "file,text,split\none.ogg,A,dev\ntwo.ogg,B,train\nthree.ogg,C,\n", split="train"
    )
    assert sorted(sources.source_files(corpus)) == ["dev", "train"]
    assert [row["id"] for row in read(corpus, "dev")] == ["one"]
    assert [row["id"] for row in read(corpus, "train")] == ["two", "three"]


@pytest.mark.parametrize("split", ["../elsewhere", "a.b", "a b", "a/b"])
def test_a_split_that_cannot_name_a_folder_is_refused_with_its_line(
    folder: Path, split: str
) -> None:
    message = refusal(folder_corpus(folder, f"file,text,split\none.ogg,A,dev\ntwo.ogg,B,{split}\n"))
    assert repr(split) in message
    assert "metadata.csv, line 3" in message


def test_a_csv_that_is_not_utf_8_says_how_to_save_it(folder: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        message = refusal(folder_corpus(folder, "file,text\none.ogg,Grüße\n".encode(encoding)))
        assert "metadata.csv is not UTF-8" in message
        assert "save it as UTF-8" in message


@pytest.mark.parametrize(
    "csv", ["name,words\none.ogg,Hello\n", "", "file\none.ogg\n", "one|Hello\n"]
)
def test_a_csv_without_the_needed_columns_says_which_and_how_to_name_them(
    folder: Path, csv: str
) -> None:
    message = refusal(folder_corpus(folder, csv))
    assert "metadata.csv" in message
    assert "file_name" in message
    assert "corpora.mine.columns" in message


def test_a_csv_with_a_header_and_no_rows_is_refused(folder: Path) -> None:
    assert "has no rows" in refusal(folder_corpus(folder, "file,text\n"))


def test_a_quote_that_is_never_closed_is_refused_with_its_line(folder: Path) -> None:
    csv = 'file,text\none.ogg,"Hello\n' + "two.ogg,Bye\n" * 20_000
    message = refusal(folder_corpus(folder, csv))
    assert "metadata.csv, after line" in message
    assert "corpora.mine.delimiter" in message


def test_a_folder_or_its_csv_that_is_not_there_is_named(folder: Path) -> None:
    corpus = Corpus("mine", "folder", str(folder), metadata="texts.csv")
    assert str(folder / "texts.csv") in refusal(corpus)
    gone = refusal(Corpus("mine", "folder", str(folder / "gone")))
    assert f"corpora.mine.path {folder / 'gone'} is not a folder" in gone


@pytest.mark.parametrize("pattern", ["none-*.parquet", "", "/etc/*.parquet", "**x/*"])
def test_a_pattern_that_finds_no_file_is_named_with_its_split(tmp_path: Path, pattern: str) -> None:
    message = refusal(Corpus("mine", "parquet", str(tmp_path), {"train": pattern}))
    assert "corpora.mine.splits.train" in message
    assert repr(pattern) in message


def test_a_folder_that_matches_the_pattern_is_no_file(
    tmp_path: Path, short_rows: list[Row]
) -> None:
    (tmp_path / "train-folder.parquet").mkdir()
    table = pa.Table.from_pylist(short_rows, ARCHIVE_SCHEMA)
    pq.write_table(table, tmp_path / "train-0.parquet")
    corpus = Corpus("mine", "parquet", str(tmp_path), {"train": "train-*.parquet"})
    assert [row["id"] for row in read(corpus)] == [row["id"] for row in short_rows]


def test_rows_of_parquet_come_as_they_are_in_the_order_of_files_and_rows(
    tmp_path: Path, short_rows: list[Row]
) -> None:
    for file, rows in (("train-1", short_rows[:5]), ("train-0", short_rows[5:])):
        table = pa.Table.from_pylist(rows, ARCHIVE_SCHEMA)
        pq.write_table(table, tmp_path / f"{file}.parquet", row_group_size=2)
    corpus = Corpus("mine", "parquet", str(tmp_path), {"train": "train-*.parquet"})
    expected = [
        {**row, "audio": {"bytes": row["audio"]["bytes"], "path": row["path"]}}
        for row in [*short_rows[5:], *short_rows[:5]]
    ]
    assert read(corpus) == expected


def archived(corpus: Corpus, store: Store) -> bool:
    """Whether the archives of split train had to be made."""
    files = sources.source_files(corpus)["train"]
    return repack_split(corpus, "train", files, 1, store, lambda _: None)[1]


def test_archives_are_made_again_when_the_csv_or_a_clip_changes_and_only_then(
    folder: Path, tmp_path: Path
) -> None:
    corpus = folder_corpus(folder, "file,text\none.ogg,A\nthree.ogg,B\n")
    store = Store(str(tmp_path / "store"))
    assert archived(corpus, store)
    assert not archived(corpus, store)
    (folder / "wavs" / "three.ogg").write_bytes((folder / "two.ogg").read_bytes())
    assert archived(corpus, store)
    assert not archived(corpus, store)
    (folder / "unused.ogg").write_bytes(b"not in the CSV")
    assert not archived(corpus, store)
    os.utime(folder / "metadata.csv", ns=(1, 1))
    assert archived(corpus, store)


def test_archives_are_made_again_when_one_is_lost(folder: Path, tmp_path: Path) -> None:
    corpus = folder_corpus(folder, "file,text\none.ogg,A\n")
    store = Store(str(tmp_path / "store"))
    assert archived(corpus, store)
    key = Shard("train", 0).object_key("archives")
    before = store.read_bytes(key)
    store.delete(key)
    assert archived(corpus, store)
    assert store.read_bytes(key) == before


def parquet_corpus(root: Path, table: pa.Table) -> Corpus:
    pq.write_table(table, root / "train.parquet")
    return Corpus(
        name="mine", kind="parquet", path=str(root), splits={"train": "*.parquet"}, shard_rows=2
    )


@pytest.mark.parametrize("column", ["id", "text_normalized", "text_original", "speaker_id"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"Text", "binary"), (["Text"], "list<"), ({"en": "Text"}, "struct<"), (True, "bool")],
)
def test_a_column_that_is_no_text_is_refused_by_its_type(
    tmp_path: Path, column: str, value: object, kind: str
) -> None:
    row = {"audio": {"bytes": b"x"}, "id": "a", "text_normalized": "Text", column: value}
    said = refusal(parquet_corpus(tmp_path, pa.Table.from_pylist([row])))
    assert f"train.parquet: column {column} is {kind}" in said
    assert "must be text (or numbers); write it as strings" in said


def test_columns_of_numbers_large_strings_and_dictionaries_are_text(tmp_path: Path) -> None:
    table = pa.table(
        {
            "audio": pa.array([{"bytes": b"x"}]),
            "id": pa.array(["a"], pa.large_string()),
            "text_normalized": pa.array(["Text"]).dictionary_encode(),
            "speaker_id": pa.array([84], pa.int16()),
            "chapter_id": pa.nulls(1),
        }
    )
    (row,) = read(parquet_corpus(tmp_path, table))
    assert (row["id"], row["text_normalized"]) == ("a", "Text")
    assert (row["speaker_id"], row["chapter_id"]) == ("84", "")


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    table = pa.table(
        [pa.array([{"bytes": b"x"}]), pa.array(["a"]), pa.array(["Text"]), pa.array(["b"])],
        names=["audio", "id", "text_normalized", "id"],
    )
    assert "train.parquet has column id twice" in refusal(parquet_corpus(tmp_path, table))
