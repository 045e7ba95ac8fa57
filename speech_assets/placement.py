"""How an engine that places runs on machines is told what a run needs, in the words of each engine.

A launcher decides by the tags of the run, before anything of it is loaded. Only a named job hands
its tags on: runs of assets that were chosen by hand have none. Under Dagster's own launcher, which
starts every run on its own machine, the tags mean nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speech_assets.profiles import Profile

CELERY_QUEUE = "dagster-celery/queue"
RAY_CONFIG = "dagster-ray/config"
KUBERNETES_CONFIG = "dagster-k8s/config"
DEVICE_QUEUE = "gpu"
"""Celery's queue of runs with work for a device, named as the pool of their assets is."""


def device_tags(profile: Profile) -> dict[str, Any]:
    """Tags of a job with work for a device: Celery's queue, and the GPUs that `profile` asks for.

    Ray counts the GPUs that its nodes were started with, Kubernetes those that its nodes offer; a
    run that asks for more than there are waits for ever.
    """
    tags: dict[str, Any] = {CELERY_QUEUE: DEVICE_QUEUE}
    if profile.gpus_per_run:
        limits = {"nvidia.com/gpu": str(profile.gpus_per_run)}
        tags[RAY_CONFIG] = {"num_gpus": profile.gpus_per_run}
        tags[KUBERNETES_CONFIG] = {
            "container_config": {"resources": {"limits": limits}},
            # The launcher's own limits, of memory for instance, stay beside it.
            "merge_behavior": "DEEP",
        }
    return tags
