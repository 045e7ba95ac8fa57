"""A process of its own for what is measured, with a job in a file and its findings in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.errors import ResourceError
from resources.scratch import scratch_folder
from server.errors import ServerError
from server.files import write_json
from speech_assets.errors import SpeechAssetsError
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_END_WITHIN_S = 10.0
_JOB, _FOUND = "job.json", "found.json"


class ProcessError(SpeechAssetsError):
    """A measured process failed, or took longer than its limit."""


class NotForDeviceError(ProcessError):
    """The device does not run what was to be measured."""

    skips = True


def run(module: str, job: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """What `python -m module` found of `job`; the module's main is `answer`.

    Its standard output and error are this process's own: a pipe would need a thread that reads it,
    beside what is measured.

    Raises:
        NotForDeviceError: the device does not run it.
        ProcessError: it failed, or took longer than `limit_s`.
    """
    with scratch_folder("measured") as folder:
        given = {**job, "folder": str(folder), "starter_pid": os.getpid()}
        (folder / _JOB).write_text(json.dumps(given), encoding="utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(folder / _JOB)], stdin=subprocess.DEVNULL
        )
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise ProcessError(
                f"not measured within {limit_s:g} s; raise --limit-s or ask for less"
            ) from error
        finally:
            if child.poll() is None:
                child.kill()
                child.wait(_END_WITHIN_S)
        if not (folder / _FOUND).is_file():
            raise ProcessError(
                f"its process ended with code {code} before it had numbers; what it said stands "
                "above"
            )
        value: dict[str, Any] = json.loads((folder / _FOUND).read_text(encoding="utf-8"))
    if "error" in value:
        raise (NotForDeviceError if value["skips"] else ProcessError)(value["error"])
    return value


def answer(measure: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Run the job that the command line names, and end the process."""
    job_file = Path(sys.argv[1])
    job = json.loads(job_file.read_text(encoding="utf-8"))
    worker.die_with_parent()
    if os.getppid() != job["starter_pid"]:
        os._exit(worker.EXIT_INTERRUPTED)
    try:
        value = dict(measure(job))
    except (SpeechAssetsError, ResourceError, ServerError) as error:
        value = {"error": str(error), "skips": bool(getattr(error, "skips", False))}
    write_json(job_file.parent / _FOUND, value)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # vLLM and NCCL have complaints of their own for an interpreter that ends.
