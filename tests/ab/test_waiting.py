"""Time that a server's threads wait for cores, of real processes that share one."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

from speech_assets.ab.waiting import WAITED_LIMIT, CoreTime, core_times, passed

SPIN = """
import os, sys, threading, time
os.sched_setaffinity(0, {int(sys.argv[1])})
thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
thread.start()
print("there", flush=True)
while True:
    pass
"""


def test_what_was_added_is_of_threads_that_are_there_after() -> None:
    before = {(1, 1): CoreTime(5.0, 1.0), (1, 2): CoreTime(7.0, 7.0)}
    after = {(1, 1): CoreTime(6.0, 1.5), (1, 3): CoreTime(0.25, 0.25)}
    assert passed(before, after) == CoreTime(1.25, 0.75)
    assert passed(before, {}) is None


def test_two_that_want_one_core_wait_for_it() -> None:
    core = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        spinners = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", SPIN, str(core)], stdout=subprocess.PIPE)
            )
            for _ in range(2)
        ]
        for process in spinners:
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        pid = spinners[0].pid
        before = core_times(pid)
        found = CoreTime()
        while found.ran_s + found.waited_s < 0.5:
            found = passed(before, core_times(pid)) or found
    assert len(before) == 2
    assert found.waited_s / (found.waited_s + found.ran_s) > WAITED_LIMIT


def test_a_process_that_is_gone_tells_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert core_times(process.pid) == {}
