"""The one `Definitions`: what the profile in force makes, with resources, jobs and automation."""

from __future__ import annotations

import os

import dagster as dg

from resources.configured import CodecResource, StoreResource, WorkResource
from speech_assets.assets.ab import ab_assets
from speech_assets.assets.checkpoints import checkpoint_assets
from speech_assets.assets.codec_forms import codec_form_assets
from speech_assets.assets.corpus import corpus_assets
from speech_assets.assets.load_tests import load_test_assets
from speech_assets.assets.quality import quality_assets
from speech_assets.assets.regressions import regression_checks
from speech_assets.assets.report import report_assets, report_checks
from speech_assets.assets.serving import serving_assets
from speech_assets.assets.voice import voice_assets
from speech_assets.automation import automation_schedules, automation_sensors
from speech_assets.cores import core_count, cpu_device_count
from speech_assets.jobs import checkpoint_jobs, corpus_jobs, serving_jobs
from speech_assets.partitions import corpus_partitions
from speech_assets.placement import device_tags
from speech_assets.profiles import DEFAULT_STORE, load_profile


def build_definitions() -> dg.Definitions:
    """Definitions of the profile that the environment chooses.

    Raises:
        ConfigError: the profile, or the corpus that it names, is not what it must be.
    """
    profile = load_profile()
    # A wrong number is said now, not after the first stage.
    core_count()
    cpu_device_count()
    partitions = corpus_partitions(profile.corpus)
    on_device = device_tags(profile)
    return dg.Definitions(
        assets=[
            *corpus_assets(profile, partitions),
            *voice_assets(),
            *checkpoint_assets(profile),
            *codec_form_assets(profile),
            *serving_assets(profile),
            *load_test_assets(profile),
            *quality_assets(profile),
            *ab_assets(profile),
            *report_assets(),
        ],
        asset_checks=[*regression_checks(profile), *report_checks()],
        jobs=[
            *corpus_jobs(on_device),
            *checkpoint_jobs(on_device),
            *serving_jobs(on_device),
        ],
        schedules=automation_schedules(profile),
        sensors=automation_sensors(profile),
        resources={
            "store": StoreResource(root=os.environ.get("SPEECH_STORE") or DEFAULT_STORE),
            "codec": CodecResource(
                location=profile.codec.location,
                weights_sha256=profile.codec.weights_sha256,
                allow_untrained=profile.codec.allow_untrained,
            ),
            "work": WorkResource(),
        },
        # A run is a process of its own already; one more per step would cost a start and an orphan.
        executor=dg.in_process_executor,
    )


defs = build_definitions()
