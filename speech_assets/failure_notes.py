"""What a failed run's note says: what failed, why, and how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.notes import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dagster as dg

_FAILURE = "dagster._core.definitions.events.Failure: "
_PARTITION = "dagster/partition"


def failure_note(
    run: dg.DagsterRun, failure: dg.DagsterEvent, steps: Sequence[dg.DagsterEvent]
) -> Note:
    """The note of a run that ended with `failure`, whose failed steps ended with `steps`."""
    partition = run.tags.get(_PARTITION, "")
    what = ", ".join(str(step.step_key) for step in steps)
    of = f" of {partition}" if partition else ""
    job = "" if run.job_name.startswith("__") else run.job_name
    reasons = [(str(step.step_key), root_message(step)) for step in steps]
    why = "\n\n".join(f"{key}: {message}" for key, message in reasons)
    return Note(
        kind="failures",
        name=run.run_id,
        title=f"{what or job or 'a run'}{of} failed",
        why=why or failure.message or "the run's log says more",
        next_steps=(
            "Do what the message above asks for.",
            f"Then open the run {run.run_id} in the UI (make ui, Runs) and take Re-execute, From "
            "failure: what was finished is kept.",
            "Where the message is not enough: the run's log there has the output of its process.",
        ),
        facts={
            "run": run.run_id,
            "job": job,
            "failed": what,
            "partition": partition,
            "started by": run.tags.get("speech/started_by", ""),
        },
    )


def root_message(event: dg.DagsterEvent) -> str:
    """Why a step failed: the asset's own failure, which names value, place and remedy, else the
    error that all others were raised from."""
    error = event.step_failure_data.error
    while error is not None and error.cls_name != "Failure" and error.cause is not None:
        error = error.cause
    if error is None:
        return event.message or "the run's log says more"
    return error.message.strip().removeprefix(_FAILURE)
