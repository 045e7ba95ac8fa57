"""Runs that are killed, interrupted or lose a process: nothing is left behind, lost or doubled."""

from __future__ import annotations

import contextlib
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.instance.ref import InstanceRef

from lineage_run import Lineage, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 20261129
KILLS = 10
SPEECH, TOKENS = "speech_assets.work.speech", "speech_assets.work.tokens"
pytestmark = pytest.mark.timeout(1_800)  # A dozen runs; on an idle machine of two cores under two minutes.


@pytest.fixture(scope="module")
def reference(
    short_profile: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """What the store holds after a run that nothing disturbs."""
    lineage = Lineage(tmp_path_factory.mktemp("reference"), short_profile)
    lineage.run()
    assert not list(lineage.temporary.glob("speech-assets-repack-*"))
    return lineage.objects()


@pytest.fixture
def lineage(short_profile: dict[str, str], tmp_path: Path) -> Iterator[Lineage]:
    lineage = Lineage(tmp_path, short_profile)
    yield lineage
    for process in lineage.processes():
        with contextlib.suppress(psutil.Error):
            process.kill()


def test_killing_the_run_at_ten_random_moments_and_rerunning_gives_byte_identical_shards(
    lineage: Lineage, reference: dict[str, bytes]
) -> None:
    moments = random.Random(SEED)
    for kill in range(KILLS):
        # Spread over the run: each attempt comes a tenth further, then on by a few things that happen.
        wanted = moments.randrange(
            kill * len(reference) // KILLS, (kill + 1) * len(reference) // KILLS + 1
        )
        more_events = moments.randrange(4)
        process = lineage.start()
        seen: set[str] = set()
        count_at_goal: list[int] = []

        def reached(wanted: int = wanted, more_events: int = more_events) -> bool:
            seen.update(_happened(lineage))
            if len(lineage.whole_objects()) >= wanted and not count_at_goal:
                count_at_goal.append(len(seen))
            return bool(count_at_goal) and len(seen) >= count_at_goal[0] + more_events

        wait_for(lambda p=process, r=reached: p.poll() is not None or r(), "the moment to kill has come")
        lineage.kill(process)
        held = lineage.whole_objects()
        objects = lineage.objects()
        assert {key: objects[key] == reference[key] for key in held} == dict.fromkeys(held, True)
    lineage.run()
    assert lineage.objects() == reference
    assert not list(lineage.temporary.glob("speech-assets-repack-*"))
    assert _statuses(lineage) <= {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE}


def test_a_run_whose_work_processes_and_decoders_are_killed_goes_on_to_the_same_end(
    lineage: Lineage, reference: dict[str, bytes]
) -> None:
    process = lineage.start()
    wait_for(lambda: bool(_decoders(lineage)), "a decoding process runs")
    killed_decoder = _kill(_decoders(lineage)[0])
    wait_for(lambda: "speech/train/train.000.parquet" in lineage.whole_objects(), "a shard is done")
    killed_speech = [_kill(found) for found in lineage.processes(SPEECH)]
    wait_for(lambda: bool(lineage.processes(TOKENS)), "the encoding process runs")
    killed_tokens = [_kill(found) for found in lineage.processes(TOKENS)]
    assert process.wait() == 0, lineage.output.read_text()[-4_000:]
    assert killed_decoder
    assert any(killed_speech) or not killed_speech  # It may have been done already.
    assert any(killed_tokens)
    lineage.kill(process)
    assert lineage.objects() == reference


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_cleanly_and_a_rerun_completes_it(
    number: signal.Signals, lineage: Lineage, reference: dict[str, bytes]
) -> None:
    process = lineage.start()
    wait_for(lambda: bool(lineage.processes(SPEECH)), "the speech process runs")
    process.send_signal(number)
    wait_for(lambda: process.poll() is not None, "the run has ended")
    assert process.returncode == 130
    assert "what is finished is kept" in lineage.output.read_text().lower()
    lineage.kill(process)
    assert not {DagsterRunStatus.STARTED, DagsterRunStatus.STARTING} & _statuses(lineage)
    lineage.run()
    assert lineage.objects() == reference


def _happened(lineage: Lineage) -> set[str]:
    """What can be seen of a run from outside: processes, files of the store and temporary files."""
    names = {str(process.pid) for process in lineage.processes()}
    for folder in (Path(lineage.root), lineage.temporary):
        with contextlib.suppress(FileNotFoundError):
            names.update(map(str, folder.rglob("*")))
    return names


def _decoders(lineage: Lineage) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in lineage.processes():
        with contextlib.suppress(psutil.Error):
            if any("spawn_main" in word for word in process.cmdline()):
                found.append(process)
    return found


def _kill(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


def _statuses(lineage: Lineage) -> set[DagsterRunStatus]:
    with (
        contextlib.chdir(lineage.folder),
        DagsterInstance.from_ref(InstanceRef.from_dir(str(lineage.folder))) as instance,
    ):
        return {run.status for run in instance.get_runs()}
