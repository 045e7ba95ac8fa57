"""Jobs: what is launched together, and how it is named in the UI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from speech_assets.assets.serving import SPEAK_AGAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

REBENCHMARK = "rebenchmark"
WRITE_REPORT = "write_report"


def serving_jobs(on_device: Mapping[str, Any]) -> list[Any]:
    """Jobs of the serving half; `on_device` are the tags of those with work for a device."""
    return [
        dg.define_asset_job(
            "speak_samples",
            selection=["samples"],
            tags=on_device,
            description="Start a preset's server and keep what it says.",
        ),
        dg.define_asset_job(
            "judge_samples",
            selection=["samples", "wer"],
            tags=on_device,
            description="Let a preset's server speak, and count what is misunderstood.",
        ),
        dg.define_asset_job(
            "compare_presets",
            selection=["ab"],
            tags=on_device,
            description="Serve a preset beside another configuration, and say what differs.",
        ),
        dg.define_asset_job(
            REBENCHMARK,
            selection=["samples", "wer", "load_tests", "decode_speed"],
            tags={**on_device, SPEAK_AGAIN: "yes"},
            description="Measure a preset again: what is heard, under load, and decoding alone.",
        ),
        dg.define_asset_job(
            WRITE_REPORT,
            selection=["report"],
            description="One page, and the same in Markdown, of the newest results.",
        ),
        dg.define_asset_job(
            "load_test",
            selection=["load_tests"],
            tags=on_device,
            description="Start a preset's server and find how many streams it keeps in realtime.",
        ),
        dg.define_asset_job(
            "climb_ladder",
            selection=["ladder"],
            tags=on_device,
            description="Serve and measure presets that differ in one switch, one after the other.",
        ),
    ]


def checkpoint_jobs(on_device: Mapping[str, Any]) -> list[Any]:
    """Jobs of the checkpoints, all of them with work for a device: its tags are `on_device`."""
    return [
        dg.define_asset_job(
            "calibrate",
            selection=["base_model", "calibration"],
            tags=on_device,
            description="Validate the base model and let it speak what calibrates and judges.",
        ),
        dg.define_asset_job(
            "make_checkpoint",
            selection=["checkpoints", "fidelity"],
            tags=on_device,
            description="A preset's checkpoint, and how far it strays from the base model.",
        ),
        dg.define_asset_job(
            "time_decoding",
            selection=["decode_speed"],
            tags=on_device,
            description="How fast a preset decodes alone.",
        ),
        dg.define_asset_job(
            "compare_codec_forms",
            selection=["base_codec", "codec_checkpoints"],
            tags=on_device,
            description="The codec's decoder in one form, beside the whole codec.",
        ),
    ]


def corpus_jobs(on_device: Mapping[str, Any]) -> list[Any]:
    """Jobs of the corpus half; `on_device` are the tags of the one with work for a device."""
    return [
        dg.define_asset_job(
            "observe_source",
            selection=["source"],
            description="See what the corpus comes from, and whether it has changed.",
        ),
        dg.define_asset_job(
            "archive",
            selection=["archives"],
            description="Store a split's rows, sorted, in shards.",
        ),
        dg.define_asset_job(
            "prepare_speech",
            selection=["speech"],
            description="Speech of shards whose archives are there, on machines without a device.",
        ),
        dg.define_asset_job(
            "tokenize",
            selection=["speech", "tokens"],
            tags=on_device,
            description=(
                "Speech and tokens of shards whose archives are there: what a backfill runs."
            ),
        ),
        dg.define_asset_job(
            "describe_split",
            selection=["manifest"],
            description="Count what a split holds, once its tokens are there.",
        ),
        dg.define_asset_job(
            "describe_dataset",
            selection=["dataset_card"],
            description="Write the dataset card, once every split has its manifest.",
        ),
    ]
