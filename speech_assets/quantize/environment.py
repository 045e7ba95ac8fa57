"""The environment of llm-compressor, `.venv-quantize`: made from a lock file, once, and kept.

llm-compressor and vLLM need different releases of compressed-tensors, so that one environment
cannot hold both. Its torch is of the same build, CPU or CUDA, as the main environment's.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from speech_assets.errors import SpeechAssetsError
from speech_assets.work.worker import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Stack = Literal["cpu", "gpu"]
ROOT = Path(__file__).resolve().parents[2]
NAME = ".venv-quantize"
PYTHON_VERSION = (3, 11)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_MARK = ".installed"  # Written last: an environment without it was interrupted.
_LOG = "install.log"
_SIZES: dict[Stack, tuple[int, str]] = {
    # What it takes with pip's temporary files, and what is said of it.
    "cpu": (3 << 30, "1.2 GB on disk, 1-5 minutes"),
    "gpu": (16 << 30, "many GB of CUDA libraries, 10 minutes or more"),
}


class EnvironmentFailedError(SpeechAssetsError):
    """The environment that quantizes could not be made."""


@dataclass(frozen=True, slots=True)
class QuantizeEnvironment:
    """A whole environment: its interpreter, and the hash of the lock that it was made from."""

    python: Path
    stack: Stack
    lock_sha256: str
    made_s: float  # 0 when it was there.


def main_stack() -> Stack:
    """The build of torch that this environment has."""
    return "cpu" if importlib.metadata.version("torch").endswith("+cpu") else "gpu"


def ensure_environment(
    say: Callable[[str], None] = print, *, root: Path = ROOT, stack: Stack | None = None
) -> QuantizeEnvironment:
    """The environment in `root`, made or made anew where it is missing, half or of another lock.

    Raises:
        EnvironmentFailedError: it cannot be made: wrong Python, no space, no network, no lock.
    """
    stack = stack or main_stack()
    lock, sha256 = lock_of(root, stack)
    folder = root / NAME
    mark = f"{stack} {sha256} {folder}\n"
    python = folder / "bin" / "python"
    try:
        # The lock file of pins is the lock of processes, too: a read-only handle changes nothing.
        with lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if _is_whole(folder, mark):
                return QuantizeEnvironment(python, stack, sha256, 0.0)
            started_s = time.monotonic()
            _make(folder, stack, lock, say)
            part = folder / f"{_MARK}.part"
            part.write_text(mark, "utf-8")
            part.replace(folder / _MARK)
            made_s = time.monotonic() - started_s
    except OSError as error:
        raise EnvironmentFailedError(
            f"{folder}: {error.strerror or error}; make room or rights there and try again"
        ) from error
    say(f"{NAME} is there, after {made_s:.0f} s")
    return QuantizeEnvironment(python, stack, sha256, made_s)


def lock_of(root: Path = ROOT, stack: Stack | None = None) -> tuple[Path, str]:
    """The file of pins for a stack, and its hash.

    Raises:
        EnvironmentFailedError: it cannot be read.
    """
    lock = root / f"requirements-quantize-{stack or main_stack()}.lock"
    try:
        return lock, hashlib.sha256(lock.read_bytes()).hexdigest()
    except OSError as error:
        raise EnvironmentFailedError(
            f"{lock}: {error.strerror}; quantizing needs a checkout of the project, and this file"
        ) from error


def _is_whole(folder: Path, mark: str) -> bool:
    try:
        return (folder / _MARK).read_text("utf-8") == mark and (folder / "bin" / "python").exists()
    except OSError:
        return False


def _make(folder: Path, stack: Stack, lock: Path, say: Callable[[str], None]) -> None:
    """Install the lock into `folder`, which is emptied first."""
    needed, size = _SIZES[stack]
    if sys.version_info[:2] != PYTHON_VERSION:
        raise EnvironmentFailedError(
            f"{NAME} needs Python {'.'.join(map(str, PYTHON_VERSION))}, this is "
            f"{sys.version.split()[0]}; run make setup, which finds one"
        )
    say(f"Installing llm-compressor into {NAME} ({size}; log in {NAME}/{_LOG})")
    shutil.rmtree(folder, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < needed:
        raise EnvironmentFailedError(
            f"{folder}: {free / 1e9:.1f} GB are free, {needed / 1e9:.1f} GB are needed; free space"
        )
    folder.mkdir()
    # The one that the main environment was made with: an environment's own is a link.
    base = str(getattr(sys, "_base_executable", sys.executable))
    _run(folder, [base, "-m", "venv", "--without-pip", str(folder)], "making the environment")
    torch = next((line for line in lock.read_text().splitlines() if line.startswith("torch==")), "")
    if not torch:
        raise EnvironmentFailedError(f"{lock}: no line torch==...; make it again with make lock")
    # By this environment's pip: to give another one its own takes longer than all the rest.
    python = str(folder / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install"]
    install += ["--no-deps", "--no-compile"]
    index = os.environ.get("SPEECH_TORCH_INDEX") or CPU_INDEX
    try:
        _run(folder, [*install, torch], torch)
    except EnvironmentFailedError:
        if stack != "cpu":
            raise
        # Only torch is taken from that index: the other packages there are old copies.
        what = f"{torch}, neither where pip looks nor at SPEECH_TORCH_INDEX={index}"
        _run(folder, [*install, "--extra-index-url", index, torch], what)
    if stack == "gpu" and any(folder.glob("lib/python3*/site-packages/torch-*+cpu.dist-info")):
        raise EnvironmentFailedError(
            f"{NAME}: pip gave the gpu stack the CPU build of torch, because it finds one locally "
            "(find-links); run again with PIP_FIND_LINKS= and PIP_CONFIG_FILE=/dev/null"
        )
    _run(folder, [*install, "-r", str(lock)], lock.name)


def _run(folder: Path, command: Sequence[str], what: str) -> None:
    """Run a command, its output in the log.

    Raises:
        EnvironmentFailedError: it failed; with pip's last word on it.
    """
    settings = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}
    log = folder / _LOG
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings, "PIP_PROGRESS_BAR": "off"},
            preexec_fn=die_with_parent,
        )
        try:
            code = process.wait()
        finally:
            process.kill()
            process.wait()
    if code != 0:
        lines = log.read_text("utf-8", "replace").splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no output"]
        raise EnvironmentFailedError(
            f"{NAME}: installing failed ({what}): {errors[-1]}; the whole log is {log}, mend the "
            "cause (network, space) and try again"
        )


def main() -> int:
    """Entry point of `python -m speech_assets.quantize.environment`."""
    try:
        environment = ensure_environment()
    except EnvironmentFailedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{environment.python} is ready (stack {environment.stack})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
