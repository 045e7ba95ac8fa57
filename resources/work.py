"""Starting a work process and taking it down again, whatever happens to either side.

The process gets a pipe as standard input and ends when that closes, so it does not outlive even a SIGKILL of
its starter. It leads a process group, so that its children end with it. Its output goes to the starter's
(Dagster shows it as the step's stderr), and the last lines are kept for the error message.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resources.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TAIL_LINES = 30
STOP_AFTER_S = (10.0, 5.0)  # SIGINT, then SIGTERM, then SIGKILL.
EXIT_FINAL = 2


@dataclass
class WorkProcess:
    """A running `python -m <module> ...` and the last lines it wrote."""

    process: subprocess.Popen[bytes]
    tail: collections.deque[str] = field(
        default_factory=lambda: collections.deque[str](maxlen=TAIL_LINES)
    )

    def wait(self) -> None:
        """Wait until it ends.

        Raises:
            WorkError: it failed; retryable unless it said that trying again is no use.
        """
        code = self.process.wait()
        if code == 0:
            return
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (out of memory, or killed by hand)"
        module = self.process.args[3] if isinstance(self.process.args, list) else "work"
        raise WorkError(
            f"{module} {how}; it said last:\n" + "\n".join(self.tail), retryable=code != EXIT_FINAL
        )


@contextlib.contextmanager
def running(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[WorkProcess]:
    """`python -m module arguments --exit-on-stdin-eof`, ended when the context ends."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", module, *arguments, "--exit-on-stdin-eof"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **({"SPEECH_BAR": "1"} if sys.stderr.isatty() else {}), **(environment or {})},
        start_new_session=True,
    )
    work = WorkProcess(process)
    pump = threading.Thread(target=_pump, args=(work,), name="work-output", daemon=True)
    pump.start()
    try:
        yield work
        process.wait()
    finally:
        _stop(process)
        pump.join(timeout=5)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _pump(work: WorkProcess) -> None:
    """Hand the output on and remember its end; a pipe that nobody reads would block the writer."""
    assert work.process.stdout is not None
    rest = ""
    # Unbuffered: a progress bar ends its lines with a carriage return.
    while data := os.read(work.process.stdout.fileno(), 65_536):
        text = data.decode(errors="replace")
        sys.stderr.write(text)
        sys.stderr.flush()
        *lines, rest = re.split(r"[\r\n]+", rest + text)
        work.tail.extend(line for line in lines if line)
    if rest:
        work.tail.append(rest)


def _stop(process: subprocess.Popen[Any]) -> None:
    for signal_number, patience_s in zip(
        (signal.SIGINT, signal.SIGTERM), STOP_AFTER_S, strict=True
    ):
        if process.poll() is not None:
            break
        process.send_signal(signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    # The group outlives its leader while a child of it runs.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
