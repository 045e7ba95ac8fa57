"""The backfill on Celery: a real worker and its real broker, by deploy/celery alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from deploy.deployment import DEPLOYED, Deployment, objects_added
from lineage_daemon import daemon
from lineage_run import ROOT, ending, wait_for

from resources.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

KEYS = [shard.key for shard in DEPLOYED]
QUEUES = "gpu,dagster"
TOKENS = "speech_assets.work.tokens"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """Address of a Redis server that ends with the test; CI must have one."""
    server = shutil.which("redis-server")
    if server is None and not os.environ.get("CI"):
        pytest.skip(
            "no redis-server on this machine (Debian, Ubuntu: apt-get install redis-server)"
        )
    assert server, "CI installs redis-server; .ci/run says how"
    import redis

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    with (tmp_path / "redis.txt").open("wb") as output:
        process = subprocess.Popen(
            [server, "--port", str(port), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    def answers() -> bool:
        assert process.poll() is None, (tmp_path / "redis.txt").read_text()
        try:
            with redis.Redis(port=port) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    with ending(process):
        wait_for(answers, "Redis answers")
        yield f"redis://127.0.0.1:{port}/0"
        process.terminate()
        process.wait(60)


@pytest.fixture
def deployment(
    tmp_path: Path,
    archived: Store,
    device_profile: dict[str, str],
    new_database: Callable[[], str],
    broker: str,
) -> Deployment:
    services = {
        "DAGSTER_POSTGRES_URL": new_database(),
        "CELERY_BROKER_URL": broker,
        "CELERY_RESULT_BACKEND": broker,
    }
    deployment = Deployment(tmp_path, device_profile, engine="celery", services=services)
    shutil.copytree(archived.root, deployment.root)
    deployment.allow(2)
    return deployment


@contextlib.contextmanager
def worker(deployment: Deployment) -> Generator[subprocess.Popen[bytes]]:
    """A worker as docs/scale-out.md starts it; it and its children have ended with the context."""
    folders = [str(ROOT), str(ROOT / "deploy" / "celery")]
    with (deployment.folder / "worker.txt").open("ab") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "celery", "-A", "dagster_celery.app", "worker"),
                *("-Q", QUEUES, "--concurrency", "2", "--loglevel", "INFO"),
            ],
            cwd=deployment.folder,
            env={**deployment.environment, "PYTHONPATH": os.pathsep.join(folders)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    children: list[psutil.Process] = []
    left: list[psutil.Process] = []
    with ending(process):
        try:
            yield process
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):  # It has ended: its log says why.
                children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            try:
                process.wait(60)
            finally:
                _, left = psutil.wait_procs(children, timeout=60)
                for child in left:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
    assert [child.pid for child in left] == []


def test_a_backfill_on_a_celery_worker_makes_the_shards_that_a_run_here_makes(
    deployment: Deployment, archived: Store, shards_made_here: dict[str, bytes]
) -> None:
    with worker(deployment):
        runs = deployment.backfill(KEYS)
        tasks = {run.tags["dagster-celery/task_id"] for run in runs}
    assert len(tasks) == len(runs) > 1
    log = (deployment.folder / "worker.txt").read_text()
    assert all(f"[{task}] succeeded" in log for task in tasks), log[-4_000:]
    assert {run.tags["dagster-celery/queue"] for run in runs} == {"gpu"}
    assert objects_added(Store(deployment.root), archived) == shards_made_here


def test_a_run_whose_worker_process_was_killed_is_run_again_to_the_same_end(
    deployment: Deployment, archived: Store, shards_made_here: dict[str, bytes]
) -> None:
    shard = KEYS[0]
    deployment.launch([shard])
    with (
        worker(deployment) as process,
        deployment.instance() as instance,
        daemon(deployment) as dagster,
    ):
        [encoder] = wait_for(lambda: deployment.processes(TOKENS), "the encoding process runs")
        runner = encoder.parent()
        assert runner is not None
        assert runner.ppid() == process.pid
        runner.kill()
        psutil.wait_procs([encoder], timeout=60)
        assert not encoder.is_running()
        deployment.wait_for_the_end(instance, dagster)
        again, lost = instance.get_runs()
    assert (again.is_success, lost.is_failure) == (True, True)
    assert again.tags["dagster/parent_run_id"] == lost.run_id
    assert objects_added(Store(deployment.root), archived) == {
        key: data for key, data in shards_made_here.items() if shard in key
    }
