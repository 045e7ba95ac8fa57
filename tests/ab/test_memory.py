"""Memory of a server: all its processes, at their highest."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from speech_assets.ab.memory import device_mib, memory_of, process_tree

if TYPE_CHECKING:
    from pathlib import Path

# Each has had 64 MiB and let go of them; the parent says when both have.
CHILD = "b = bytearray(64 << 20); b[::4096] = b'x' * len(b[::4096]); del b; print(flush=True)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD + "; input()"!r}], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
child.stdout.readline()
{CHILD}
sys.stdin.read()
child.communicate(b"\\n")
"""


def test_a_process_and_its_children_are_weighed_at_their_highest() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        tree = process_tree(process.pid)
        found = memory_of(process.pid, "cpu")
        process.communicate(b"")
    assert len(tree) == 2
    assert tree[0] == process.pid
    assert found is not None
    assert found.measure == "peak resident memory"
    assert found.mib > 2 * 64


def test_a_process_that_has_ended_has_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert memory_of(process.pid, "cpu") is None


def test_device_memory_is_what_the_driver_says_of_these_processes(tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.write_text("#!/bin/sh\nprintf '11, 1024\\n12, 512\\n13, 99\\n14, [N/A]\\n'\n")
    driver.chmod(0o755)
    assert device_mib([11, 12], str(driver)) == 1_536
    assert device_mib([14, 15], str(driver)) is None
    assert device_mib([11], str(tmp_path / "none")) is None
