"""Archives follow the corpus: nothing of an earlier form stays, and a store holds one corpus."""

from __future__ import annotations

import dataclasses
import random
import resource
import signal
import tempfile
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import archive_short_corpus

from resources.store import Store
from speech_assets.corpus import dealing, sources
from speech_assets.corpus.card import render_card
from speech_assets.corpus.manifest import faults
from speech_assets.corpus.repack import repack_split
from speech_assets.corpus.shards import ARCHIVE_SCHEMA
from speech_assets.corpus.stored_split import check_owner, index_key
from speech_assets.errors import ConfigError, CorpusError, ShardError
from speech_assets.profiles import Corpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def repack(corpus: Corpus, store: Store, shards: int) -> tuple[Sequence[Any], bool]:
    files = sources.source_files(corpus)["train"]
    return repack_split(corpus, "train", files, shards, store, lambda _: None)


def test_a_split_that_has_fewer_shards_now_leaves_none_of_the_old(
    tmp_path: Path, short_corpus: Corpus
) -> None:
    store = archive_short_corpus(str(tmp_path), short_corpus)
    for asset in ("speech", "tokens"):
        for number in range(3):
            store.write_bytes(f"{asset}/train/train.{number:03d}.parquet", b"old")
    store.write_bytes("quarantine/speech/train.002.parquet", b"old")
    store.write_bytes("quarantine/speech/dev.000.parquet", b"of another split")
    store.write_bytes("tokens/README.md", b"card")
    repack(short_corpus, store, 1)
    assert store.keys("archives/train") == [
        "archives/train/index.json",
        "archives/train/train.000.parquet",
    ]
    assert store.keys("tokens") == ["tokens/README.md", "tokens/train/train.000.parquet"]
    assert store.keys("speech") == ["speech/train/train.000.parquet"]
    assert store.keys("quarantine") == ["quarantine/speech/dev.000.parquet"]


@pytest.mark.parametrize(
    "damage", [b"", b"null", b"[]", b"{}", b'{"corpus": "short", "fingerprint": "x"}']
)
def test_a_damaged_index_is_made_again(tmp_path: Path, short_corpus: Corpus, damage: bytes) -> None:
    store = archive_short_corpus(str(tmp_path), short_corpus)
    whole = store.read_bytes(index_key("train"))
    store.write_bytes(index_key("train"), damage)
    check_owner(store, "short")
    _, made = repack(short_corpus, store, 3)
    assert made
    assert store.read_bytes(index_key("train")) == whole
    assert repack(short_corpus, store, 3)[1] is False


def test_a_store_holds_one_corpus_whatever_its_splits_are_called(
    tmp_path: Path, short_corpus: Corpus
) -> None:
    store = archive_short_corpus(str(tmp_path), short_corpus)
    check_owner(store, "short")
    with pytest.raises(CorpusError, match=r"holds corpus 'short' .*not 'other'; set SPEECH_STORE"):
        check_owner(store, "other")


def test_a_file_in_two_splits_is_refused(short_corpus: Corpus) -> None:
    both = dataclasses.replace(short_corpus, splits={"train": "*.parquet", "dev": "dev-*.parquet"})
    with pytest.raises(ConfigError, match=r"dev-0\.parquet belongs to 'train' and 'dev'"):
        sources.source_files(both)


def test_a_csv_row_with_more_fields_than_the_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text("file_name,text\na.wav,fine\nb.wav,one,two,three\n")
    corpus = Corpus(name="mine", kind="folder", path=str(tmp_path))
    with pytest.raises(CorpusError, match=r"metadata\.csv line 3 has 4 fields, the header 2"):
        sources.source_files(corpus)


def made(split: str, **changed: Any) -> dict[str, Any]:
    totals = {
        "rows": 1,
        "source_rows": 1,
        "audio_hours": 1.0,
        "tokens": 7,
        "tokens_per_hour": 7.0,
        "speakers": 1,
        "quarantined_rows": 0,
        "duplicate_ids": 0,
    }
    made_with = {
        "codec": "snac-a",
        "codec_weights_sha256": "a",
        "codec_trained": "true",
        "layout_version": "1",
        "precision": "fp32",
    }
    return {
        "corpus": "short",
        "split": split,
        "totals": {**totals, **changed.pop("totals", {})},
        "made_with": {**made_with, **changed.pop("made_with", {})},
        "audio_hours_by_source_and_licence": [],
        "quarantine": {"missing_audio": 0},
        "shards": [],
        **changed,
    }


def test_a_card_of_two_codecs_is_refused() -> None:
    assert "snac-a" in render_card([made("train"), made("dev")])
    with pytest.raises(ShardError, match="split 'dev' was made with snac-b, split 'train' with"):
        render_card([made("train"), made("dev", made_with={"codec": "snac-b"})])


def test_a_split_without_a_usable_row_is_at_fault() -> None:
    assert faults(made("train")) == []
    (fault,) = faults(
        made("train", totals={"rows": 0, "source_rows": 6}, quarantine={"missing_audio": 6})
    )
    assert "no row of 6 can be used (6 missing_audio)" in fault
    assert "delimiter" in fault
    (fault,) = faults(made("train", totals={"rows": 0, "source_rows": 0}))
    assert "the split is empty" in fault


def many_shards(folder: Path, rows: int) -> tuple[Corpus, list[str]]:
    """A corpus of a row a shard, each of 30 kB."""
    ids = [f"clip-{number:05d}" for number in range(rows)]
    table = pa.Table.from_pylist(
        [
            {"audio": {"bytes": bytes(30_000)}, "id": id_, "text_normalized": id_}
            for id_ in random.Random(9).sample(ids, rows)
        ],
        ARCHIVE_SCHEMA,
    )
    folder.mkdir()
    pq.write_table(table, folder / "train.parquet", row_group_size=50)
    corpus = Corpus(
        name="mine", kind="parquet", path=str(folder), splits={"train": "*.parquet"}, shard_rows=1
    )
    return corpus, ids


@pytest.fixture
def few_open_files() -> Iterator[None]:
    """Room for a dozen more files than are open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 12, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_open_files")
def test_a_split_may_have_more_shards_than_files_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealing, "_WAITING_BYTES", 1 << 20)
    corpus, ids = many_shards(tmp_path / "corpus", 120)
    store = Store(str(tmp_path / "store"))
    shards, _ = repack(corpus, store, 120)
    assert [shard.rows for shard in shards] == [1] * 120
    with store.open("archives/train/train.077.parquet") as file:
        assert pq.read_table(file)["id"].to_pylist() == [ids[77]]


def test_memory_does_not_grow_with_rows_and_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealing, "_WAITING_BYTES", 1 << 20)
    corpus, ids = many_shards(tmp_path / "corpus", 600)
    rows = sources.read_rows(corpus, "train", sources.source_files(corpus)["train"])
    read = sources.read_ids(corpus, "train", sources.source_files(corpus)["train"])
    tracemalloc.start()
    with dealing.spool_folder(tmp_path) as folder:
        for number, (row,) in enumerate(dealing.dealt_rows(rows, read, 600, folder)):
            assert row["id"] == ids[number]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 << 20  # Of 18 MB.
    assert not list(tmp_path.glob("speech-assets-repack-*"))


def test_a_disk_that_fills_while_rows_are_sorted_is_one_line(
    tmp_path: Path, short_corpus: Corpus
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        with pytest.raises(CorpusError) as caught:
            repack(short_corpus, Store(str(tmp_path)), 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    said = str(caught.value)
    assert "cannot hold the rows of a split while they are sorted: File too large" in said
    assert "set TMPDIR" in said
    assert "\n" not in said


def test_no_folder_for_the_sorting_is_one_line(
    tmp_path: Path, short_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(CorpusError, match="No such file or directory; free space, or set TMPDIR"):
        repack(short_corpus, Store(str(tmp_path)), 3)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b", "c"], "there are 2 rows, there were 3"),
        (["a"], "row 1 has id 'b', it was not there"),
        (["a", "c"], "row 1 has id 'b', it was 'c'"),
    ],
)
def test_a_source_that_changes_while_it_is_read_is_said(
    tmp_path: Path, ids: list[str], words: str
) -> None:
    rows = [{"audio": {"bytes": b"", "path": ""}, "id": id_} for id_ in "ab"]
    with pytest.raises(CorpusError, match=words + ".*run again"):
        list(dealing.dealt_rows(rows, ids, 2, tmp_path))


def test_rows_of_one_id_meet_in_one_shard_wherever_they_come_from(
    tmp_path: Path, short_rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    rows = [{**row, "id": "same"} for row in short_rows[:4]] + short_rows[4:6]
    for number, row in enumerate(rows):
        table = pa.Table.from_pylist([row], ARCHIVE_SCHEMA)
        pq.write_table(table, folder / f"train-{number}.parquet")
    corpus = Corpus(
        name="mine", kind="parquet", path=str(folder), splits={"train": "*.parquet"}, shard_rows=2
    )
    store = Store(str(tmp_path / "store"))
    repack(corpus, store, 3)
    holding = []
    for number in range(3):
        with store.open(f"archives/train/train.{number:03d}.parquet") as file:
            holding.append("same" in pq.read_table(file, columns=["id"])["id"].to_pylist())
    assert sum(holding) == 1
