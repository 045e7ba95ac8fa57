"""Jobs: what is launched together, and how it is named in the UI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from speech_assets.partitions import CorpusPartitions


def corpus_jobs(partitions: CorpusPartitions) -> list[Any]:
    """Jobs of the corpus half."""
    return [
        dg.define_asset_job(
            "archive",
            selection=["archives"],
            partitions_def=partitions.splits,
            description="Store a split's rows, sorted, in shards.",
        ),
        dg.define_asset_job(
            "tokenize",
            selection=["speech", "tokens"],
            partitions_def=partitions.shards,
            description="Speech and tokens of shards whose archives are there: what a backfill runs.",
        ),
        dg.define_asset_job(
            "describe_split",
            selection=["manifest"],
            partitions_def=partitions.splits,
            description="Count what a split holds, once its tokens are there.",
        ),
        dg.define_asset_job(
            "describe_dataset",
            selection=["dataset_card"],
            description="Write the dataset card, once every split has its manifest.",
        ),
    ]
