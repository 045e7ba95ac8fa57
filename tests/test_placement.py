"""Every job with work for a device tells each engine so, in its own words; no other job does."""

from __future__ import annotations

import json

import pytest

from speech_assets.definitions import build_definitions
from speech_assets.placement import CELERY_QUEUE, KUBERNETES_CONFIG, RAY_CONFIG, device_tags
from speech_assets.profiles import load_profile

OF_ENGINES = {CELERY_QUEUE, RAY_CONFIG, KUBERNETES_CONFIG}


@pytest.mark.parametrize("name", ["embedded", "h200"])
def test_the_jobs_that_an_engine_places_are_those_with_work_for_a_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_PROFILE", name)
    expected = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in device_tags(load_profile()).items()
    }
    jobs = [job for job in build_definitions().resolve_all_job_defs() if job.name[:2] != "__"]
    of_device = {job.name for job in jobs if "gpu" in {node.pool for node in job.graph.node_defs}}
    assert {"tokenize", "rebenchmark", "make_checkpoint"} <= of_device
    assert of_device.isdisjoint({"archive", "prepare_speech", "write_report"})
    for job in jobs:
        tags = {key: value for key, value in job.tags.items() if key in OF_ENGINES}
        assert tags == (expected if job.name in of_device else {}), job.name


def test_a_profile_without_gpus_asks_for_none() -> None:
    assert device_tags(load_profile({})) == {CELERY_QUEUE: "gpu"}
    tags = device_tags(load_profile({"SPEECH_PROFILE": "h200"}))
    assert tags[RAY_CONFIG] == {"num_gpus": 1}
    assert tags[KUBERNETES_CONFIG]["container_config"] == {
        "resources": {"limits": {"nvidia.com/gpu": "1"}}
    }
