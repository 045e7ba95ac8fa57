"""What the engines' tests share: prepared stores, what a run here makes of one, Postgres."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from conftest import SHORT_SHARDS, archive_short_corpus
from deploy.deployment import DEPLOYED, objects_added

from resources.store import Store
from speech_assets.definitions import build_definitions
from speech_assets.demo import QUIET
from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions
from speech_assets.work.speech_shards import make_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Corpus


@pytest.fixture(scope="session")
def device_profile(
    short_profile: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The short profile, as one whose runs ask a cluster for a GPU each."""
    table = tmp_path_factory.mktemp("device_profile") / "profiles.toml"
    text = Path(short_profile["SPEECH_PROFILES"]).read_text(encoding="utf-8")
    table.write_text(f"{text}\ngpus_per_run = 1\n", encoding="utf-8")
    return {**short_profile, "SPEECH_PROFILES": str(table)}


@pytest.fixture(scope="session")
def archived(tmp_path_factory: pytest.TempPathFactory, short_corpus: Corpus) -> Store:
    """A store with the archives of the short corpus and nothing else; to be copied."""
    return archive_short_corpus(str(tmp_path_factory.mktemp("archived")), short_corpus)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, archived: Store) -> Store:
    """The same with speech; to be copied."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(archived.root, folder, dirs_exist_ok=True)
    store = Store(str(folder))
    with DecodingPool(1, SpeechOptions()) as pool:
        for shard in SHORT_SHARDS:
            make_shard(store, shard, SpeechOptions(), pool)
    return store


@pytest.fixture(scope="session")
def shards_made_here(
    tmp_path_factory: pytest.TempPathFactory, archived: Store, short_profile: dict[str, str]
) -> dict[str, bytes]:
    """What the job `tokenize` adds to that store when it runs in this process, by key."""
    folder = tmp_path_factory.mktemp("reference")
    shutil.copytree(archived.root, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**short_profile, "SPEECH_STORE": str(folder)}.items():
            environment.setenv(name, value)
        job = build_definitions().resolve_job_def("tokenize")
        with dg.DagsterInstance.ephemeral() as instance:
            for shard in DEPLOYED:
                assert job.execute_in_process(
                    instance=instance, partition_key=shard.key, run_config=QUIET
                ).success
    return objects_added(Store(str(folder)), archived)


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Makes a new database in a Postgres server that ends with the session; gives its URL."""
    with pytest.MonkeyPatch.context() as environment:
        # Its lock lies there, and a machine without a login has none.
        environment.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        from pgserver.postgres_server import get_server

    # As root it runs Postgres as a user `pgserver`, whom it makes and lets into all parent folders.
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    server = get_server(folder, cleanup_mode="delete")
    numbers = itertools.count()
    try:

        def create() -> str:
            name = f"test_{next(numbers)}"
            server.psql(f"CREATE DATABASE {name};")
            return server.get_uri(name).replace("postgresql:", "postgresql+psycopg2:", 1)

        yield create
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
