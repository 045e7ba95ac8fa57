"""Jobs: what is launched together, and how it is named in the UI."""

from __future__ import annotations

from typing import Any

import dagster as dg

REBENCHMARK = "rebenchmark"
WRITE_REPORT = "write_report"


def serving_jobs() -> list[Any]:
    """Jobs of the serving half."""
    return [
        dg.define_asset_job(
            "speak_samples",
            selection=["samples"],
            description="Start a preset's server and keep what it says.",
        ),
        dg.define_asset_job(
            "judge_samples",
            selection=["samples", "wer"],
            description="Let a preset's server speak, and count what is misunderstood.",
        ),
        dg.define_asset_job(
            "compare_presets",
            selection=["ab"],
            description="Serve a preset beside another configuration, and say what differs.",
        ),
        dg.define_asset_job(
            REBENCHMARK,
            selection=["samples", "wer", "load_tests"],
            description="Measure a preset again as it is served: what is heard, and under load.",
        ),
        dg.define_asset_job(
            WRITE_REPORT,
            selection=["report"],
            description="One page, and the same in Markdown, of the newest results.",
        ),
        dg.define_asset_job(
            "load_test",
            selection=["load_tests"],
            description="Start a preset's server and find how many streams it keeps in realtime.",
        ),
        dg.define_asset_job(
            "climb_ladder",
            selection=["ladder"],
            description="Serve and measure presets that differ in one switch, one after the other.",
        ),
    ]


def checkpoint_jobs() -> list[Any]:
    """Jobs of the checkpoints."""
    return [
        dg.define_asset_job(
            "calibrate",
            selection=["base_model", "calibration"],
            description="Validate the base model and let it speak what calibrates and judges.",
        ),
        dg.define_asset_job(
            "make_checkpoint",
            selection=["checkpoints", "fidelity"],
            description="A preset's checkpoint, and how far it strays from the base model.",
        ),
        dg.define_asset_job(
            "time_decoding",
            selection=["decode_speed"],
            description="How fast a preset decodes alone.",
        ),
        dg.define_asset_job(
            "compare_codec_forms",
            selection=["base_codec", "codec_checkpoints"],
            description="The codec's decoder in one form, beside the whole codec.",
        ),
    ]


def corpus_jobs() -> list[Any]:
    """Jobs of the corpus half."""
    return [
        dg.define_asset_job(
            "archive",
            selection=["archives"],
            description="Store a split's rows, sorted, in shards.",
        ),
        dg.define_asset_job(
            "tokenize",
            selection=["speech", "tokens"],
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
