"""The serving half of the lineage: what running servers say."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.profiles import Profile
from speech_assets.sentences import SAMPLES_CODE_VERSION, SENTENCES


class SamplesConfig(dg.Config):
    """What is spoken."""

    sentences: int = Field(
        len(SENTENCES), description="how many of the project's", ge=1, le=len(SENTENCES)
    )
    seeds: str = Field("1", description="of each sentence, with commas between")


def serving_assets(profile: Profile) -> list[Any]:
    """Assets of each preset that the profile lists."""
    presets = dg.StaticPartitionsDefinition(list(profile.presets))

    @dg.asset(
        partitions_def=presets,
        deps=["fidelity"],
        group_name="serving",
        kinds={"audio"},
        pool="gpu",
        code_version=SAMPLES_CODE_VERSION,
    )
    def samples(
        context: dg.AssetExecutionContext,
        config: SamplesConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """Sentences spoken by a server of the preset, started for it, as its clients get them."""
        arguments = ["--preset", context.partition_key, "--store", store.root]
        arguments += ["--sentences", str(config.sentences), "--seeds", config.seeds]
        try:
            results = work.run(context, "samples", arguments)
            made = result_of(context, results, "samples")
        except ERRORS as error:
            raise failed(context, error) from error
        folder = store.store().path(f"samples/{made['preset']}")
        return dg.MaterializeResult(
            metadata={
                "clips": made["clips"],
                "seconds": dg.MetadataValue.float(made["seconds"]),
                "folder": dg.MetadataValue.path(folder),
            }
        )

    return [samples]
