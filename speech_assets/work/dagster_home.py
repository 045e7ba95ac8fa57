"""A Dagster instance apart, with a daemon of its own: no measurement enters a user's history."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from server.lifeline import end_with_parent
from speech_assets.errors import SpeechAssetsError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

ROOT = Path(__file__).resolve().parents[2]
DAEMON_LOG = "daemon.log"
_COMMAND_LIMIT_S = 900.0
_END_WITHIN_S = 60.0


class DagsterHomeError(SpeechAssetsError):
    """A command of Dagster failed, or did not end."""


@dataclass(frozen=True, slots=True)
class DagsterHome:
    """A Dagster instance apart, in `folder`, and the environment of its commands."""

    folder: Path
    environment: Mapping[str, str]

    @classmethod
    def made(cls, folder: Path, variables: Mapping[str, str]) -> DagsterHome:
        """With this project's dagster.yaml, whose paths are made absolute, and `variables`."""
        settings = (ROOT / "dagster.yaml").read_text().replace(".dagster/", f"{folder}/.dagster/")
        (folder / "dagster.yaml").write_text(settings)
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return cls(
            folder,
            {**os.environ, "DAGSTER_HOME": str(folder), "PYTHONPATH": paths, **variables},
        )

    @property
    def log(self) -> Path:
        """What the daemon said."""
        return self.folder / DAEMON_LOG

    def command(self, name: str, *arguments: str) -> list[str]:
        """A Dagster command of this environment, for this project's definitions."""
        script = str(Path(sys.executable).with_name(name))
        return [script, *arguments, "-m", "speech_assets.definitions"]

    def run(self, *command: str) -> None:
        """Run a command to its end.

        Raises:
            DagsterHomeError: it failed, or did not end.
        """
        name = Path(command[0]).name
        try:
            done = subprocess.run(
                command,
                cwd=self.folder, env=self.environment, check=False, text=True,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_LIMIT_S,
                preexec_fn=partial(_end_with_starter, os.getpid()),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise DagsterHomeError(f"{name} did not end in {_COMMAND_LIMIT_S:g} s") from error
        if done.returncode:
            raise DagsterHomeError(f"{name} failed with {done.returncode}: {done.stderr[-600:]}")

    @contextmanager
    def daemon(self) -> Generator[subprocess.Popen[bytes]]:
        """Dagster's daemon while the block runs; its output in `log`."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self.command("dagster-daemon", "run"),
                cwd=self.folder, env=self.environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                # It must not outlive this process, however that ends.
                preexec_fn=partial(_end_with_starter, os.getpid()),
            )  # fmt: skip
            try:
                yield process
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_END_WITHIN_S)
                finally:
                    # Also when a second Ctrl-C cuts the wait for a clean end short.
                    process.kill()
                    process.wait()
                    self._end_all()

    def _end_all(self) -> None:
        """End what the daemon has left: runs, and the code server, which looks for it rarely."""
        mark = f"DAGSTER_HOME={self.folder}\0".encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in environ.read_bytes() + b"\0":
                    os.kill(int(environ.parent.name), signal.SIGKILL)


def _end_with_starter(starter: int) -> None:
    # A shell that starts us in the background leaves SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent(signal.SIGTERM, parent=starter)
