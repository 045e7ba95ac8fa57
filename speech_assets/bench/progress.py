"""How far a run has come: what a terminal or a log shows while it is under way."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import Literal, TextIO

Phase = Literal["estimate", "warm-up", "measure", "finish"]
_LINE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A level under way. `ttfb_ms_p50` is of all requests so far, None before the first."""

    level: float
    mode: str
    phase: Phase
    elapsed_s: float
    of_s: float
    in_flight: int
    done: int
    failed: int
    ttfb_ms_p50: float | None
    last_error: str

    @property
    def line(self) -> str:
        """It in one line."""
        latency = "" if self.ttfb_ms_p50 is None else f", first byte p50 {self.ttfb_ms_p50:.0f} ms"
        failed = f", {self.failed} failed ({self.last_error[:60]})" if self.failed else ", 0 failed"
        return (
            f"{self.mode} {self.level:g} {self.phase} {self.elapsed_s:.0f}/{self.of_s:.0f} s: "
            f"{self.in_flight} in flight, {self.done} done{failed}{latency}"
        )


class ProgressLine:
    """Writes progress: one line that is written over on a terminal, some lines elsewhere."""

    def __init__(self, output: TextIO | None = sys.stderr) -> None:
        self._output = output
        self._is_terminal = output is not None and output.isatty()
        self._width = 0
        self._next_s = 0.0
        self._shown: tuple[float, Phase] | None = None

    def __call__(self, progress: Progress) -> None:
        """Show it."""
        line = progress.line
        if self._is_terminal:
            self._write("\r" + line[:160].ljust(self._width))
            self._width = len(line[:160])
        elif time.monotonic() >= self._next_s or self._shown != (progress.level, progress.phase):
            self._next_s = time.monotonic() + _LINE_EVERY_S
            self._write(line + "\n")
        self._shown = (progress.level, progress.phase)

    def clear(self) -> None:
        """Leave the terminal's line empty for what comes next."""
        if self._is_terminal and self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, words: str) -> None:
        """Write, if anybody is there to read: a run does not end for want of an audience."""
        if self._output is None:
            return
        try:
            self._output.write(words)
            self._output.flush()
        except OSError:
            silence(self._output)
            self._output = None
        except ValueError:  # Closed, or an encoding without some letter of the server's words.
            self._output = None


def silence(output: TextIO) -> None:
    """Send what is still written to `output` nowhere: else the interpreter's end would fail."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return
