"""A backfill of a few tiny shards under a real daemon, by the command that records its cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from lineage_run import processes_with, wait_for

from speech_assets.corpus.benchmark_corpora import tiny_corpus
from speech_assets.results.result import read_result
from speech_assets.results.tables import backfill_table
from speech_assets.work.bench_backfill import _lock_errors, _work_s
from speech_assets.work.dagster_home import DagsterHome

ROOT = Path(__file__).parents[2]


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The way to find its processes, the device's lock, and what it must take away.
    temporary = folder / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "speech_assets.work.bench_backfill", *arguments, "--out", "out"],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(temporary),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=380,
    )
    assert not list(temporary.glob("speech-assets-backfill-*"))
    wait_for(lambda: not processes_with("TMPDIR", str(temporary)), "its processes are gone")
    return done


@pytest.mark.timeout(400)
def test_a_backfill_of_tiny_shards_ends_with_its_cost_and_leaves_nothing(tmp_path: Path) -> None:
    done = bench(tmp_path, "--partitions", "18")
    assert done.returncode == 0, done.stderr[-3_000:]
    (path,) = (tmp_path / "out").rglob("backfill/*/*/*.json")
    value = read_result(path)
    figures = {name: figure["value"] for name, figure in value["figures"].items()}
    assert (figures["partitions"], figures["runs"], figures["failed_runs"]) == (18, 2, 0)
    assert figures["lock_errors"] == 0
    assert figures["s_per_partition"] == pytest.approx(figures["wall_s"] / 18)
    for asset in ("speech", "tokens"):
        assert figures[f"{asset}_work_s_per_partition"] > 0
        step_s = sum(row[f"{asset}_step_s"] for row in value["rows"])
        assert figures[f"{asset}_step_s_per_partition"] == pytest.approx(step_s / 18)
    assert "| sqlite (reduced) |" in backfill_table([value])


def test_a_step_is_shown_with_its_work_and_not_at_all_where_only_encoding_was_timed() -> None:
    names = ("partitions", "runs", "failed_runs", "wall_s", "s_per_partition", "lock_errors")
    figures = {name: {"value": 4.0} for name in (*names, "work_s_per_partition", "storage_mib")}
    value: dict[str, Any] = {
        "reduced": False,
        "device": {"name": "A CPU"},
        "config": {"storage": "sqlite", "partitions": 4, "shards_per_run": 16},
        "figures": figures,
        "started_at": "2026-12-01T00:00:00Z",
    }
    assert "| - | - | 2026-12-01 |" in backfill_table([value])
    figures |= {
        f"{asset}_{part}_s_per_partition": {"value": seconds}
        for asset, part, seconds in (
            ("speech", "step", 0.9),
            ("speech", "work", 0.4),
            ("tokens", "step", 1.5),
            ("tokens", "work", 0.8),
        )
    }
    assert "| 0.9 (0.4) | 1.5 (0.8) | 2026-12-01 |" in backfill_table([value])


def test_of_a_shard_that_was_made_again_the_newest_work_counts() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for partition, metadata in (
            ("a", {"seconds": 9.0}),
            ("b", {"seconds": 2.0}),
            ("a", {"seconds": 0.5}),
            ("c", {}),
        ):
            instance.report_runless_asset_event(
                dg.AssetMaterialization("tokens", partition=partition, metadata=metadata)
            )
        # Also where they come in several pages.
        assert [_work_s(instance, "tokens", count) for count in (1, 2, 10)] == [2.5] * 3
        assert _work_s(instance, "speech", 10) == 0


@pytest.mark.timeout(400)
def test_a_backfill_that_takes_too_long_is_given_up_with_its_processes(tmp_path: Path) -> None:
    done = bench(tmp_path, "--partitions", "2", "--limit-s", "1")
    assert done.returncode == 2
    assert (
        "error: 0 shards were done when --limit-s 1 was over; give it more seconds, or take fewer "
        "--partitions"
    ) in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_daemon_has_ended_also_where_the_wait_for_its_end_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, waited = subprocess.Popen.wait, []

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waited.append(process)
        if len(waited) == 1:
            raise KeyboardInterrupt
        return wait(process, timeout)

    home = DagsterHome.made(tmp_path, {})
    monkeypatch.setattr(DagsterHome, "command", lambda *_: ["sleep", "600"])
    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), home.daemon():
        pass
    assert waited[0].returncode is not None


def test_each_tiny_shard_is_one_clip_with_an_id_of_its_own(tmp_path: Path) -> None:
    _, keys = tiny_corpus(tmp_path, 40)
    [file] = (tmp_path / "corpus").iterdir()
    ids = pq.read_table(file, columns=["id"]).column("id").to_pylist()
    assert (len(keys), len(set(ids))) == (40, 40)
    assert keys[-1] == "train.039"


def test_what_says_that_the_storage_was_locked_is_counted(tmp_path: Path) -> None:
    logs = tmp_path / ".dagster" / "logs" / "run"
    logs.mkdir(parents=True)
    (tmp_path / "daemon.log").write_text("all well\nsqlite3.OperationalError: database is locked\n")
    (logs / "compute.err").write_text("Database is locked\nand database table is locked\n")
    assert _lock_errors(tmp_path) == 3
