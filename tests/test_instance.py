"""The Dagster instance of dagster.yaml, and the two places that name the code location."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pytest
import yaml
from dagster import AssetKey, DagsterInstance
from dagster._core.instance.ref import InstanceRef
from dagster._core.scheduler.instigation import InstigatorType, TickStatus
from dagster._core.storage.compute_log_manager import ComputeIOType

from speech_assets.assets.corpus import DOWNLOAD_POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
ONE_ASSET = """
import dagster

@dagster.asset
def words() -> None: ...

defs = dagster.Definitions(assets=[words], executor=dagster.in_process_executor)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with this project's dagster.yaml and nothing else, from which commands run."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "dagster.yaml").write_bytes((ROOT / "dagster.yaml").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DAGSTER_HOME", raising=False)
        yield folder


@pytest.fixture(scope="module")
def instance(folder: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(folder))) as instance:
        yield instance


def test_history_is_the_same_with_and_without_dagster_home(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions = tmp_path / "definitions.py"
    definitions.write_text(ONE_ASSET)
    command = ["asset", "materialize", "-f", str(definitions), "--select", "words"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "dagster", *command], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert run.is_success
        assert instance.get_latest_materialization_event(AssetKey("words")) is not None


def test_everything_that_the_instance_keeps_lies_under_dot_dagster(
    instance: DagsterInstance, folder: Path
) -> None:
    with instance.compute_log_manager.open_log_stream(["log"], ComputeIOType.STDOUT) as log:
        cast("IO[str]", log).write("spoken\n")  # Annotated as bytes, opened as text.
    written = [path.read_text() for path in (folder / ".dagster" / "logs").rglob("*.out")]
    assert "spoken\n" in written
    assert Path(instance.storage_directory()).parts[0] == ".dagster"
    assert {path.name for path in folder.iterdir()} == {"dagster.yaml", ".dagster"}


def test_a_pool_without_a_limit_of_its_own_takes_one_step_at_a_time(
    instance: DagsterInstance,
) -> None:
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("cpu")
    first = storage.claim_concurrency_slot("cpu", "run-1", "step")
    second = storage.claim_concurrency_slot("cpu", "run-2", "step")
    assert first.is_claimed
    assert not second.is_claimed


def test_a_download_keeps_no_slot_of_the_cpu(instance: DagsterInstance) -> None:
    storage = instance.event_log_storage
    for pool in (DOWNLOAD_POOL, "cpu-beside-it"):
        storage.initialize_concurrency_limit_to_default(pool)
    claims = [
        storage.claim_concurrency_slot(pool, run, "step").is_claimed
        for pool, run in ((DOWNLOAD_POOL, "a"), (DOWNLOAD_POOL, "b"), ("cpu-beside-it", "c"))
    ]
    assert claims == [True, False, True]


def test_a_pool_takes_as_many_steps_as_it_is_told(instance: DagsterInstance) -> None:
    storage = instance.event_log_storage
    storage.set_concurrency_slots("gpu", 2)
    claims = [storage.claim_concurrency_slot("gpu", f"run-{n}", "step") for n in range(3)]
    assert [claim.is_claimed for claim in claims] == [True, True, False]


def test_runs_queue_behind_four(instance: DagsterInstance) -> None:
    queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == 4


def test_slots_of_a_killed_run_come_back_and_a_lost_run_ends(instance: DagsterInstance) -> None:
    assert instance.run_monitoring_enabled
    assert 0 < instance.run_monitoring_max_runtime_seconds <= 86_400
    free_after = instance.run_monitoring_settings["free_slots_after_run_end_seconds"]
    assert 0 < free_after <= 300


def test_nothing_is_sent_to_dagster(instance: DagsterInstance) -> None:
    assert not instance.telemetry_enabled


@pytest.mark.parametrize("kind", [InstigatorType.SCHEDULE, InstigatorType.SENSOR])
def test_ticks_that_did_something_or_nothing_are_dropped_in_time(
    instance: DagsterInstance, kind: InstigatorType
) -> None:
    kept_days = instance.get_tick_retention_settings(kind)
    ended = [TickStatus.SKIPPED, TickStatus.FAILURE, TickStatus.SUCCESS]
    assert all(0 < kept_days[status] <= 90 for status in ended)


def test_the_workspace_and_the_project_metadata_name_the_same_code_location() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text(encoding="utf-8"))
    [entry] = workspace["load_from"]
    module = entry["python_module"]
    project = _tool_tables()["dagster"]
    assert module["module_name"] == project["module_name"] == "speech_assets.definitions"
    assert module["location_name"] == project["code_location_name"] == "speech_assets"


def _tool_tables() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
