"""Load tests whose client, server or run dies: nothing is left, and the next one works."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest
from lineage_run import ROOT, Lineage, wait_for

from resources.store import Store
from speech_assets.results.stored import stored_ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENT, SERVER = "speech_assets.bench.client", "server"
CONFIG = {
    "ops": {
        "load_tests": {
            "config": {
                "levels": "2",
                "loads": "generating",
                "duration_s": 3.0,
                "warmup_s": 0.0,
                "until_failure": False,
                "allow_client_limit": True,
            }
        }
    }
}
RUN = f"""
import sys
import dagster as dg
from speech_assets.definitions import defs
from speech_assets.demo import Step, run_step
from speech_assets.runs import end_lost_runs

with dg.DagsterInstance.get() as instance:
    end_lost_runs(instance)
    step = Step("load_test", "", "embedded-bf16", {CONFIG!r})
    message = run_step(defs, instance, step)
print(message)
sys.exit(bool(message))
"""
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class LoadRun(Lineage):
    """A load test as `make demo` runs it."""

    def start(self) -> subprocess.Popen[bytes]:
        """The load test in a session of its own."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        (self.folder / "dagster.yaml").write_bytes((ROOT / "dagster.yaml").read_bytes())
        with self.output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", RUN],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def results(self) -> list[dict]:
        """Results in the store, oldest first."""
        store = Store(self.root)
        return [store.read_json(f"results/{name}.json") for name in stored_ids(store)]


@pytest.fixture
def load_run(tmp_path: Path) -> Iterator[LoadRun]:
    load_run = LoadRun(tmp_path, {"SPEECH_PROFILE": "embedded"})
    yield load_run
    for process in load_run.processes():
        with contextlib.suppress(psutil.Error):
            process.kill()


def running(load_run: LoadRun, module: str) -> psutil.Process:
    """The process of that module, waited for."""
    wait_for(lambda: bool(load_run.processes(module)), f"{module} runs")
    return load_run.processes(module)[0]


def test_a_run_that_is_killed_leaves_nothing_and_the_next_one_works(load_run: LoadRun) -> None:
    process = load_run.start()
    running(load_run, CLIENT)
    load_run.kill(process)  # Waits until no process of it is left.
    assert load_run.results() == []
    load_run.run()
    [result] = load_run.results()
    assert result["status"] == "complete"


def test_a_run_whose_client_and_then_server_are_killed_starts_again_and_ends_well(
    load_run: LoadRun,
) -> None:
    process = load_run.start()
    client = running(load_run, CLIENT)
    first = running(load_run, SERVER)
    client.kill()
    wait_for(lambda: not first.is_running(), "the server of the lost test has ended")
    second = running(load_run, SERVER)
    running(load_run, CLIENT)
    second.kill()
    assert process.wait() == 0, load_run.output.read_text()[-4_000:]
    load_run.kill(process)
    [result] = load_run.results()
    assert result["status"] == "complete"
    assert result["rows"][0]["completed"] > 0
    said = load_run.output.read_text()
    assert "client process 0 was killed by signal 9" in said
