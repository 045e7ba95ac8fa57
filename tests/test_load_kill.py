"""Load tests whose client, server or run dies: nothing is left, and the next one works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lineage_run import StepsRun, wait_for

from speech_assets.step import Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psutil

CLIENT, SERVER = "speech_assets.bench.client", "server"
CONFIG = {
    "levels": "2",
    "loads": "generating",
    "duration_s": 3.0,
    "warmup_s": 0.0,
    "until_failure": False,
    "allow_client_limit": True,
}
LOAD_TEST = Step(
    "load_test", "", "embedded-bf16", {"ops": {"load_tests": {"config": CONFIG}}}, is_served=True
)
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def load_run(tmp_path: Path) -> Iterator[StepsRun]:
    load_run = StepsRun(tmp_path, {"SPEECH_PROFILE": "embedded"}, steps=[LOAD_TEST])
    yield load_run
    load_run.end()


def running(load_run: StepsRun, module: str) -> psutil.Process:
    """The process of that module, waited for."""
    return wait_for(lambda: load_run.processes(module), f"{module} runs")[0]


def test_a_run_that_is_killed_leaves_nothing_and_the_next_one_works(load_run: StepsRun) -> None:
    process = load_run.start()
    running(load_run, CLIENT)
    load_run.kill(process)  # Waits until no process of it is left.
    assert load_run.stored() == []
    load_run.run()
    [result] = load_run.stored()
    assert result["status"] == "complete"


def test_a_run_whose_client_and_then_server_are_killed_starts_again_and_ends_well(
    load_run: StepsRun,
) -> None:
    process = load_run.start()
    first = running(load_run, SERVER)
    running(load_run, CLIENT).kill()
    wait_for(lambda: not first.is_running(), "the server of the lost test has ended")
    second = running(load_run, SERVER)
    running(load_run, CLIENT)
    second.kill()
    assert process.wait() == 0, load_run.output.read_text()[-4_000:]
    load_run.kill(process)
    [result] = load_run.stored()
    assert result["status"] == "complete"
    assert result["rows"][0]["completed"] > 0
    said = load_run.output.read_text()
    assert "client process 0 was killed by signal 9" in said
