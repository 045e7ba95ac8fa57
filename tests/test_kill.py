"""Runs that are killed, interrupted or lose a process: nothing is left behind, lost or doubled."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.instance.ref import InstanceRef
from lineage_run import Lineage, wait_for
from psutil import STATUS_STOPPED, STATUS_ZOMBIE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator

SEED = 20261129
KILLS = 10
ATTEMPTS = 3
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
    lineage.end()


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
    for _ in range(ATTEMPTS):
        process = lineage.start()
        speech = kill_one(process, lambda: (speech for speech, _ in _decoding(lineage)))
        decoder = kill_one(
            process,
            # Those of the killed one may be there a moment longer.
            lambda lost=speech: (child for one, child in _decoding(lineage) if one != lost),
        )
        encoder = kill_one(process, lambda: lineage.processes(TOKENS))
        assert process.wait() == 0, lineage.output.read_text()[-4_000:]
        lineage.kill(process)
        assert lineage.objects() == reference
        if speech and decoder and encoder:
            return
        # On a busy machine one may come and go unseen. Then all is made anew.
        shutil.rmtree(lineage.root)
    pytest.fail(f"in none of {ATTEMPTS} runs was there one of each to kill")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_cleanly_and_a_rerun_completes_it(
    number: signal.Signals, lineage: Lineage, reference: dict[str, bytes]
) -> None:
    process = lineage.start()
    wait_for(lambda: lineage.processes(SPEECH), "the speech process runs")
    process.send_signal(number)
    wait_for(lambda: process.poll() is not None, "the run has ended")
    assert process.returncode == 130
    assert "what is finished is kept" in lineage.output.read_text().lower()
    lineage.kill(process)
    assert not {DagsterRunStatus.STARTED, DagsterRunStatus.STARTING} & _statuses(lineage)
    lineage.run()
    assert lineage.objects() == reference


def kill_one(
    run: subprocess.Popen[bytes], look: Callable[[], Iterable[psutil.Process]]
) -> psutil.Process | None:
    """Wait for a process that `look` finds, and kill it; None if the run has ended without any.

    It is stopped first: of what does not go on it is certain that the kill was its end.
    """

    def kill() -> psutil.Process | None:
        for process in look():
            with contextlib.suppress(psutil.NoSuchProcess):  # It has ended by itself meanwhile.
                process.suspend()
                while (status := process.status()) not in (STATUS_STOPPED, STATUS_ZOMBIE):
                    pass
                process.kill()
                if status == STATUS_STOPPED:
                    return process
        return None

    found = wait_for(lambda: kill() or run.poll() is not None, "there is a process to kill")
    return None if isinstance(found, bool) else found


def _happened(lineage: Lineage) -> set[str]:
    """What can be seen of a run from outside: processes, files of the store and temporary files."""
    names = {str(process.pid) for process in lineage.processes()}
    for folder in (Path(lineage.root), lineage.temporary):
        with contextlib.suppress(FileNotFoundError):
            names.update(map(str, folder.rglob("*")))
    return names


def _decoding(lineage: Lineage) -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """Speech processes, and decoders that they have."""
    for speech in lineage.processes(SPEECH):
        with contextlib.suppress(psutil.Error):
            for child in speech.children():
                with contextlib.suppress(psutil.Error):
                    if any("spawn_main" in word for word in child.cmdline()):
                        yield speech, child


def _statuses(lineage: Lineage) -> set[DagsterRunStatus]:
    with (
        contextlib.chdir(lineage.folder),
        DagsterInstance.from_ref(InstanceRef.from_dir(str(lineage.folder))) as instance,
    ):
        return {run.status for run in instance.get_runs()}
