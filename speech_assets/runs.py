"""Runs whose process was killed: ended in Dagster's books, their pool slots given back.

A run that is executed in the process of a command (`make demo`) has nobody who sees it die. It
would stay STARTED and hold its slot of the pool, for which the next run waits for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from resources.process import is_gone, process_name

if TYPE_CHECKING:
    from dagster import DagsterInstance

PROCESS_TAG = "speech/process"
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def run_tags() -> dict[str, str]:
    """Tags of a run that this process executes itself."""
    return {PROCESS_TAG: process_name()}


def end_lost_runs(instance: DagsterInstance) -> list[str]:
    """Mark runs of killed processes of this machine failed and free their slots; their ids."""
    lost = [
        run
        for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
        if is_gone(run.tags.get(PROCESS_TAG, ""))
    ]
    for run in lost:
        instance.report_run_failed(run, "The process of this run was killed; run it again.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in lost]
