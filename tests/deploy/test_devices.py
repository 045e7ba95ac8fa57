"""Pool `gpu` of two slots and two devices: two shards at once, each on its own; a third waits."""

from __future__ import annotations

import contextlib
import fcntl
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from conftest import SHORT_SHARDS
from dagster import DagsterInstance
from dagster._core.instance.ref import InstanceRef
from lineage_run import DEADLINE_S, Lineage, wait_for

from resources.store import Store

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

TOKENS = "speech_assets.work.tokens"
MATERIALIZE = [
    *("-W", "ignore", "-m", "dagster", "asset", "materialize", "-m", "speech_assets.definitions"),
    *("--select", "tokens", "--partition"),
]
FIRST, SECOND, THIRD = (shard.key for shard in SHORT_SHARDS[:3])
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def lineage(
    short_profile: dict[str, str], prepared: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lineage]:
    """A store whose shards have their speech, on a CPU that is taken for two devices."""
    lineage = Lineage(tmp_path, {**short_profile, "SPEECH_CPU_DEVICES": "2"})
    for key in prepared.keys(""):
        Store(lineage.root).write_bytes(key, prepared.read_bytes(key))
    lineage.prepare()
    monkeypatch.chdir(tmp_path)  # The paths of dagster.yaml are relative to it.
    yield lineage
    lineage.end()


def test_two_shards_are_encoded_on_two_devices_and_a_killed_workers_device_goes_to_the_third(
    lineage: Lineage,
) -> None:
    runs: list[subprocess.Popen[bytes]] = []
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(lineage.folder))) as instance:
        storage = instance.event_log_storage
        storage.set_concurrency_slots("gpu", 2)
        try:
            stopped: dict[str, psutil.Process] = {}
            for shard in (FIRST, SECOND):
                runs.append(lineage.start_python([*MATERIALIZE, shard]))
                stopped[shard] = _stopped_on_its_device(lineage, shard)
            devices = {shard: _device(process) for shard, process in stopped.items()}
            assert set(devices.values()) == {"cpu.lock", "cpu-1.lock"}

            runs.append(lineage.start_python([*MATERIALIZE, THIRD]))
            wait_for(
                lambda: storage.get_concurrency_info("gpu").pending_step_count == 1,
                "the third run waits for a slot of the pool",
            )
            assert storage.get_concurrency_info("gpu").active_slot_count == 2
            assert _workers(lineage, THIRD) == []

            stopped[FIRST].kill()
            third = _stopped_on_its_device(lineage, THIRD)
            assert _device(third) == devices[FIRST]

            for process in (stopped[SECOND], third):
                process.send_signal(signal.SIGCONT)
            # The first run's step is tried again, as a killed worker deserves.
            codes = [run.wait(DEADLINE_S) for run in runs]
            assert codes == [0, 0, 0], lineage.output.read_text()[-4_000:]
            assert storage.get_concurrency_info("gpu").active_slot_count == 0
        finally:
            lineage.end()
    store = Store(lineage.root)
    assert all(store.exists(shard.object_key("tokens")) for shard in SHORT_SHARDS[:3])


def _workers(lineage: Lineage, shard: str) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in lineage.processes(TOKENS):
        with contextlib.suppress(psutil.Error):
            if shard in process.cmdline():
                found.append(process)
    return found


def _stopped_on_its_device(lineage: Lineage, shard: str) -> psutil.Process:
    """The worker of a shard, stopped while it holds a device, until it is told to go on."""
    held: list[psutil.Process] = []

    def stopped() -> bool:
        for process in _workers(lineage, shard):
            with contextlib.suppress(psutil.Error):
                if not _device(process):
                    continue
                process.send_signal(signal.SIGSTOP)
                # The file is opened before it is locked; who was stopped between is let go on.
                if _is_locked(lineage, _device(process)):
                    held.append(process)
                    return True
                process.send_signal(signal.SIGCONT)
        return False

    wait_for(stopped, f"the worker of {shard} holds a device")
    return held[0]


def _device(process: psutil.Process) -> str:
    """The lock file that a worker has open; empty where it has none."""
    open_files = (file.path for file in process.open_files())
    return next((p.rpartition("/")[2] for p in open_files if p.endswith(".lock")), "")


def _is_locked(lineage: Lineage, name: str) -> bool:
    [path] = lineage.temporary.glob(f"speech-assets-*/{name}")
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
