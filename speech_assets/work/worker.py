"""The frame of every work process: arguments, progress, results, an end that leaves nothing behind.

A work process runs by hand, with a bar on the terminal, or is started by an asset, which passes
`--exit-on-stdin-eof` and reads results and progress over Dagster Pipes. Exit codes: 0 done, 1
failed and worth trying again, 2 failed and not worth it (argparse's code too), 130 interrupted.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import math
import multiprocessing
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from tqdm import tqdm

from resources.errors import ResourceError
from server.errors import ServerError
from server.lifeline import end_with_parent
from speech_assets.errors import SpeechAssetsError
from speech_assets.results.provenance import place_of
from speech_assets.work.out_place import check_out, check_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

EXIT_RETRYABLE = 1
EXIT_FINAL = 2
EXIT_INTERRUPTED = 130
PROGRESS_EVERY_S = 5.0
_GO_ON = "what is finished is kept, run again to go on"
BEGINS_ANEW = "nothing is kept, and the next run begins anew"
"""What Ctrl-C says where it says so: `parser.set_defaults(when_interrupted=BEGINS_ANEW)`."""


@dataclass
class Reporter:
    """Where progress and results of a work process go: the terminal, and Dagster when it listens.

    `total_s` is the audio to get through; `label` names the work in the bar.
    """

    label: str
    pipes: Any = None
    _bar: Any = field(default=None, init=False)
    _started_s: float = field(default=0.0, init=False)
    _logged_s: float = field(default=0.0, init=False)
    _done: float = field(default=0.0, init=False)
    _total: float = field(default=0.0, init=False)
    _unit: str = field(default="", init=False)
    _digits: int = field(default=2, init=False)  # After the point; of things that are counted none.

    def start(self, total: float, unit: str) -> None:
        """Begin the bar: `total` in `unit`, a float of hours or seconds, an int of a count."""
        self.close()  # Of what was gone through before.
        self._started_s = self._logged_s = time.monotonic()
        self._done, self._total, self._unit = 0.0, total, unit
        self._digits = 0 if isinstance(total, int) else 2
        amounts = f"{{n:.{self._digits}f}}/{{total:.{self._digits}f}}"
        self._bar = tqdm(
            total=round(total, 4),
            desc=self.label,
            unit=unit,
            file=sys.stderr,
            # The starter sets SPEECH_BAR when its own terminal shows what we write.
            disable=not sys.stderr.isatty() and not os.environ.get("SPEECH_BAR"),
            bar_format=f"{{desc}}: {{percentage:3.0f}}% |{{bar}}| {amounts} {{unit}}, "
            "{remaining} left{postfix}",
        )

    def advance(self, amount: float, **notes: str) -> None:
        """Add `amount` to what is done, in the bar and, every few seconds, in Dagster's log."""
        self._done += amount
        self._bar.set_postfix(notes, refresh=False)
        self._bar.update(amount)
        now = time.monotonic()
        if now - self._logged_s < PROGRESS_EVERY_S or not self._done:
            return
        self._logged_s = now
        left_s = (now - self._started_s) * max(0.0, self._total - self._done) / self._done
        details = "".join(f", {name} {value}" for name, value in notes.items())
        self.log(
            f"{self.label}: {self._done:.{self._digits}f} of {self._total:.{self._digits}f} "
            f"{self._unit}{details}, about {left_s:.0f} s left"
        )

    def log(self, message: str) -> None:
        """One line in Dagster's log, or above the bar on a terminal."""
        if self.pipes is not None:
            self.pipes.log.info(message)
        elif self._bar is not None and not self._bar.disable:
            self._bar.write(message, file=sys.stderr)
        else:
            print(message, file=sys.stderr)

    def notice(self, message: str) -> None:
        """One line that whoever waits must see, in Dagster's log and on the terminal."""
        if self.pipes is not None:
            print(message, file=sys.stderr, flush=True)
        self.log(message)

    def result(self, kind: str, **values: Any) -> None:
        """One result for the asset that started this process; a line on the terminal otherwise."""
        if self.pipes is not None:
            self.pipes.report_custom_message({"kind": kind, **values})
        elif kind not in ("figures", "error"):  # An error stands on the terminal already.
            self.log(f"{kind}: " + ", ".join(f"{k} {_short(v)}" for k, v in values.items()))

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()


def argument_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that every work process takes."""
    parser = argparse.ArgumentParser(
        prog=f"python -m speech_assets.work.{name}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--exit-on-stdin-eof",
        action="store_true",
        help="end at once, children too, when standard input closes: the starter is gone",
    )
    return parser


def add_result_store(parser: argparse.ArgumentParser) -> None:
    """Add `--out`, the store that gets the one result of a measurement, of which a part is none."""
    parser.add_argument(
        "--out", default=".store", help="store that gets the result: a folder or an fsspec URL"
    )
    parser.set_defaults(when_interrupted=BEGINS_ANEW)


def at_least(least: int) -> Callable[[str], int]:
    """A type of arguments: a whole number, `least` or more."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)

    return number


def above_zero(text: str) -> float:
    """A type of arguments: a finite number above 0."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return value


def run(
    work: Callable[[argparse.Namespace, Reporter], None],
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None = None,
) -> NoReturn:
    """Run `work` with parsed arguments and exit with the code that its end deserves."""
    arguments = parser.parse_args(argv)
    arguments.command = command_of(parser, sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _interrupt)
    # A shell that starts us in the background leaves SIGINT ignored.
    signal.signal(signal.SIGINT, _interrupt)
    if arguments.exit_on_stdin_eof:
        threading.Thread(target=_die_with_starter, name="lifeline", daemon=True).start()
    with _pipes() as pipes:
        reporter = Reporter(parser.prog.rpartition(".")[2], pipes)
        code = _attempt(work, arguments, reporter)
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a thread of Arrow's that lets go of a Python file while the interpreter is taken
    # down aborts the process (pyarrow 26, 3 of 20 processes that end after `read_table` of a file).
    os._exit(code)


def command_of(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str:
    """The command that does the same again, without where its result goes."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--out":
            next(words, None)
        elif word != "--exit-on-stdin-eof" and not word.startswith("--out="):
            name, equals, value = word.partition("=")
            kept.append(name + equals + place_of(value) if equals else place_of(word))
    return shlex.join([*parser.prog.split(), *kept])


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it ends, however it ends."""
    # A shell may have left it ignored, and a pool could then not end its processes.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        parent = multiprocessing.parent_process()
        end_with_parent(parent=None if parent is None else parent.pid)
    # Ctrl-C goes to the whole group; only the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _attempt(
    work: Callable[[argparse.Namespace, Reporter], None],
    arguments: argparse.Namespace,
    reporter: Reporter,
) -> int:
    try:
        out: Path | str | None = getattr(arguments, "out", None)
        if isinstance(out, str):
            check_store(out)
        elif out is not None:
            check_out(out, is_file=getattr(arguments, "out_is_file", False))
        work(arguments, reporter)
    except (SpeechAssetsError, ResourceError, ServerError) as error:
        retryable = bool(getattr(error, "retryable", False))
        reporter.close()
        print(f"error: {error}", file=sys.stderr)
        skips = bool(getattr(error, "skips", False))
        reporter.result("error", message=str(error), retryable=retryable, skips=skips)
        return EXIT_RETRYABLE if retryable else EXIT_FINAL
    except KeyboardInterrupt as error:
        reporter.close()
        kept = str(error) or getattr(arguments, "when_interrupted", None) or _GO_ON
        print(f"interrupted; {kept}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:
        reporter.close()
        traceback.print_exc()
        # What the machine did may pass; a fault of the program will not.
        retryable = isinstance(error, OSError | MemoryError)
        message = f"{type(error).__name__}: {error}"
        reporter.result("error", message=message, retryable=retryable)
        return EXIT_RETRYABLE if retryable else EXIT_FINAL
    reporter.close()
    return 0


@contextlib.contextmanager
def _pipes():
    """The Pipes context when an asset started this process, else None, also without Dagster."""
    if "DAGSTER_PIPES_CONTEXT" not in os.environ:
        yield None
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        yield pipes


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _die_with_starter() -> None:
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(EXIT_INTERRUPTED)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
