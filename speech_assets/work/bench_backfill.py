"""What a backfill costs besides its work: a thousand shards of one short clip each.

A daemon of its own, with this folder's dagster.yaml, fills `speech` and `tokens` of all shards, as
a backfill that is launched in the UI does. The result says what a shard took, what its part of each
step was and how much of that was work, and whether the storage ever said that it was locked.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster_graphql.client.query import LAUNCH_PARTITION_BACKFILL_MUTATION

from resources.scratch import scratch_folder
from resources.store import Store
from speech_assets.assets.corpus import SHARDS_PER_RUN
from speech_assets.corpus.benchmark_corpora import SPLIT, tiny_corpus
from speech_assets.errors import SpeechAssetsError
from speech_assets.results.provenance import device_of, measurement_began
from speech_assets.results.result import Figure, Result
from speech_assets.work import worker
from speech_assets.work.dagster_home import DAEMON_LOG, DagsterHome

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

KIND = "backfill"
FULL_PARTITIONS = 1_000
ASSETS = ("speech", "tokens")
_LOCKED = re.compile(rb"database is locked|database table is locked|SQLITE_BUSY", re.IGNORECASE)
_LOOK_EVERY_S = 2.0


class BackfillError(SpeechAssetsError):
    """The backfill did not begin, or did not end as it should."""


def main() -> None:
    """Entry point of `python -m speech_assets.work.bench_backfill`."""
    parser = worker.argument_parser("bench_backfill", __doc__ or "")
    add = parser.add_argument
    add("--partitions", type=worker.at_least(1), default=FULL_PARTITIONS)
    add("--limit-s", type=worker.above_zero, default=7_200.0, help="give up after so long")
    worker.add_result_store(parser)
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = measurement_began()
    with scratch_folder("backfill") as folder:
        profiles, keys = tiny_corpus(folder, arguments.partitions)
        home = DagsterHome.made(
            folder,
            {
                "SPEECH_PROFILES": str(profiles),
                "SPEECH_PROFILE": "tiny",
                "SPEECH_STORE": str(folder / "store"),
            },
        )
        reporter.log(f"archives of {len(keys)} shards")
        home.run(
            *home.command("dagster", "asset", "materialize"),
            "--select", "archives", "--partition", SPLIT,
        )  # fmt: skip
        reporter.start(len(keys), "shards")
        with home.daemon() as daemon:
            began_s = time.monotonic()
            backfill_id = _launch(home, keys)
            launched_s = time.monotonic() - began_s
            with dg.DagsterInstance.from_config(str(folder)) as instance:
                _wait(instance, backfill_id, home, daemon, arguments.limit_s, reporter)
                wall_s = time.monotonic() - began_s
                rows, figures = _figures(instance, backfill_id, keys, wall_s)
        figures["launch_s"] = Figure(launched_s, "s")
        figures["lock_errors"] = Figure(_lock_errors(folder), "matches")
        figures["storage_mib"] = Figure(_size_mib(folder / ".dagster" / "storage"), "MiB")
    result = Result(
        kind=KIND,
        name="sqlite",
        started_at=started_at,
        reduced=arguments.partitions < FULL_PARTITIONS,
        device=device_of("cpu"),
        command=f"python -m speech_assets.work.bench_backfill --partitions {arguments.partitions}",
        config={
            "partitions": arguments.partitions,
            "assets": list(ASSETS),
            "shards_per_run": SHARDS_PER_RUN,
            "storage": "sqlite",
        },
        rows=rows,
        figures=figures,
    )
    store = Store(arguments.out)
    store.write_json(result.key, result.as_json())
    reporter.result(KIND, key=result.key, status=result.status)
    reporter.log(f"result: {store.path(result.key)}")


def _launch(home: DagsterHome, keys: Sequence[str]) -> str:
    """Launch the backfill as the UI does; its id."""
    wanted = {"assetSelection": [{"path": [name]} for name in ASSETS], "partitionNames": list(keys)}
    query, answer = home.folder / "launch.graphql", home.folder / "launched.json"
    query.write_text(LAUNCH_PARTITION_BACKFILL_MUTATION)
    home.run(
        *home.command("dagster-graphql"),
        "--file", str(query), "-v", json.dumps({"backfillParams": wanted}), "-o", str(answer),
    )  # fmt: skip
    launched: dict[str, Any] = json.loads(answer.read_text())["data"]["launchPartitionBackfill"]
    if "backfillId" not in launched:
        raise BackfillError(
            f"Dagster refused a backfill of {len(keys)} shards of {' and '.join(ASSETS)}: "
            f"{launched.get('message', launched)}"
        )
    return launched["backfillId"]


def _wait(
    instance: dg.DagsterInstance,
    backfill_id: str,
    home: DagsterHome,
    daemon: subprocess.Popen[bytes],
    limit_s: float,
    reporter: worker.Reporter,
) -> None:
    """Return when the backfill is complete.

    Raises:
        BackfillError: it failed, or is not complete `limit_s` from now.
    """
    until_s = time.monotonic() + limit_s
    done = 0
    while True:
        backfill = instance.get_backfill(backfill_id)
        made = len(instance.get_materialized_partitions(dg.AssetKey("tokens")))
        reporter.advance(made - done)
        done = made
        status = backfill.status.value if backfill else "unknown"
        if status == "COMPLETED_SUCCESS":
            return
        if status == "COMPLETED_FAILED":
            raise BackfillError(
                f"runs of the backfill failed: {_first_failure(instance, backfill_id)}"
            )
        if status in ("FAILED", "CANCELED", "unknown"):
            why = getattr(backfill, "error", None) or "Dagster does not say why"
            raise BackfillError(
                f"backfill {backfill_id} is {status} after {made} shards: {why}; run it again"
            )
        if daemon.poll() is not None:
            raise BackfillError(
                f"Dagster's daemon ended with {daemon.returncode} after {made} shards of backfill "
                f"{backfill_id}; the last that it logged: {home.log.read_text()[-600:]}"
            )
        if time.monotonic() > until_s:
            raise BackfillError(
                f"{made} shards were done when --limit-s {limit_s:g} was over; give it more "
                "seconds, or take fewer --partitions"
            )
        time.sleep(_LOOK_EVERY_S)


def _figures(
    instance: dg.DagsterInstance, backfill_id: str, keys: Sequence[str], wall_s: float
) -> tuple[list[dict[str, Any]], dict[str, Figure]]:
    """A row for each run, and what they come to.

    A step's seconds are from its start, when its pool had let it in, to its end. `speech` of one
    run goes on beside `tokens` of another: the steps' seconds do not add up to the wall's.
    """
    rows = [
        {
            "status": record.dagster_run.status.value,
            "waited_s": record.start_time - record.create_timestamp.timestamp(),
            "run_s": record.end_time - record.start_time,
            **_steps_s(instance, record.dagster_run.run_id),
        }
        for record in _runs(instance, backfill_id)
        if record.start_time is not None and record.end_time is not None
    ]
    failed = sum(row["status"] != dg.DagsterRunStatus.SUCCESS.value for row in rows)
    made = {name: len(instance.get_materialized_partitions(dg.AssetKey(name))) for name in ASSETS}
    count = len(keys)
    of_assets: dict[str, Figure] = {}
    for name in ASSETS:
        step_s = sum(float(row.get(f"{name}_step_s", 0.0)) for row in rows)
        work_s = _work_s(instance, name, count)
        of_assets[f"{name}_step_s_per_partition"] = Figure(step_s / count, "s", count)
        of_assets[f"{name}_work_s_per_partition"] = Figure(work_s / count, "s", count)
    return rows, {
        "partitions": Figure(min(made.values()), "partitions"),
        "runs": Figure(len(rows), "runs"),
        "failed_runs": Figure(failed, "runs", len(rows)),
        "wall_s": Figure(wall_s, "s"),
        "s_per_partition": Figure(wall_s / count, "s", count),
        **of_assets,
        "run_s_p50": Figure(statistics.median(float(row["run_s"]) for row in rows), "s", len(rows)),
    }


def _runs(instance: dg.DagsterInstance, backfill_id: str) -> Sequence[dg.RunRecord]:
    return instance.get_run_records(dg.RunsFilter(tags={"dagster/backfill": backfill_id}))


def _steps_s(instance: dg.DagsterInstance, run_id: str) -> dict[str, float]:
    """Seconds of each asset's step in a run, `<asset>_step_s`; of a step that ended."""
    return {
        f"{step.step_key}_step_s": step.end_time - step.start_time
        for step in instance.get_run_step_stats(run_id, list(ASSETS))
        if step.start_time is not None and step.end_time is not None
    }


def _first_failure(instance: dg.DagsterInstance, backfill_id: str) -> str:
    """What ended the first run that failed."""
    for record in reversed(_runs(instance, backfill_id)):
        run = record.dagster_run
        if run.status != dg.DagsterRunStatus.SUCCESS:
            said = [entry.message for entry in instance.all_logs(run.run_id) if entry.message]
            return f"run {run.run_id} is {run.status.value}: {' '.join(said[-2:])[:600]}"
    return "none of its runs says why"


def _work_s(instance: dg.DagsterInstance, asset: str, count: int) -> float:
    """Seconds that the asset's own work took, of all its shards, each from read to stored."""
    newest: dict[str, float] = {}
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(dg.AssetKey(asset), limit=count, cursor=cursor)
        for record in page.records:  # Newest first.
            materialization = record.asset_materialization
            if materialization is not None and "seconds" in materialization.metadata:
                value = materialization.metadata["seconds"].value
                newest.setdefault(str(materialization.partition), float(str(value)))
        if not page.has_more:
            return sum(newest.values())
        cursor = page.cursor


def _lock_errors(folder: Path) -> int:
    """How often the daemon's and the runs' logs say that the storage was locked."""
    logs = [folder / DAEMON_LOG, *(folder / ".dagster" / "logs").rglob("*.*")]
    return sum(len(_LOCKED.findall(log.read_bytes())) for log in logs if log.is_file())


def _size_mib(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / (1 << 20)


if __name__ == "__main__":
    main()
