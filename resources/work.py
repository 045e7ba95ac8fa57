"""Starting a work process and taking it down again, whatever happens to either side.

The process gets a pipe as standard input and ends when that closes, so it does not outlive even a
SIGKILL of its starter. It leads a process group, so that its children end with it. Its output goes
to the starter's (Dagster shows it as the step's stderr); the last lines are kept for the error.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from resources.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

TAIL_LINES = 30
STOP_AFTER_S = (10.0, 5.0)  # SIGINT, then SIGTERM, then SIGKILL.
DRAIN_S = 5.0  # For the rest of the output, once nobody is there to write more.
LONGEST_LINE = 4_096
EXIT_FINAL = 2


@dataclass
class WorkProcess:
    """A running `python -m <module> ...` and the last lines it wrote, without `hidden` ones."""

    process: subprocess.Popen[bytes]
    hidden: str = ""
    tail: collections.deque[str] = field(
        default_factory=lambda: collections.deque[str](maxlen=TAIL_LINES)
    )
    _pump: threading.Thread = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pump = threading.Thread(
            target=pump,
            args=(self.process.stdout, self.tail, self.hidden),
            name="work-output",
            daemon=True,
        )
        self._pump.start()

    def wait(self) -> None:
        """Wait until it ends.

        Raises:
            WorkError: it failed; retryable unless it said that trying again is no use.
        """
        code = self.process.wait()
        if code == 0:
            return
        # What it said last may still be in the pipe, which a child of it can hold open.
        end_group(self.process)
        self.drain()
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (out of memory, or killed by hand)"
        module = self.process.args[3] if isinstance(self.process.args, list) else "work"
        raise WorkError(
            f"{module} {how}; it said last:\n" + "\n".join(self.tail), retryable=code != EXIT_FINAL
        )

    def drain(self) -> None:
        """Read what is left of the output of a process that has ended."""
        self._pump.join(timeout=DRAIN_S)


@contextlib.contextmanager
def running(
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    hidden: str = "",
) -> Generator[WorkProcess]:
    """`python -m module arguments --exit-on-stdin-eof`, ended when the context ends.

    Lines of its output that hold `hidden` are not shown.
    """
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", module, *arguments, "--exit-on-stdin-eof"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # Of torch's C++ side only errors are for a user.
            **os.environ,
            **({"SPEECH_BAR": "1"} if sys.stderr.isatty() else {}),
            **(environment or {}),
        },
        start_new_session=True,
    )
    work: WorkProcess | None = None
    try:
        work = WorkProcess(
            process, hidden
        )  # It starts a thread, of which a full machine has no more.
        yield work
        process.wait()
    finally:
        try:
            stop(process)
        finally:
            # Also when a second Ctrl-C cuts the wait for a clean end short.
            end_group(process)
        if work is not None:
            work.drain()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def pump(output: IO[bytes], tail: collections.deque[str], hidden: str = "") -> None:
    """Hand the output on and remember its end; a pipe that nobody reads would block the writer.

    Lines that hold `hidden` are dropped; the others then go on once they are whole.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    rest = ""
    # Unbuffered: a progress bar ends its lines with a carriage return.
    while data := os.read(output.fileno(), 65_536):
        text = decoder.decode(data)
        *lines, rest = re.split(r"[\r\n]+", rest + text)
        if hidden:
            lines = [line for line in lines if hidden not in line]
            text = "".join(f"{line}\n" for line in lines if line)
        # Whoever read our own output may be gone (`| head`); the process must not wait for that.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()
        tail.extend(line for line in lines if line)
        rest = rest[-LONGEST_LINE:]
    if rest:
        tail.append(rest)


def stop(process: subprocess.Popen[Any]) -> None:
    """Ask the process to end, and wait; it may still be there when patience has run out."""
    for signal_number, patience_s in zip(
        (signal.SIGINT, signal.SIGTERM), STOP_AFTER_S, strict=True
    ):
        if process.poll() is not None:
            break
        process.send_signal(signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill what is left of the process' group, which lives on while a child of its leader does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
