"""LibriTTS-R observed, downloaded and repacked, from a server of this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import resource
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import pyarrow.parquet as pq
import pytest
from published import (
    SPLITS,
    Answer,
    Publisher,
    catalogue_text,
    clip_id,
    members_of,
    published,
    tar_gz,
    write_catalogue,
)

from resources.errors import ChangedError, DownloadError, StoreError
from resources.patience import Patience
from resources.store import Store
from speech_assets.corpus import libritts, stored_split, tarball
from speech_assets.corpus.archive import code_version
from speech_assets.corpus.download_folder import download_folder
from speech_assets.corpus.libritts import archive_split
from speech_assets.corpus.observation import Means, content_token, observe_split
from speech_assets.corpus.pins import pins_key, read_pins
from speech_assets.errors import CorpusError
from speech_assets.profiles import Corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

SPLIT = "dev-clean"
WAVS = [bytes([number]) * (3_000 + number) for number in range(10)]
ARCHIVE = tar_gz(members_of(SPLIT, WAVS))
PATH = "/dev_clean.tar.gz"
ETAG = f'"{hashlib.sha256(ARCHIVE).hexdigest()[:16]}"'


@dataclass
class Case:
    """A publisher, a corpus that points at it, and a store."""

    publisher: Publisher
    folder: Path
    store: Store
    corpus: Corpus
    lines: list[str] = field(default_factory=list[str])
    free: Callable[[Path], int] = lambda _: 1 << 40

    def means(self) -> Means:
        patience = Patience(attempts=3, sleep=lambda _: None, chance=lambda: 1.0)
        return Means(self.lines.append, patience, self.free)

    def catalogue(self, **options: Any) -> None:
        text = catalogue_text({SPLIT: ARCHIVE}, {SPLIT: 10}, **options)
        path = write_catalogue(self.folder, text)
        self.corpus = dataclasses.replace(self.corpus, catalogue=path)

    def observe(self) -> dict[str, Any]:
        return observe_split(self.corpus, SPLIT, self.store, self.means())

    def archive(self, shards: int = 4) -> bool:
        return archive_split(self.corpus, SPLIT, shards, self.store, self.means())[1]

    def refusal(self) -> str:
        with pytest.raises((DownloadError, CorpusError)) as caught:
            self.archive()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def bytes_of_shards(self) -> dict[str, bytes]:
        keys = self.store.keys(f"archives/{SPLIT}")
        return {key: self.store.read_bytes(key) for key in keys}


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with published({PATH: ARCHIVE}) as publisher:
        case = Case(
            publisher,
            tmp_path,
            Store(str(tmp_path / "store")),
            Corpus("small", "libritts-r", take=(SPLIT,), shard_rows=3, url=publisher.url),
        )
        case.catalogue()
        yield case


def test_observing_keeps_what_was_not_published_in_the_store(case: Case) -> None:
    case.catalogue(md5=False, sizes=False)
    assert read_pins(case.store, SPLIT) == {}
    known = case.observe()
    assert known == read_pins(case.store, SPLIT)
    assert known == {
        "schema_version": 1,
        "version": content_token(known),
        "origin": "openslr",
        "size_bytes": len(ARCHIVE),
        "servers": {case.publisher.url + PATH: {"etag": ETAG}},
    }
    assert [ask.method for ask in case.publisher.asked] == ["HEAD"]
    token = content_token(known)
    case.archive()
    known = read_pins(case.store, SPLIT)
    assert content_token(known) == content_token(case.observe()) == token
    assert known["md5"] == hashlib.md5(ARCHIVE).hexdigest()
    assert known["rows"] == 10


def test_a_later_difference_is_an_error_with_both_values(case: Case) -> None:
    case.catalogue(md5=False)
    before = content_token(case.observe())
    assert content_token(case.observe()) == before
    case.publisher.head_script = [Answer(etag='"other"')]
    with pytest.raises(ChangedError) as caught:
        case.observe()
    assert f'etag was {ETAG}, is "other"' in str(caught.value)
    assert case.store.path(pins_key(SPLIT)) in str(caught.value)
    case.store.delete(pins_key(SPLIT))  # The remedy that it names.
    case.observe()


def test_computers_behind_one_address_may_tag_the_same_bytes_differently(case: Case) -> None:
    """Where the md5 is published, which judges what is downloaded."""
    before = content_token(case.observe())
    for tag in ('"a"', '"b"'):
        case.publisher.head_script, case.publisher.script = [Answer(etag=tag)], [Answer(etag=tag)]
        case.archive()
        (download_folder(case.corpus, case.store) / "dev_clean.tar.gz").unlink()
        case.store.delete(f"archives/{SPLIT}/index.json")
        words = f"ETag or Last-Modified was {ETAG}, is {tag}; its md5 is published"
        assert any(words in line for line in case.lines)
    assert read_pins(case.store, SPLIT)["servers"] == {case.publisher.url + PATH: {"etag": ETAG}}
    assert content_token(case.observe()) == before


def test_a_server_that_tags_nothing_is_no_change_each_time(case: Case) -> None:
    for _ in range(2):
        case.publisher.head_script = [Answer(etag=" ")]
        known = case.observe()
        assert known["servers"] == {case.publisher.url + PATH: {}}
    assert not any("its md5 is published" in line for line in case.lines)
    case.observe()
    assert any(f"was not told, is {ETAG}; its md5" in line for line in case.lines)


def test_a_size_that_is_not_the_catalogues_is_an_error_with_both_numbers(case: Case) -> None:
    case.publisher.files[PATH] = ARCHIVE + b"\0"
    with pytest.raises(
        ChangedError, match=f"has {len(ARCHIVE) + 1} bytes, the catalogue says {len(ARCHIVE)}"
    ):
        case.observe()


def test_a_mirror_has_a_tag_of_its_own_and_the_same_content(case: Case) -> None:
    token = content_token(case.observe())
    with published({PATH: ARCHIVE}) as mirror:
        mirror.head_script = [Answer(etag='"of the mirror"')]
        case.corpus = dataclasses.replace(case.corpus, url=mirror.url + "/")
        assert content_token(case.observe()) == token
    assert len(read_pins(case.store, SPLIT)["servers"]) == 2


def test_a_damaged_note_of_what_is_known_is_not_made_anew_quietly(case: Case) -> None:
    case.store.write_bytes(pins_key(SPLIT), b"{}")
    with pytest.raises(StoreError, match="delete it to observe the source anew"):
        case.observe()


def test_shards_are_sorted_whole_and_the_same_bytes_every_time(case: Case, tmp_path: Path) -> None:
    assert case.archive() is True
    rows: list[dict[str, Any]] = []
    for number in range(4):
        with case.store.open(f"archives/{SPLIT}/{SPLIT}.{number:03d}.parquet") as file:
            table = pq.read_table(file)
        assert 0 < table.num_rows <= 3
        rows += table.to_pylist()
    assert [row["id"] for row in rows] == [clip_id(number) for number in range(10)]
    assert [row["audio"]["bytes"] for row in rows] == WAVS
    assert {(row["source"], row["licence"]) for row in rows} == {("LibriTTS-R", "CC BY 4.0")}
    first = case.bytes_of_shards()
    case.store = Store(str(tmp_path / "another"))
    case.archive()
    assert case.bytes_of_shards() == first


def test_what_is_made_is_not_asked_for_again_also_without_a_network(case: Case) -> None:
    case.archive()
    asked = len(case.publisher.asked)
    assert case.archive() is False
    assert len(case.publisher.asked) == asked
    assert case.archive(shards=5) is True
    assert [ask.method for ask in case.publisher.asked[asked:]] == ["HEAD"]


def test_downloads_stay_and_the_spool_does_not(case: Case) -> None:
    case.archive()
    folder = download_folder(case.corpus, case.store)
    assert folder == case.folder / "store" / "downloads" / "small" / "openslr"
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    assert names == ["dev_clean.tar.gz"]
    case.corpus = dataclasses.replace(case.corpus, path=str(case.folder / "elsewhere"))
    assert download_folder(case.corpus, case.store) == case.folder / "elsewhere"


def test_a_count_that_is_not_the_catalogues_fails_with_both_numbers(case: Case) -> None:
    text = catalogue_text({SPLIT: ARCHIVE}, {SPLIT: 12}, exact=True)
    case.corpus = dataclasses.replace(case.corpus, catalogue=write_catalogue(case.folder, text))
    assert "split dev-clean has 10 rows, the catalogue says 12" in case.refusal()
    text = catalogue_text({SPLIT: ARCHIVE}, {SPLIT: 9})
    case.corpus = dataclasses.replace(case.corpus, catalogue=write_catalogue(case.folder, text))
    assert "has 10 rows, the catalogue says at most 9" in case.refusal()
    assert case.store.keys(f"archives/{SPLIT}") == []


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ("md5", 'md5 = "0123456789abcdef0123456789abcdef"', "md5 of split dev-clean is"),
        ("size_bytes", "size_bytes = 17", "size_bytes of split dev-clean is"),
        ("rows_at_most", "rows = 12", "rows of split dev-clean is 10, the catalogue says 12"),
        ("rows_at_most", "rows_at_most = 9", "has 10 rows, the catalogue says at most 9"),
    ],
)
def test_a_corrected_catalogue_is_compared_with_what_was_made(
    case: Case, before: str, now: str, words: str
) -> None:
    case.archive()
    path = Path(case.corpus.catalogue)
    text = re.sub(rf'({SPLIT} = .*){before} = "?\w+"?', rf"\1{now}", path.read_text(), count=1)
    case.corpus = dataclasses.replace(case.corpus, catalogue=write_catalogue(case.folder, text))
    asked = len(case.publisher.asked)
    said = case.refusal()
    assert words in said
    assert case.store.path(pins_key(SPLIT)) in said
    assert "correct a catalogue of yours" in said
    assert len(case.publisher.asked) == asked


@pytest.mark.parametrize(("name", "value"), [("source", "Another"), ("licence", "CC0")])
def test_a_corrected_source_or_licence_of_the_catalogue_is_taken(
    case: Case, name: str, value: str
) -> None:
    case.archive()
    text = Path(case.corpus.catalogue).read_text()
    text = re.sub(rf'^{name} = ".*"', f'{name} = "{value}"', text, count=1, flags=re.MULTILINE)
    case.corpus = dataclasses.replace(case.corpus, catalogue=write_catalogue(case.folder, text))
    assert case.archive() is True
    with case.store.open(f"archives/{SPLIT}/{SPLIT}.000.parquet") as file:
        assert set(pq.read_table(file)[name].to_pylist()) == {value}


@pytest.mark.parametrize("module", [libritts, tarball, stored_split])
def test_new_code_of_the_reading_makes_the_shards_and_the_asset_stale(
    case: Case, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    case.archive()
    before = code_version(case.corpus)
    monkeypatch.setattr(module, "CODE_VERSION", "new")
    assert code_version(case.corpus) != before
    assert case.archive() is True


def test_what_a_wrong_catalogue_says_is_not_taken_for_what_was_seen(case: Case) -> None:
    right = case.corpus.catalogue
    text = re.sub(r'md5 = "\w{32}"', f'md5 = "{"0" * 32}"', Path(right).read_text())
    text = text.replace("rows_at_most = 10", "rows = 12")
    case.corpus = dataclasses.replace(case.corpus, catalogue=write_catalogue(case.folder, text))
    case.observe()
    assert "must be 0000" in case.refusal()
    case.corpus = dataclasses.replace(case.corpus, catalogue=right)
    assert case.archive()


def test_a_count_that_was_learnt_must_stay(case: Case) -> None:
    case.catalogue(md5=False, sizes=False)
    case.archive()
    pins = read_pins(case.store, SPLIT)
    case.store.write_json(pins_key(SPLIT), {**pins, "rows": 9})
    with pytest.raises(ChangedError, match="rows was 9, is 10"):
        case.archive(shards=5)


def test_a_disk_without_room_is_said_before_anything_is_received(case: Case) -> None:
    case.free = lambda _: 2 * len(ARCHIVE)
    said = case.refusal()
    assert "split dev-clean needs 0.00 GB on the disk of" in said
    assert "set the corpus' path and SPEECH_STORE to larger disks" in said
    assert case.publisher.gets() == []
    case.free = lambda _: 4 * len(ARCHIVE)
    case.archive()


def test_what_is_here_already_needs_no_room(case: Case) -> None:
    case.archive()
    case.free = lambda _: int(2.6 * len(ARCHIVE))
    assert case.archive(shards=3)


def test_a_download_that_broke_off_is_gone_on_with_by_the_next_run(case: Case) -> None:
    case.publisher.script = [Answer(cut_after=500), *[Answer(status=503)] * 2]
    assert "gave up after 3 attempts" in case.refusal()
    assert case.archive()
    assert case.publisher.gets()[-1] == "bytes=500-"


def test_a_damaged_archive_says_what_to_delete(case: Case) -> None:
    case.catalogue(md5=False)
    damaged = ARCHIVE[:300] + bytes(40) + ARCHIVE[340:]
    case.publisher.files[PATH] = damaged
    said = case.refusal()
    assert "dev_clean.tar.gz is damaged after member" in said
    assert "delete it to download it anew" in said
    assert case.store.keys("archives") == []


def test_nothing_of_a_damaged_archive_is_kept_as_known(case: Case) -> None:
    case.catalogue(md5=False, sizes=False)
    case.publisher.files[PATH] = ARCHIVE[:300] + bytes(40) + ARCHIVE[340:]
    case.publisher.head_script = [Answer(etag='"1"')]
    case.publisher.script = [Answer(etag='"1"')]
    assert "delete it to download it anew" in case.refusal()
    assert "md5" not in read_pins(case.store, SPLIT)
    case.publisher.files[PATH] = ARCHIVE
    case.publisher.head_script = [Answer(etag='"1"')]
    case.publisher.script = [Answer(etag='"1"')]
    (download_folder(case.corpus, case.store) / "dev_clean.tar.gz").unlink()
    assert case.archive()
    assert read_pins(case.store, SPLIT)["md5"] == hashlib.md5(ARCHIVE).hexdigest()


def test_an_archive_whose_size_nobody_says_is_said_to_have_been_taken_without_asking_for_room(
    case: Case,
) -> None:
    case.catalogue(md5=False, sizes=False)
    words = "neither dev_clean.tar.gz's server nor the catalogue says how large it is"
    case.archive()
    assert not any(words in line for line in case.lines)
    case.store = Store(str(case.folder / "another"))
    case.publisher.head_script = [Answer(untold=True)]
    case.free = lambda _: 0
    assert case.archive()
    assert any(words in line for line in case.lines)


def test_a_split_that_another_process_fetches_is_left_to_it(case: Case) -> None:
    folder = download_folder(case.corpus, case.store)
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / f".{SPLIT}.lock"):
        assert "is being fetched by another process" in case.refusal()


@pytest.mark.parametrize("path", ["file", "file/below", "read only/below", "read only", "/proc/no"])
def test_a_folder_that_cannot_be_made_is_said_with_the_option_that_names_it(
    case: Case, path: str
) -> None:
    (case.folder / "file").write_text("mine")
    locked = case.folder / "read only"
    locked.mkdir(mode=0o500)
    if path.startswith("read only") and os.access(locked, os.W_OK):
        pytest.skip("this user may write everywhere")
    case.corpus = dataclasses.replace(case.corpus, path=str(case.folder / path))
    said = case.refusal()
    assert str(case.folder / path) in said
    assert "give corpora.small.path a folder that this user can write" in said
    assert (case.folder / "file").read_text() == "mine"


def test_a_store_that_is_no_folder_is_one_line(case: Case) -> None:
    case.store = Store(str(case.folder / "file"))
    (case.folder / "file").write_text("mine")
    with pytest.raises((DownloadError, StoreError), match="SPEECH_STORE") as caught:
        case.archive()
    assert "\n" not in str(caught.value)


def test_a_folder_where_a_file_must_be_is_named(case: Case) -> None:
    part = download_folder(case.corpus, case.store) / "dev_clean.tar.gz.spool"
    part.mkdir(parents=True)
    assert f"{part}: Is a directory; " in case.refusal()


def test_all_seven_splits_come_from_their_archives(tmp_path: Path) -> None:
    archives = {
        split: tar_gz(members_of(split, WAVS[: 2 + at], first=100 * at))
        for at, split in enumerate(SPLITS)
    }
    rows = {split: 2 + at for at, split in enumerate(SPLITS)}
    catalogue = write_catalogue(tmp_path, catalogue_text(archives, rows, exact=True))
    files = {f"/{split.replace('-', '_')}.tar.gz": data for split, data in archives.items()}
    store = Store(str(tmp_path / "store"))
    with published(files) as publisher:
        corpus = Corpus(
            "all", "libritts-r", url=publisher.url, catalogue=catalogue, shard_rows=1000
        )
        for split in SPLITS:
            (shard,), _ = archive_split(corpus, split, 1, store, Means(lambda _: None))
            assert shard.rows == rows[split]


def test_a_repack_that_was_ended_in_the_middle_is_done_again_with_the_same_bytes(
    case: Case, tmp_path: Path
) -> None:
    def ended(line: str) -> None:
        if line.startswith(f"{SPLIT}.001"):
            raise KeyboardInterrupt

    means = dataclasses.replace(case.means(), report=ended)
    with pytest.raises(KeyboardInterrupt):
        archive_split(case.corpus, SPLIT, 4, case.store, means)
    assert f"archives/{SPLIT}/index.json" not in case.bytes_of_shards()
    assert case.archive() is True
    broken = case.bytes_of_shards()
    case.store = Store(str(tmp_path / "another"))
    case.archive()
    assert case.bytes_of_shards() == broken


def test_a_disk_that_fills_while_an_archive_is_read_is_one_line(case: Case) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(ARCHIVE) + 5_000, before[1]))
    try:
        said = case.refusal()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "File too large; free space, then run again: what was received is kept" in said
    assert case.archive()
