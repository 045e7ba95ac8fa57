"""The backfill on Ray: a real cluster of this one machine, by deploy/ray alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from deploy.deployment import DEPLOYED, Deployment, objects_added
from lineage_run import ROOT, wait_for

from resources.store import Store
from resources.work import end_group

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

BIN = Path(sys.executable).parent
"""Where `dagster` is, which a job of Ray's calls by its name."""
KEYS = [shard.key for shard in DEPLOYED]
pytestmark = pytest.mark.timeout(900)


@contextmanager
def cluster(deployment: Deployment) -> Generator[Deployment]:
    """A head node as docs/scale-out.md starts it; all of it has ended with the context.

    It says that it has a GPU, which Ray counts and does not look for.
    """
    ports = [_free_port() for _ in range(2)]
    # Sockets lie below it, and their paths may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    with (deployment.folder / "ray.txt").open("ab") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
                *("--node-ip-address", "127.0.0.1", "--port", str(ports[0])),
                *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(ports[1])),
                *("--num-cpus", "2", "--num-gpus", "1", "--object-store-memory", "100000000"),
                *("--temp-dir", str(folder), "--disable-usage-stats"),
            ],
            cwd=deployment.folder,
            env={**deployment.environment, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{ports[1]}"
    try:

        def answers() -> bool:
            assert process.poll() is None, (deployment.folder / "ray.txt").read_text()[-4_000:]
            try:
                return httpx.get(f"{address}/api/jobs/").is_success
            except httpx.TransportError:
                return False

        wait_for(answers, "Ray's job server answers")
        services = {**deployment.services, "RAY_API_SERVER_ADDRESS": address}
        yield replace(deployment, services=services)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            end_group(process)
            _, left = psutil.wait_procs(deployment.processes(), timeout=30)
            for child in left:
                child.kill()
            shutil.rmtree(folder, ignore_errors=True)
    assert [child.pid for child in left] == []


def test_a_backfill_on_a_ray_cluster_makes_the_shards_that_a_run_here_makes(
    tmp_path: Path,
    archived: Store,
    device_profile: dict[str, str],
    new_database: Callable[[], str],
    shards_made_here: dict[str, bytes],
) -> None:
    services = {"DAGSTER_POSTGRES_URL": new_database()}
    made = Deployment(tmp_path, device_profile, engine="ray", services=services)
    shutil.copytree(archived.root, made.root)
    made.prepare()
    with cluster(made) as deployment:
        runs = deployment.backfill(KEYS)
        jobs = httpx.get(f"{deployment.services['RAY_API_SERVER_ADDRESS']}/api/jobs/").json()
    assert {job["metadata"]["dagster/run-id"] for job in jobs} == {run.run_id for run in runs}
    assert {job["status"] for job in jobs} == {"SUCCEEDED"}
    assert objects_added(Store(made.root), archived) == shards_made_here


def test_an_engines_process_loads_nothing_of_ray() -> None:
    code = (
        "import importlib.metadata, sys\n"
        "from server.engine import EngineSettings\n"
        "from server.engine_core import set_environment\n"
        "importlib.metadata.version('ray')\n"
        "set_environment(EngineSettings(device='cpu'), in_process=True)\n"
        "import vllm.v1.engine.llm_engine\n"
        "print([name for name in sys.modules if name.startswith('ray.')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
