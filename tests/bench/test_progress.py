"""The line of a run under way: written over on a terminal, now and then elsewhere."""

from __future__ import annotations

import io
import os

from speech_assets.bench.progress import Phase, Progress, ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(phase: Phase = "measure", done: int = 3, **changed: object) -> Progress:
    given = {"failed": 0, "ttfb_ms_p50": None, "last_error": "", **changed}
    return Progress(2, "closed", phase, 4.0, 10.0, 2, done, **given)  # pyright: ignore[reportArgumentType]


def test_a_line_says_level_phase_time_and_counts() -> None:
    assert progress().line == "closed 2 measure 4/10 s: 2 in flight, 3 done, 0 failed"
    line = progress(failed=1, last_error="refused: 503", ttfb_ms_p50=81.4).line
    assert line.endswith("3 done, 1 failed (refused: 503), first byte p50 81 ms")


def test_a_terminal_has_one_line_that_a_shorter_one_covers_and_clear_empties() -> None:
    terminal = Terminal()
    show = ProgressLine(terminal)
    long, short = progress(failed=1, last_error="refused"), progress()
    show(long)
    show(short)
    assert terminal.getvalue() == f"\r{long.line}\r{short.line.ljust(len(long.line))}"
    show.clear()
    assert terminal.getvalue().endswith("\r" + " " * len(short.line) + "\r")
    before = terminal.getvalue()
    show.clear()
    assert terminal.getvalue() == before


def test_a_reader_who_has_left_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:  # noqa: PTH123 a descriptor has no path
        show = ProgressLine(pipe)
        show(progress("warm-up"))
        show(progress())
        show.clear()
    ProgressLine(None)(progress())
    closed = io.StringIO()
    show = ProgressLine(closed)
    closed.close()
    show(progress())


def test_a_log_has_a_line_of_each_phase_and_not_of_every_look() -> None:
    log = io.StringIO()
    show = ProgressLine(log)
    for phase in ("warm-up", "measure"):
        for done in range(50):
            show(progress(phase, done))
    show.clear()
    assert [line.split()[2] for line in log.getvalue().splitlines()] == ["warm-up", "measure"]
