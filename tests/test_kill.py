"""Runs that are killed, interrupted or lose a process: nothing is left behind, lost or doubled."""

from __future__ import annotations

import contextlib
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.instance.ref import InstanceRef
from lineage_run import Lineage, wait_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

SEED = 20261129
KILLS = 10
SPEECH, TOKENS = "speech_assets.work.speech", "speech_assets.work.tokens"
pytestmark = pytest.mark.timeout(1_800)  # A dozen runs of the lineage.


@dataclass
class Moment:
    """When a run has come to a number of objects, and after that so many more things have happened.

    Things that happen are processes, objects and temporary files that were not there before.
    """

    lineage: Lineage
    objects: int
    more_events: int
    run: subprocess.Popen[bytes]
    _seen: set[str] = field(default_factory=set[str])
    _events_at_goal: int | None = None

    def has_come(self) -> bool:
        """Whether it has, or the run is at its end."""
        self._seen |= _happened(self.lineage)
        if self._events_at_goal is None and len(self.lineage.whole_objects()) >= self.objects:
            self._events_at_goal = len(self._seen)
        reached = self._events_at_goal is not None and (
            len(self._seen) >= self._events_at_goal + self.more_events
        )
        return reached or self.run.poll() is not None


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
        # Spread over the run: a tenth further each time, then on by a few things that happen.
        wanted = moments.randrange(
            kill * len(reference) // KILLS, (kill + 1) * len(reference) // KILLS + 1
        )
        moment = Moment(lineage, wanted, moments.randrange(12), lineage.start())
        wait_for(moment.has_come, "the moment to kill has come")
        lineage.kill(moment.run)
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
    [speech] = lineage.processes(SPEECH)
    speech.kill()
    wait_for(
        lambda: not speech.is_running() and bool(_decoders(lineage)),
        "another decoding process runs",
    )
    _decoders(lineage)[0].kill()
    wait_for(lambda: bool(lineage.processes(TOKENS)), "the encoding process runs")
    lineage.processes(TOKENS)[0].kill()
    assert process.wait() == 0, lineage.output.read_text()[-4_000:]
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


def _statuses(lineage: Lineage) -> set[DagsterRunStatus]:
    with (
        contextlib.chdir(lineage.folder),
        DagsterInstance.from_ref(InstanceRef.from_dir(str(lineage.folder))) as instance,
    ):
        return {run.status for run in instance.get_runs()}
