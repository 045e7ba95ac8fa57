"""The backfill on Ray: a real cluster of this one machine, by deploy/ray alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
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
# Of two cores that other work has. Ray gives the processes of a node 30 s, by numbers in its code
# that nothing changes: a head that was slower ends by itself, and is started again.
STARTS = 3
ANSWERS_WITHIN_S = 60.0
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Head:
    """A head node as docs/scale-out.md starts it; it says that it has a GPU, which Ray does not
    look for."""

    process: subprocess.Popen[bytes]
    folder: Path
    jobs: str  # Address of its job server.
    deployment: Deployment

    @classmethod
    def start(cls, deployment: Deployment) -> Head:
        """Start it; it is not there yet."""
        port, dashboard, client_server, agent = (str(port) for port in _free_ports(4))
        # Sockets lie below it, and their paths may have 107 characters.
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        with (deployment.folder / "ray.txt").open("ab") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
                    *("--node-ip-address", "127.0.0.1", "--port", port),
                    *("--dashboard-host", "127.0.0.1", "--dashboard-port", dashboard),
                    # A server for `ray://`, which nothing here asks, is always started too. Where
                    # it is not told the agent's port it ends, and all with it, unless the node
                    # that tells it is there within 30 s.
                    *("--ray-client-server-port", client_server, "--runtime-env-agent-port", agent),
                    *("--num-cpus", "2", "--num-gpus", "1", "--object-store-memory", "100000000"),
                    *("--temp-dir", str(folder), "--disable-usage-stats"),
                ],
                cwd=deployment.folder,
                env={
                    **deployment.environment,
                    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
                    "TMPDIR": str(folder),  # Its dashboard puts sockets there, too.
                    "RAY_gcs_server_port_wait_time_s": "120",  # Of 20 s.
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(process, folder, f"http://127.0.0.1:{dashboard}", deployment)

    def is_there(self) -> bool:
        """Wait until its job server answers; False if the head has ended instead."""

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(
                    f"{self.jobs}/api/jobs/", timeout=ANSWERS_WITHIN_S, verify=False
                ).is_success
            return False

        wait_for(lambda: answers() or self.process.poll() is not None, "Ray's job server answers")
        return self.process.poll() is None

    def end(self) -> list[int]:
        """End it; what did not end with it and was killed."""
        left: list[psutil.Process] = []
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            end_group(self.process)
            _, left = psutil.wait_procs(self.deployment.processes(), timeout=60)
            for child in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(left, timeout=60)
            shutil.rmtree(self.folder, ignore_errors=True)
        return [child.pid for child in left]


@contextlib.contextmanager
def cluster(deployment: Deployment) -> Generator[Deployment]:
    """A cluster of one head node; all of it has ended with the context."""
    for _ in range(STARTS):
        head, left = Head.start(deployment), list[int]()
        try:
            is_there = head.is_there()
            if is_there:
                services = {**deployment.services, "RAY_API_SERVER_ADDRESS": head.jobs}
                yield replace(deployment, services=services)
        finally:
            left = head.end()
        if is_there:
            assert left == []
            return
    pytest.fail((deployment.folder / "ray.txt").read_text()[-4_000:])


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
        address = deployment.services["RAY_API_SERVER_ADDRESS"]
        jobs = httpx.get(f"{address}/api/jobs/", timeout=ANSWERS_WITHIN_S).json()
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


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
