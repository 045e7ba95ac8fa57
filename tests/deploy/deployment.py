"""A backfill under an engine's own dagster.yaml, by the commands of docs/scale-out.md alone."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from conftest import SHORT_SHARDS
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES
from dagster._core.instance.ref import InstanceRef
from lineage_daemon import WORKSPACE, daemon
from lineage_run import ROOT, Lineage, wait_for

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from resources.store import Store

DEPLOYED = [SHORT_SHARDS[0], SHORT_SHARDS[1], SHORT_SHARDS[3]]
"""What is backfilled: of two splits, and more shards than work at once."""
BACKFILL_S = 600.0
GRAPHQL = [sys.executable, "-W", "ignore", "-c", "from dagster_graphql.cli import main; main()"]
LOOK_EVERY_S = 0.5  # Each look asks the database.


@dataclass(frozen=True)
class Deployment(Lineage):
    """A lineage under `deploy/<engine>/dagster.yaml`, which `services` tell where things are."""

    engine: str = ""
    services: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def configuration(self) -> Path:
        """The engine's dagster.yaml."""
        return ROOT / "deploy" / self.engine / "dagster.yaml"

    @property
    def environment(self) -> dict[str, str]:
        """That of the lineage, and where the services are."""
        return {**super().environment, **self.services}

    @contextmanager
    def instance(self) -> Generator[dg.DagsterInstance]:
        """Its instance, in this process."""
        with pytest.MonkeyPatch.context() as environment:
            for name, value in self.services.items():
                environment.setenv(name, value)
            with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(self.folder))) as instance:
                yield instance

    def allow(self, runs: int) -> None:
        """Let so many runs go on at once, as `dagster instance concurrency set` does."""
        self.prepare()
        with self.instance() as instance:
            for pool in ("cpu", "gpu"):
                instance.event_log_storage.set_concurrency_slots(pool, runs)

    def launch(self, shards: Sequence[str]) -> None:
        """Ask the daemon for a backfill of `shards`, by the command that a person gives."""
        self.prepare()
        asked = {"set": "tokenize_partition_set", "shards": list(shards)}
        done = subprocess.run(
            [
                *(*GRAPHQL, *WORKSPACE, "--file", str(ROOT / "deploy" / "backfill.graphql")),
                *("--variables", json.dumps(asked)),
            ],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert "LaunchBackfillSuccess" in done.stdout, done.stdout + done.stderr[-4_000:]

    def backfill(self, shards: Sequence[str]) -> list[dg.DagsterRun]:
        """The runs of a backfill of `shards`, all of which have succeeded."""
        self.launch(shards)
        with self.instance() as instance, daemon(self) as process:
            self.wait_for_the_end(instance, process)
            ended = list(instance.get_runs())
            assert all(run.is_success for run in ended), self.said(instance)
            for asset in ("speech", "tokens"):
                assert instance.get_materialized_partitions(dg.AssetKey(asset)) == set(shards)
        return ended

    def wait_for_the_end(
        self, instance: dg.DagsterInstance, process: subprocess.Popen[bytes]
    ) -> None:
        """Wait until the one backfill has ended, well or not, under the daemon `process`."""

        def has_ended() -> bool:
            assert process.poll() is None, self.said()
            [backfill] = instance.get_backfills()
            return backfill.status in BULK_ACTION_TERMINAL_STATUSES

        wait_for(has_ended, "the backfill has ended", BACKFILL_S, LOOK_EVERY_S)

    def said(self, instance: dg.DagsterInstance | None = None) -> str:
        """What there is to read when it went wrong."""
        lines = [self.output.read_text()[-8_000:]]
        for run in instance.get_runs() if instance else []:
            lines += [event.message[-500:] for event in instance.all_logs(run.run_id)[-8:]]
        return "\n".join(lines)


def objects_added(store: Store, archived: Store) -> dict[str, bytes]:
    """Bytes of what `store` holds beside the archives, by key."""
    before = set(archived.keys(""))
    return {key: store.read_bytes(key) for key in store.keys("") if key not in before}
