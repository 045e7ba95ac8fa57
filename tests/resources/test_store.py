"""The store in a folder: whole objects or none, and plain words when it cannot be written."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import archive_short_corpus
from hypothesis import given
from hypothesis import strategies as st

from resources.errors import StoreError
from resources.process import is_gone, process_name
from resources.store import Store
from speech_assets.corpus.shards import SPEECH_SCHEMA, read_footer

if TYPE_CHECKING:
    from collections.abc import Callable

    from speech_assets.profiles import Corpus

ROOT = Path(__file__).resolve().parent.parent.parent
SHARDS = ["train.000", "train.001", "train.002", "dev.000"]
KEY = "tokens/train/train.000.parquet"
# Mounts belong to a user namespace of their own, which needs no rights and ends with the process.
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
CAN_MOUNT = (
    shutil.which("unshare") is not None
    and subprocess.run(
        [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    ).returncode
    == 0
)
# Begins to write an object, says so, and finishes when it is told to.
SLOW_WRITER = """
import sys
from resources.store import Store

def fill(file):
    file.write(b"from another process")
    file.flush()
    print("begun", flush=True)
    sys.stdin.readline()

Store(sys.argv[1]).write(sys.argv[2], fill)
"""
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=12)
keys = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/".join(["k", *parts, "o.bin"]))


@given(objects=st.dictionaries(keys, st.binary(max_size=300), max_size=6))
def test_what_is_written_is_read_back_and_listed_under_its_key(
    objects: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(str(tmp_path_factory.mktemp("store")))
    for key, data in objects.items():
        store.write_bytes(key, data)
    assert {key: store.read_bytes(key) for key in store.keys("")} == objects
    for key in objects:
        assert store.exists(key)
        store.delete(key)
        store.delete(key)
        assert not store.exists(key)
    assert store.keys("") == []


@given(value=st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.booleans()))
def test_json_is_read_back_and_equal_values_give_equal_bytes(
    value: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(str(tmp_path_factory.mktemp("store")))
    store.write_json("a.json", value)
    store.write_json("b.json", dict(reversed(value.items())))
    assert store.read_json("a.json") == value
    assert store.read_bytes("a.json") == store.read_bytes("b.json")


def test_json_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("a.json", b"{")
    with pytest.raises(StoreError, match=r"a\.json is not JSON .*delete it"):
        store.read_json("a.json")


def test_an_object_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert not store.exists(KEY)
    assert store.keys("tokens") == []
    with pytest.raises(FileNotFoundError, match="not in the store"):
        store.read_bytes(KEY)


def test_a_writer_that_fails_in_the_middle_leaves_the_old_object_and_nothing_else(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    store.write_bytes(KEY, b"old")

    def fill(file: BinaryIO) -> None:
        file.write(b"new" * 100_000)
        assert store.read_bytes(KEY) == b"old"
        assert store.keys("") == [KEY]
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        store.write(KEY, fill)
    assert store.read_bytes(KEY) == b"old"
    assert _files(tmp_path) == [KEY]


def test_what_a_killed_writer_left_is_removed_and_what_a_live_one_writes_is_kept(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", SLOW_WRITER, str(tmp_path), KEY],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    killed, live = writers
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begun\n"
        assert len(_temporary(tmp_path)) == 2
        killed.kill()
        killed.wait()
        store.write_bytes(KEY, b"mine")
        assert store.read_bytes(KEY) == b"mine"
        assert len(_temporary(tmp_path)) == 1
        live.communicate(b"go on\n")
        assert live.returncode == 0
        assert store.read_bytes(KEY) == b"from another process"
        assert _files(tmp_path) == [KEY]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_later_process_with_the_same_number_is_not_taken_for_the_writer() -> None:
    mine = process_name()
    host, pid, started = mine.rsplit("-", 2)
    assert not is_gone(mine)
    assert is_gone(f"{host}-{pid}-{int(started) - 1}")
    assert not is_gone(f"elsewhere-{pid}-{int(started) - 1}")
    assert not is_gone("")
    assert not is_gone("no-process-at-all")


def test_a_root_that_is_a_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    root = tmp_path / "file"
    root.write_text("not a folder")
    store = Store(str(root))
    assert not store.exists(KEY)
    with pytest.raises(StoreError, match=f"{root}.*set SPEECH_STORE to a folder"):
        store.write_bytes(KEY, b"")
    assert root.read_text() == "not a folder"


@pytest.mark.parametrize("root", ["foo://bucket/prefix", "s4://bucket"])
def test_an_unknown_kind_of_store_is_refused_and_not_tried_again(root: str) -> None:
    with pytest.raises(StoreError, match=r"cannot be opened.*folder or an fsspec URL") as raised:
        Store(root).exists(KEY)
    assert not raised.value.retryable
    done = _speech(root)
    assert done.returncode == 2
    assert done.stderr.count("cannot be opened") == 1


def test_a_file_size_limit_is_named_and_finished_shards_are_kept(
    tmp_path: Path, short_corpus: Corpus
) -> None:
    store = archive_short_corpus(str(tmp_path), short_corpus)
    with pytest.raises(StoreError, match=r"train\.000.*ulimit -f"):
        _limited(lambda: store.write_bytes(KEY, bytes(200_000)), 100_000)
    assert not store.exists(KEY)
    limit = _size_between_shards(store, tmp_path)
    done = _speech(str(tmp_path), preexec=lambda: _limit_file_size(limit))
    _assert_full(done, store, "file-size limit is reached (ulimit -f)")
    _assert_completes(store)


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_is_full_or_read_only_is_named_and_a_rerun_completes(
    kind: str, tmp_path: Path, short_corpus: Corpus
) -> None:
    if not CAN_MOUNT:  # The same through what every user may do.
        _without_mounts(kind, tmp_path, short_corpus)
        return
    store = archive_short_corpus(str(tmp_path / "store"), short_corpus)
    root, copy = store.root, str(tmp_path / "copy")
    if kind == "full":
        archives_kib = sum(p.stat().st_size for p in Path(root).rglob("*.parquet")) // 1024
        # Room for the archives and about half of the speech.
        room_kib = archives_kib + _speech_kib(tmp_path, short_corpus) // 2
        mount = f"mount -t tmpfs -o size={room_kib}k none"
        script = f'cp -r "$1" "$2" && {mount} "$1" && cp -r "$2/." "$1" || exit 9; shift 2; "$@"'
        script += f'; code=$?; cp -r "{root}/." "{copy}"; exit $code'
        says = "the disk is full; free space and run again"
    else:
        script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 9; shift 2; "$@"'
        says = "read-only; set SPEECH_STORE to a place that can be written"
    done = _speech(root, before=[*NAMESPACE, "sh", "-c", script, "sh", root, copy])
    if kind == "full":
        store = Store(copy)
        _assert_full(done, store, says)
    else:
        assert done.returncode == 1, done.stderr
        assert says in done.stderr
        assert root in done.stderr
        assert store.keys("speech") == []
        assert not _temporary(Path(root))
    _assert_completes(store)


def _without_mounts(kind: str, tmp_path: Path, corpus: Corpus) -> None:
    store = archive_short_corpus(str(tmp_path), corpus)
    if kind == "full":
        limit = _size_between_shards(store, tmp_path)
        done = _speech(str(tmp_path), preexec=lambda: _limit_file_size(limit))
        _assert_full(done, store, "file-size limit is reached")
    else:
        tmp_path.chmod(0o555)
        try:
            done = _speech(str(tmp_path), preexec=_give_up_root)
        finally:
            tmp_path.chmod(0o755)
        assert done.returncode == 1, done.stderr
        assert "set SPEECH_STORE to a place that this user can write" in done.stderr
    _assert_completes(store)


def _assert_full(done: subprocess.CompletedProcess[str], store: Store, says: str) -> None:
    """Some shards are done and whole, the failed one is named with its remedy, no file is left."""
    assert done.returncode == 1, done.stderr
    assert says in done.stderr
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    made = store.keys("speech")
    assert 0 < len(made) < len(SHARDS)
    for key in made:
        with store.open(key) as file:
            read_footer(file, SPEECH_SCHEMA, key)
            assert pq.read_table(file, page_checksum_verification=True).num_rows
    assert not _temporary(Path(store.root))


def _assert_completes(store: Store) -> None:
    kept = {key: store.read_bytes(key) for key in store.keys("speech")}
    done = _speech(store.root)
    assert done.returncode == 0, done.stderr
    assert len(store.keys("speech")) == len(SHARDS)
    assert {key: store.read_bytes(key) for key in kept} == kept


def _speech(
    root: str, *, before: list[str] | None = None, preexec: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """The real work process over every shard."""
    command = [sys.executable, "-m", "speech_assets.work.speech", "--store", root, "--workers", "1"]
    return subprocess.run(
        [*(before or []), *command, "--shards", *SHARDS],
        cwd=ROOT,
        preexec_fn=preexec,
        capture_output=True,
        text=True,
        check=False,
    )


def _size_between_shards(store: Store, tmp_path: Path) -> int:
    """A file-size limit that some speech shards keep to and others do not."""
    sizes = sorted(_speech_sizes(store, tmp_path))
    assert sizes[0] < sizes[-1]
    first = _speech_sizes(store, tmp_path)[0]
    assert first < sizes[-1], "the first shard must not be the largest"
    return (first + sizes[-1]) // 2


def _speech_sizes(store: Store, tmp_path: Path) -> list[int]:
    """Bytes of the speech shards of `store`'s archives, in the order of SHARDS."""
    copy = tmp_path.parent / f"{tmp_path.name}-measured"
    if not copy.exists():
        shutil.copytree(Path(store.root) / "archives", copy / "archives")
        assert _speech(str(copy)).returncode == 0
    return [
        (copy / "speech" / key.split(".")[0] / f"{key}.parquet").stat().st_size for key in SHARDS
    ]


def _speech_kib(tmp_path: Path, corpus: Corpus) -> int:
    store = archive_short_corpus(str(tmp_path / "to-measure"), corpus)
    return sum(_speech_sizes(store, tmp_path)) // 1024


def _limited(write: Callable[[], None], limit: int) -> None:
    """Call `write` under a file-size limit, which is this process' own for so long."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def _limit_file_size(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def _give_up_root() -> None:
    if os.geteuid() == 0:
        os.setgid(65_534)
        os.setuid(65_534)


def _files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _temporary(root: Path) -> list[Path]:
    return list(root.rglob("*.tmp"))


def test_a_parquet_writer_hands_on_what_the_disk_said(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    table = pa.table({"a": os.urandom(400_000).hex().split("0")})
    with pytest.raises(StoreError, match="ulimit -f"):
        _limited(lambda: store.write(KEY, lambda file: pq.write_table(table, file)), 100_000)
    assert _files(tmp_path) == []
