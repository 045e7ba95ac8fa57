"""Dagster's daemon as a person starts it, with the lineage of a test; it leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lineage_run import ROOT, processes_with, wait_for

from resources.work import end_group

if TYPE_CHECKING:
    from collections.abc import Generator

    from lineage_run import Lineage

STOPS_AFTER_S = 60.0
MARK = "LINEAGE_DAEMON"
"""Tells what the daemon has started from what an engine has, which outlives it."""
FAST = {"FRESHNESS_DAEMON_INTERVAL_SECONDS": "2"}
WORKSPACE = ["-w", str(ROOT / "workspace.yaml")]
DAGSTER = [sys.executable, "-W", "ignore", "-m", "dagster"]
# The daemon as it is, but it looks at backfills each second, not each 30 (Dagster 1.13.27 has no
# setting for it): a test of one waited a minute and more for its beginning and its end.
LOOKS_OFTEN = """
import dagster._daemon.controller as controller
controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 1
from dagster._daemon.cli import main
main()
"""
DAEMON = [sys.executable, "-W", "ignore", "-c", LOOKS_OFTEN, "run", *WORKSPACE]


@contextmanager
def daemon(lineage: Lineage) -> Generator[subprocess.Popen[bytes]]:
    """The daemon; it, the code server and what they started have ended with the context."""
    lineage.prepare()
    with lineage.output.open("ab") as output:
        process = subprocess.Popen(
            DAEMON,
            cwd=lineage.folder,
            env={**lineage.environment, MARK: str(lineage.folder), **FAST},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOPS_AFTER_S)
        finally:
            end_group(process)
            # Those that lead a session of their own see that their starter has gone.
            mine = str(lineage.folder)
            wait_for(lambda: not processes_with(MARK, mine), "what the daemon started has ended")
