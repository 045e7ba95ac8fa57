"""`speech-bench`: load tests from the command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn, TextIO

import pyarrow.parquet as pq

from speech_assets.bench.errors import BenchError
from speech_assets.bench.headers import read_header
from speech_assets.bench.options import APIS, FORMATS, MODES, BenchOptions
from speech_assets.bench.plain import plain_json
from speech_assets.bench.progress import ProgressLine, silence
from speech_assets.bench.report import report
from speech_assets.bench.run import run_bench
from speech_assets.bench.summary import command
from speech_assets.bench.texts import read_texts
from speech_assets.sentences import SENTENCES

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from speech_assets.bench.run import BenchRun

EXIT_VALID, EXIT_ERRORS, EXIT_USAGE, EXIT_CLIENT, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
_LEVELS = {"closed": "streams", "open": "rate", "listening": "listeners"}
_ONE_INTERRUPT_S = 1.0
_EXITS = """\
exit codes: 0 the figures are valid; 1 requests failed, dropped ones included; 2 usage or
configuration; 3 the client was the limit, the figures say nothing of the server; 130 interrupted
(what was measured is written). docs/bench.md explains method, columns and figures.
"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of `speech-bench`."""
    _open_standard_files()
    sys.exit(_main(argv))


def _main(argv: Sequence[str] | None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        options = _options(arguments)
        _make_writable(arguments.out)
        options.address.check_listening()
    except BenchError as error:
        _say(f"speech-bench: {error}", sys.stderr)
        return EXIT_USAGE
    # A supervisor's wish to end is as good as Ctrl-C, also where a shell has left that ignored.
    interrupt = _Interrupt()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    line = ProgressLine()
    _say(command(options), sys.stderr)
    try:
        run = run_bench(options, progress=line, keep_interrupted=True)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED  # Before anything was measured.
    # What is there to be written is written, however often Ctrl-C is pressed.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    line.clear()
    is_written = True
    try:
        write(run, arguments.out)
    except OSError as error:
        is_written = False
        _say(f"speech-bench: {arguments.out} was not written: {error}", sys.stderr)
    _say(report(run), sys.stdout)
    if is_written:
        _say(f"{arguments.out / 'rows.parquet'}, {arguments.out / 'summary.json'}", sys.stdout)
    for reason in run.summary["client"]["reasons"]:
        _say(f"speech-bench: client_was_the_limit: {reason}", sys.stderr)
    if not is_written:
        return EXIT_USAGE
    if run.interrupted:
        return EXIT_INTERRUPTED
    if not run.valid:
        return EXIT_CLIENT
    return EXIT_ERRORS if run.has_errors else EXIT_VALID


def _open_standard_files() -> None:
    """Give those that were closed (`2>&-`) a place: else the next file would get their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _say(words: str, output: TextIO | None) -> None:
    """Print, if anybody is still there to read it: `speech-bench ... | head -1` is no error."""
    if output is None:
        return
    try:
        print(words, file=output, flush=True)
    except UnicodeEncodeError:
        _say(words.encode("ascii", "backslashreplace").decode(), output)
    except OSError:
        silence(output)


def write(run: BenchRun, folder: Path) -> None:
    """Write rows.parquet, then summary.json, each whole or not at all."""
    with _whole(folder / "rows.parquet") as file:
        pq.write_table(run.rows, file)
    with _whole(folder / "summary.json") as file:
        summary = json.dumps(plain_json(run.summary), indent=1, allow_nan=False)
        file.write(summary.encode() + b"\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="speech-bench",
        description="Load-test a speech server: any of OpenAI's interface, or ours by WebSocket.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--url", required=True, help="the server, e.g. http://127.0.0.1:8000")
    add("--api", choices=APIS, default="openai", help="OpenAI's HTTP, or our WebSocket")
    add(
        "--mode",
        choices=MODES,
        default="closed",
        help="closed: N requests always in flight; open: so many a second, whatever is "
        "outstanding; listening: the rate at which N people listen at once",
    )
    add("--streams", type=_levels, metavar="N,N", help="levels of a closed loop (default: 1)")
    add("--rate", type=_levels, metavar="R,R", help="levels of an open loop, requests a second")
    add("--listeners", type=_levels, metavar="N,N", help="levels of mode listening")
    add("--arrivals", default="poisson", help="poisson (default), constant, gamma:CV")
    add("--duration-s", type=float, default=60.0, help="measured, of each level (default: 60)")
    add("--warmup-s", type=float, default=10.0, help="before it, under the same load (default: 10)")
    add("--texts", type=Path, help="one a line, or .jsonl with text (default: ten sentences)")
    add("--seed", type=int, default=1, help="of arrivals, order of texts, and cancels (default: 1)")
    add("--processes", type=int, help="client processes (default: one for 64 streams)")
    add("--out", type=Path, required=True, help="folder of rows.parquet and summary.json")
    add("--voice")
    add("--model")
    add("--format", choices=FORMATS, default="pcm", help="of the audio asked for (default: pcm)")
    add("--header", action="append", default=[], metavar="K: V", help="sent with every request")
    add("--fresh-connections", action="store_true", help="a new connection for each request")
    add("--cancel-share", type=float, default=0.0, help="of requests: cancelled while they run")
    add(
        "--timeout-s",
        type=float,
        default=120.0,
        help="silence of the server that ends a request (default: 120)",
    )
    add("--max-in-flight", type=int, help="of open loops; an arrival above it is dropped")
    add(
        "--lag-limit-ms",
        type=float,
        default=5.0,
        help="of the client, p99 (default: 5)",
    )
    return parser


def _options(arguments: argparse.Namespace) -> BenchOptions:
    mode = arguments.mode
    for other, name in _LEVELS.items():
        if other != mode and getattr(arguments, name) is not None:
            wanted = _LEVELS[mode]
            raise BenchError(f"--{name} is for --mode {other}; --mode {mode} has --{wanted}")
    levels = getattr(arguments, _LEVELS[mode])
    if levels is None and mode != "closed":
        raise BenchError(f"--mode {mode} needs --{_LEVELS[mode]}")
    return BenchOptions(
        url=arguments.url,
        api=arguments.api,
        mode=mode,
        levels=(1.0,) if levels is None else levels,
        duration_s=arguments.duration_s,
        warmup_s=arguments.warmup_s,
        texts=SENTENCES if arguments.texts is None else read_texts(arguments.texts),
        seed=arguments.seed,
        processes=arguments.processes,
        format=arguments.format,
        voice=arguments.voice,
        model=arguments.model,
        headers=tuple(read_header(text, n) for n, text in enumerate(arguments.header, 1)),
        arrivals=arguments.arrivals,
        fresh_connections=arguments.fresh_connections,
        cancel_share=arguments.cancel_share,
        timeout_s=arguments.timeout_s,
        lag_limit_ms=arguments.lag_limit_ms,
        max_in_flight=arguments.max_in_flight,
    )


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(level) for level in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers, as in 1,2,4") from None


def _make_writable(folder: Path) -> None:
    """Find out before the run, not after it, that its results cannot be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BenchError(
            f"--out {folder} cannot be written: {error.strerror}; name another folder"
        ) from error


@contextlib.contextmanager
def _whole(path: Path) -> Generator[IO[bytes]]:
    """A file that gets its name once its bytes are on the disk, and is removed if they do not."""
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with written.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


class _Interrupt:
    """Raises KeyboardInterrupt, and again when what the first one asks for takes too long.

    Fingers and supervisors that signal twice at once mean one end, in which rows are kept.
    """

    def __init__(self) -> None:
        self._last_s = -_ONE_INTERRUPT_S

    def __call__(self, *_: object) -> None:
        before_s, self._last_s = self._last_s, time.monotonic()
        if self._last_s - before_s >= _ONE_INTERRUPT_S:
            raise KeyboardInterrupt


if __name__ == "__main__":
    main()
