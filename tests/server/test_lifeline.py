"""A process that asks to end with its starter, where that is there and where it has gone."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from conftest import ROOT

ASKS = (
    "import os, signal; from server.lifeline import end_with_parent;"
    "end_with_parent(signal.{by}, parent={parent}); print('goes on')"
)


def asked(by: signal.Signals, parent: str) -> subprocess.CompletedProcess[str]:
    code = ASKS.format(by=by.name, parent=parent)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_who_asks_after_its_starter_has_gone_ends_at_once(by: signal.Signals) -> None:
    done = asked(by, "os.getpid()")  # Nobody starts itself: as if it had another parent by now.
    assert (done.returncode, done.stdout) == (-by, "")


@pytest.mark.parametrize("parent", ["None", "os.getppid()"])
def test_who_asks_while_its_starter_is_there_goes_on(parent: str) -> None:
    done = asked(signal.SIGKILL, parent)
    assert (done.returncode, done.stdout) == (0, "goes on\n")
