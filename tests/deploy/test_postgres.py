"""History in Postgres: runs, events and materializations, written by several processes at once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from deploy.deployment import DEPLOYED, Deployment, objects_added

from resources.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = [shard.key for shard in DEPLOYED]
WRITERS, EVENTS = 2, 20
# Says that it is ready, waits for a line, then writes as fast as it can.
WRITER = f"""
import sys
import dagster as dg

with dg.DagsterInstance.get() as instance:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range({EVENTS}):
        partition = f"{{sys.argv[1]}}.{{number:03}}"
        instance.report_runless_asset_event(dg.AssetMaterialization("words", partition=partition))
"""
pytestmark = pytest.mark.timeout(900)


def test_a_backfill_under_postgres_leaves_its_runs_events_and_materializations_there(
    tmp_path: Path,
    archived: Store,
    short_profile: dict[str, str],
    new_database: Callable[[], str],
    shards_made_here: dict[str, bytes],
) -> None:
    services = {"DAGSTER_POSTGRES_URL": new_database(), "SPEECH_CPU_DEVICES": "2"}
    deployment = Deployment(tmp_path, short_profile, engine="postgres", services=services)
    shutil.copytree(archived.root, deployment.root)
    deployment.allow(2)
    runs = deployment.backfill(KEYS)
    assert objects_added(Store(deployment.root), archived) == shards_made_here
    with deployment.instance() as instance:  # Another connection: it is in the database.
        assert type(instance.event_log_storage).__name__ == "PostgresEventLogStorage"
        assert {run.run_id for run in instance.get_runs()} == {run.run_id for run in runs}
        events = [event for run in runs for event in instance.all_logs(run.run_id)]
        kinds = [event.dagster_event_type for event in events if event.dagster_event]
        assert kinds.count(dg.DagsterEventType.ASSET_MATERIALIZATION) == 2 * len(KEYS)
        assert kinds.count(dg.DagsterEventType.RUN_SUCCESS) == len(runs)
        event = instance.get_latest_materialization_event(dg.AssetKey("tokens"))
        assert event.asset_materialization.metadata["agreement"].value == 1.0
        assert instance.event_log_storage.get_concurrency_info("gpu").active_slot_count == 0
    assert not list(tmp_path.rglob("*.db"))


def test_processes_that_write_at_once_lose_no_event(
    tmp_path: Path, short_profile: dict[str, str], new_database: Callable[[], str]
) -> None:
    services = {"DAGSTER_POSTGRES_URL": new_database()}
    deployment = Deployment(tmp_path, short_profile, engine="postgres", services=services)
    deployment.prepare()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(number)],
            cwd=tmp_path,
            env=deployment.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        assert [writer.wait(120) for writer in writers] == [0] * WRITERS
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    with deployment.instance() as instance:
        written = instance.get_materialized_partitions(dg.AssetKey("words"))
    assert written == {f"{w}.{number:03}" for w in range(WRITERS) for number in range(EVENTS)}
