"""Kernels run by Triton's interpreter, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def run_interpreted(test_file: str, folder: Path, timeout_s: float) -> None:
    """Call `interpreted(folder)` of a test's file; fails with what its process wrote.

    Its own process: Triton asks for the interpreter when kernels are imported.
    """
    name = Path(test_file).stem
    code = f"import pathlib, {name}; {name}.interpreted(pathlib.Path({str(folder)!r}))"
    paths = [str(Path(test_file).parent), str(TESTS), str(TESTS.parent)]
    paths.append(os.environ.get("PYTHONPATH", ""))
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True, text=True, check=False, cwd=TESTS.parent, timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
