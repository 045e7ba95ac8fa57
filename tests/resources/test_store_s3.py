"""The store on S3, against moto's server in a process of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import boto3
import fsspec
import pytest
from lineage_run import Lineage, wait_for

from resources.errors import StoreError
from resources.store import COMMITTED, Store
from speech_assets.work.out_place import check_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "tokens/train/train.000.parquet"
BUCKET = "corpus"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that ends with the module's tests."""
    log = tmp_path_factory.mktemp("moto") / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        address = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
        wait_for(
            lambda: process.poll() is not None or bool(address.search(log.read_text())),
            "the server listens",
        )
        found = address.search(log.read_text())
        assert found is not None, log.read_text()
        yield found[1]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def keys(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment by which a client finds the server, in force during the test."""
    environment = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _forget_clients()
    yield environment
    _forget_clients()


@pytest.fixture
def store(keys: dict[str, str], request: pytest.FixtureRequest) -> Store:
    """A store of the test's own in a bucket that is there."""
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    client.close()
    return Store(f"s3://{BUCKET}/{request.node.name}/prefix")


def test_what_is_written_is_read_back_listed_and_deleted(store: Store) -> None:
    data = bytes(range(256)) * 40_000  # Read in more than one piece.
    store.write_bytes(KEY, data)
    store.write_json("manifests/train.json", {"rows": 3})
    assert not store.is_local
    assert store.exists(KEY)
    assert store.read_bytes(KEY) == data
    with store.open(KEY) as file:
        file.seek(-3, 2)
        assert file.read() == data[-3:]
        file.seek(256 * 30_000)
        assert file.read(256) == bytes(range(256))
    assert store.read_json("manifests/train.json") == {"rows": 3}
    assert store.keys("") == ["manifests/train.json", KEY]
    assert store.keys("tokens") == [KEY]
    store.delete(KEY)
    store.delete(KEY)
    assert not store.exists(KEY)
    assert store.keys("") == ["manifests/train.json"]


def test_an_object_without_its_mark_does_not_exist(store: Store) -> None:
    store.write_bytes(KEY, b"whole")
    _filesystem().rm_file(store.path(KEY) + COMMITTED)
    assert not store.exists(KEY)
    assert store.keys("") == []
    with pytest.raises(FileNotFoundError, match="not in the store"):
        store.read_bytes(KEY)
    _filesystem().rm_file(store.path(KEY))
    _filesystem().pipe_file(store.path(KEY) + COMMITTED, b"")
    assert not store.exists(KEY)
    assert store.keys("") == []


def test_an_object_that_is_overwritten_does_not_exist_until_the_new_one_is_whole(
    store: Store,
) -> None:
    store.write_bytes(KEY, b"old")

    def fill(file: object) -> None:
        assert not store.exists(KEY)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        store.write(KEY, fill)
    assert not store.exists(KEY)
    assert store.keys("") == []
    store.write_bytes(KEY, b"new")
    assert store.read_bytes(KEY) == b"new"


def test_what_another_process_writes_is_seen_at_once(store: Store) -> None:
    store.write_bytes("tokens/train/first", b"1")
    assert store.keys("tokens") == ["tokens/train/first"]
    assert not store.exists(KEY)
    script = (
        "import sys; from resources.store import Store\n"
        "Store(sys.argv[1]).write_bytes(sys.argv[2], b'2')"
    )
    subprocess.run([sys.executable, "-c", script, store.root, KEY], check=True)
    assert store.exists(KEY)
    assert store.keys("tokens") == ["tokens/train/first", KEY]


def test_an_unknown_bucket_is_named_with_the_remedy(keys: dict[str, str]) -> None:
    store = Store("s3://no-such-bucket/prefix")
    assert not store.exists(KEY)
    with pytest.raises(StoreError, match=r"no-such-bucket/prefix/tokens.*bucket and credentials"):
        store.write_bytes(KEY, b"")


def test_an_endpoint_that_does_not_answer_is_named_with_the_remedy(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # Nobody listens.
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        _forget_clients()
        with pytest.raises(StoreError, match=r"AWS_ENDPOINT_URL.*bucket and credentials"):
            Store(f"s3://{BUCKET}/prefix").write_bytes(KEY, b"")


def test_missing_credentials_are_named_with_the_remedy(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    _forget_clients()
    with pytest.raises(StoreError, match=r"(?i)credentials"):
        Store(f"s3://{BUCKET}/prefix").write_bytes(KEY, b"")


def test_credentials_that_are_refused_are_named_with_the_remedy(store: Store, server: str) -> None:
    store.write_bytes(KEY, b"whole")
    client = boto3.client("s3")
    client.put_bucket_policy(
        Bucket=BUCKET,
        Policy='{"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", '
        f'"Action": "s3:*", "Resource": "arn:aws:s3:::{BUCKET}/*"}}]}}',
    )
    try:
        with pytest.raises(StoreError, match=r"cannot .*bucket and credentials"):
            store.write_bytes(KEY, b"")
    finally:
        client.delete_bucket_policy(Bucket=BUCKET)
        client.close()


@pytest.mark.timeout(900)
def test_the_whole_lineage_on_s3_gives_what_it_gives_in_a_folder(
    store: Store,
    keys: dict[str, str],
    short_profile: dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "s3").mkdir()
    (tmp_path / "folder").mkdir()
    Lineage(tmp_path / "s3", short_profile, store.root).run()
    local = Lineage(tmp_path / "folder", short_profile)
    local.run()
    held = store.keys("")
    assert {key: store.read_bytes(key) for key in held} == local.objects()


def _filesystem() -> fsspec.AbstractFileSystem:
    return fsspec.filesystem("s3", use_listings_cache=False)


def _forget_clients() -> None:
    """fsspec keeps one client a process, with the address and keys that it was made with."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_a_place_of_results_is_tried_by_an_object_that_is_not_left(store: Store) -> None:
    check_store(store.root)
    assert _filesystem().find(store.path("")) == []
    with pytest.raises(StoreError, match=r"^--out s3://absent/x: cannot write absent/x/\..*bucket"):
        check_store("s3://absent/x")
