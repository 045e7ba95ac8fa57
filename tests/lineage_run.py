"""The lineage as a person runs it, with a store, a history and a temporary folder apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from resources.store import Store
from speech_assets.results.stored import stored_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from speech_assets.step import Step

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 240.0
POLL_S = 0.005
SeenT = TypeVar("SeenT")
RUN_STEPS = """
import sys
import dagster as dg
from speech_assets.definitions import defs
from speech_assets.demo import run_step
from speech_assets.runs import end_lost_runs
from speech_assets.step import Step

with dg.DagsterInstance.get() as instance:
    end_lost_runs(instance)
    for step in {steps!r}:
        message = run_step(defs, instance, step)
        if message:
            sys.exit(f"{{step.job}}: {{message}}")
"""


def wait_for(
    look: Callable[[], SeenT], what: str, patience_s: float = DEADLINE_S, poll_s: float = POLL_S
) -> SeenT:
    """Wait until `look` gives something that is true; says what did not come when patience ends.

    What it gave then: asked again, it may find that what it saw has gone.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        looked_s = time.monotonic()
        if seen := look():
            return seen
        now_s = time.monotonic()
        assert now_s < deadline_s, f"waited {patience_s:.0f} s in vain until {what}"
        # As long as the look took: what is waited for needs the cores, too.
        time.sleep(max(poll_s, now_s - looked_s))


@contextmanager
def ending(process: subprocess.Popen[Any]) -> Generator[subprocess.Popen[Any]]:
    """The process, just started; killed and waited for at the context's end, if it still runs.

    Popen's own context only waits: for one that never ends, since a test of it has failed.
    """
    with process:
        try:
            yield process
        finally:
            process.kill()


def processes_with(name: str, value: str) -> list[psutil.Process]:
    """Running processes whose environment has `name` set to `value`."""
    # By hand: psutil takes three times as long for it, and it is looked up again and again.
    wanted = os.fsencode(f"\0{name}={value}\0")
    found: list[psutil.Process] = []
    for folder in os.scandir("/proc"):
        if folder.name.isdecimal():
            with suppress(OSError, psutil.Error):  # It is another user's, or has ended meanwhile.
                if wanted in b"\0" + Path(folder.path, "environ").read_bytes():
                    found.append(psutil.Process(int(folder.name)))
    return found


@dataclass(frozen=True)
class Lineage:
    """One store with its Dagster history, all below `folder`; `store` may be a URL instead."""

    folder: Path
    profile: Mapping[str, str]
    store: str = ""
    # By `start_python`; a copy of it, of other steps, adds to the same.
    started: list[subprocess.Popen[bytes]] = field(
        default_factory=list["subprocess.Popen[bytes]"], repr=False, compare=False, kw_only=True
    )

    @property
    def root(self) -> str:
        """The store's root."""
        return self.store or str(self.folder / "store")

    @property
    def temporary(self) -> Path:
        """Temporary folder of the runs, the device's lock in it: no other work makes them wait."""
        return self.folder / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the runs; SPEECH_STORE tells their processes from all others."""
        return {
            **os.environ,
            **self.profile,
            "SPEECH_STORE": self.root,
            "SPEECH_THREADS": "2",
            "DAGSTER_HOME": str(self.folder),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }

    @property
    def configuration(self) -> Path:
        """The dagster.yaml that its runs are under."""
        return ROOT / "dagster.yaml"

    @property
    def output(self) -> Path:
        """What the runs have said."""
        return self.folder / "output.txt"

    def prepare(self) -> None:
        """The folders and the dagster.yaml that its processes need."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        (self.folder / "dagster.yaml").write_bytes(self.configuration.read_bytes())

    def start(self) -> subprocess.Popen[bytes]:
        """`python -m speech_assets.demo` in a session of its own."""
        return self.start_python(["-m", "speech_assets.demo"])

    def start_python(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Python with those arguments, in this lineage's environment and a session of its own."""
        self.prepare()
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self) -> None:
        """Run to the end, which must be a good one."""
        process = self.start()
        try:
            code = process.wait(DEADLINE_S)
        finally:
            self.kill(process)
        assert code == 0, self.output.read_text()[-4_000:]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL the run's process, if it is there, and wait until none of the run is left."""
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        left: list[psutil.Process] = []

        def ended() -> bool:
            left[:] = [process for process in self.processes() if not _was_lost_by_dagster(process)]
            return not left

        try:
            wait_for(ended, f"the processes of {self.root} have ended")
        except AssertionError as error:
            raise AssertionError(f"{error}: {[_seen(process) for process in left]}") from None

    def end(self) -> None:
        """Kill all that still runs of it, and wait for what `start_python` has started."""
        for process in self.started:
            process.kill()
            process.wait()
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    def processes(self, module: str = "") -> list[psutil.Process]:
        """Running processes of this lineage, those of `python -m module` alone if it is given."""
        found: list[psutil.Process] = []
        for process in processes_with("SPEECH_STORE", self.root):
            try:
                if not module or module in process.cmdline():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def objects(self) -> dict[str, bytes]:
        """Every file of a local store, temporary ones too, by path."""
        root = Path(self.root)
        return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}

    def whole_objects(self) -> list[str]:
        """Paths in a local store of what is not temporary."""
        root = Path(self.root)
        return [
            str(path.relative_to(root))
            for path in root.rglob("*")
            if not path.name.startswith(".") and path.is_file()
        ]


@dataclass(frozen=True)
class StepsRun(Lineage):
    """Steps of the demo, one after the other until one fails, in place of the whole of it."""

    steps: Sequence[Step] = ()

    def start(self) -> subprocess.Popen[bytes]:
        """The steps, in a process and session of their own."""
        return self.start_python(["-c", RUN_STEPS.format(steps=list(self.steps))])

    def stored(self, kind: str = "") -> list[dict[str, Any]]:
        """Results of a kind in the store, oldest first."""
        store = Store(self.root)
        return [store.read_json(f"results/{name}.json") for name in stored_ids(store, kind)]


def _was_lost_by_dagster(process: psutil.Process) -> bool:
    """End the `tail` by which Dagster 1.13.27 shows a step's output, if it has nobody any more.

    Killed between starting it and starting the process that watches it, Dagster leaves it behind.
    """
    try:
        if process.cmdline()[:1] == ["tail"] and process.ppid() == 1:
            process.kill()
            return True
    except psutil.Error:
        pass
    return False


def _seen(process: psutil.Process) -> str:
    try:
        with process.oneshot():
            return f"{process.ppid()} > {process.pid} {process.status()} {process.cmdline()}"
    except psutil.Error as error:
        return str(error)
