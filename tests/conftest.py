"""Fixtures that many tests share: real clips of the embedded corpus, a small corpus, a browser."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources.store import Store
from speech_assets.corpus import sources
from speech_assets.corpus.repack import repack_split
from speech_assets.corpus.shards import ARCHIVE_SCHEMA, Shard
from speech_assets.profiles import Corpus

ROOT = Path(__file__).parent.parent
EMBEDDED = ROOT / "speech_assets" / "corpus" / "embedded"
CODEC = ROOT / "server" / "embedded" / "codec"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Longest first: half a minute and more each with two test processes, by `--durations=0`. A file is
# one process' work; begun last, the longest would leave the other process idle for minutes.
LONG_FILES = (
    *("deploy/test_ray.py", "test_ui.py", "test_quality_kill.py", "assets/test_checkpoints.py"),
    *("quantize/test_checkpoint.py", "deploy/test_celery.py", "test_load_kill.py"),
    *("test_kill.py", "server/test_faults_under_load.py", "server/test_faults.py"),
    *("test_samples.py", "server/test_replicas.py", "automation/test_daemon.py"),
    *("test_load_tests.py", "work/test_ab.py", "work/test_bench_backfill.py"),
    *("work/test_decode_speed.py", "server/test_malformed.py", "deploy/test_devices.py"),
    *("server/test_long_text_memory.py", "server/test_admission.py", "test_ladder.py"),
    *("work/test_soak.py", "deploy/test_kubernetes.py", "deploy/test_postgres.py"),
    *("test_load_ui.py", "server/test_long_speech.py", "server/test_api_processes.py"),
    *("resources/test_store_s3.py", "results/test_pages.py", "test_voice_assets.py"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several test processes a folder for temporary files, and with it device locks,
    of its own: two would wait for each other's device."""
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) is None:
        return
    folder = tempfile.mkdtemp(prefix=f"{worker}-")
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the long files begin first; the others stay in their order."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session")
def browser_path() -> str:
    """A Chromium to look at pages with; CI must have one."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine (Debian, Ubuntu: apt-get install chromium)")
    assert found, "CI installs Chromium; .ci/run says how"
    return found


@pytest.fixture(scope="session")
def embedded_rows() -> list[dict[str, Any]]:
    """Rows of the embedded corpus' first file, as they are stored."""
    return pq.read_table(sorted(EMBEDDED.glob("train-*.parquet"))[0]).to_pylist()


@pytest.fixture(scope="session")
def short_rows(embedded_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """12 rows of short clips: enough for several shards, encoded in seconds."""
    short = sorted(embedded_rows, key=lambda row: len(row["audio"]["bytes"]))[8:20]
    return sorted(short, key=lambda row: row["id"])


@pytest.fixture(scope="session")
def short_corpus(
    tmp_path_factory: pytest.TempPathFactory, short_rows: list[dict[str, Any]]
) -> Corpus:
    """A corpus of the short rows: split train with three shards, dev with one."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, rows in (("train-0", short_rows[:9]), ("dev-0", short_rows[9:])):
        pq.write_table(pa.Table.from_pylist(rows, ARCHIVE_SCHEMA), folder / f"{name}.parquet")
    return Corpus(
        name="short",
        kind="parquet",
        path=str(folder),
        splits={"train": "train-*.parquet", "dev": "dev-*.parquet"},
        shard_rows=3,
    )


@pytest.fixture(scope="session")
def short_profile(short_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment that makes the short corpus and the embedded codec the profile in force.

    It speaks with no preset: test_samples.py has the server's part.
    """
    table = tmp_path_factory.mktemp("profiles") / "profiles.toml"
    table.write_text(
        f"""
        [corpora.short]
        kind = "parquet"
        path = "{short_corpus.path}"
        splits = {{ train = "train-*.parquet", dev = "dev-*.parquet" }}
        shard_rows = 3
        [profiles.short]
        corpus = "short"
        codec = "embedded"
        presets = []
        """
    )
    return {"SPEECH_PROFILES": str(table), "SPEECH_PROFILE": "short"}


def archive_short_corpus(root: str, corpus: Corpus) -> Store:
    """A store at `root` with the archives of the short corpus."""
    store = Store(root)
    for split, files in sources.source_files(corpus).items():
        repack_split(corpus, split, files, 3 if split == "train" else 1, store, lambda _: None)
    return store


SHORT_SHARDS = [Shard("train", 0), Shard("train", 1), Shard("train", 2), Shard("dev", 0)]
