"""A sensor that was turned on, under the real daemon: a new checkpoint is measured, by itself."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from automation.conftest import profile_of
from dagster._core.definitions.freshness import FreshnessState
from lineage_daemon import DAGSTER, WORKSPACE, daemon
from lineage_run import Lineage, wait_for

from server.checks import REQUIRED, Check, write_check
from server.presets import load_preset, served_as

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Corpus

PRESET = "embedded-bf16"
SHORT = """
        rebenchmark.samples = { sentences = 1, seeds = "1" }
        rebenchmark.wer = { dnsmos = false }
        rebenchmark.decode_speed = { tokens = 14, runs = 1, allow_invalid = true }
        [profiles.small.rebenchmark.load_tests]
        levels = "1"
        loads = "generating"
        duration_s = 2.0
        warmup_s = 0.0
        allow_client_limit = true
"""


@pytest.fixture
def lineage(tmp_path: Path, short_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Lineage:
    lineage = Lineage(tmp_path, profile_of(tmp_path / "profiles.toml", short_corpus, SHORT))
    lineage.prepare()
    monkeypatch.chdir(tmp_path)  # The paths of dagster.yaml are relative to it.
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return lineage


def test_a_new_checkpoint_is_measured_by_a_run_that_nobody_has_started(lineage: Lineage) -> None:
    row = load_preset(PRESET)
    for name in REQUIRED:
        served = served_as(row, "0" * 64, "cpu")
        check = Check(passed=True, detail="as it must be", value=0, limit=served.limits.get(name))
        write_check(row.checks_path(lineage.root), served, name, check)
    for command in (
        ["sensor", "cursor", "new_checkpoint", "--set", "{}"],
        ["sensor", "start", "new_checkpoint"],
    ):
        subprocess.run(
            [*DAGSTER, *command, *WORKSPACE],
            cwd=lineage.folder,
            env=lineage.environment,
            check=True,
            capture_output=True,
        )
    with dg.DagsterInstance.get() as instance:
        for asset in ("checkpoints", "fidelity"):
            instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=PRESET))
        with daemon(lineage) as process:

            def runs() -> list[dg.DagsterRun]:
                assert process.poll() is None, lineage.output.read_text()[-4_000:]
                return list(instance.get_runs())

            wait_for(lambda: any(run.is_finished for run in runs()), "a run has ended")
            [run] = runs()
            if run.is_success:
                keys = [dg.AssetKey(asset) for asset in ("load_tests", "wer", "decode_speed")]
                wait_for(
                    lambda: (
                        {
                            key: record.freshness_state
                            for key, record in instance.get_freshness_state_records(keys).items()
                        }
                        == dict.fromkeys(keys, FreshnessState.PASS)
                    ),
                    "what was measured is fresh",
                )
        assert run.is_success, lineage.output.read_text()[-8_000:]
        assert run.job_name == "rebenchmark"
        assert run.tags["dagster/partition"] == PRESET
        assert run.tags["speech/started_by"] == "new_checkpoint"
        for asset in ("samples", "wer", "load_tests", "decode_speed"):
            assert instance.get_materialized_partitions(dg.AssetKey(asset)) == {PRESET}
        for asset in ("wer", "load_tests", "decode_speed"):
            key = dg.AssetCheckKey(dg.AssetKey(asset), "no_regression")
            [record] = instance.event_log_storage.get_asset_check_execution_history(key, 1)
            assert record.run_id == run.run_id
    results = {key.split("/")[1] for key in lineage.whole_objects() if key.startswith("results/")}
    assert results == {"wer", "load_tests", "decode_speed"}
