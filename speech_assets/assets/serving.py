"""The serving half of the lineage: what running servers say."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.profiles import Profile
from speech_assets.quality.apart import spoken_in_tokens
from speech_assets.quality.sentences import CODE_VERSION, QUALITY_SENTENCES, SEEDS

SPEAK_AGAIN = "speech/speak_again"
"""Tag of runs whose samples are spoken anew whatever their config says: a job's, so that no run
config that a schedule or a person gives it takes that away."""


class SamplesConfig(dg.Config):
    """What is spoken."""

    sentences: int = Field(
        len(QUALITY_SENTENCES),
        description="how many of the project's",
        ge=1,
        le=len(QUALITY_SENTENCES),
    )
    seeds: str = Field(
        ",".join(map(str, SEEDS)), description="of each sentence, with commas between"
    )
    again: bool = Field(False, description="speak what is there, too, made by the same or not")


def serving_assets(profile: Profile) -> list[Any]:
    """Assets of each preset that the profile lists."""
    presets = dg.StaticPartitionsDefinition(list(profile.presets))

    @dg.asset(
        partitions_def=presets,
        deps=["fidelity"],
        group_name="serving",
        kinds={"audio"},
        pool="gpu",
        code_version=CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                "apart",
                asset="samples",
                description="No sentence is in the transcripts of the token shards.",
            )
        ],
    )
    def samples(
        context: dg.AssetExecutionContext,
        config: SamplesConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        """Sentences spoken by a server of the preset, started for it and asked for whole answers.

        Thirty of seven kinds, each with two seeds unless asked for less. They have all of their
        lead-in: a client that streams gets the same speech with less silence. What the server
        refuses or cuts is among them and says so. What is there of the same settings, weights,
        versions and code is kept, and spoken again only by `again`.
        """
        arguments = ["--preset", context.partition_key, "--store", store.root]
        arguments += ["--sentences", str(config.sentences), f"--seeds={config.seeds}"]
        arguments += ["--again"] * (config.again or SPEAK_AGAIN in context.run.tags)
        try:
            results = work.run(context, "samples", arguments)
            made = result_of(context, results, "samples")
            shared = spoken_in_tokens(store.store())
        except ERRORS as error:
            raise failed(context, error) from error
        yield dg.AssetCheckResult(
            passed=not shared,
            asset_key="samples",
            check_name="apart",
            severity=dg.AssetCheckSeverity.WARN,
            description="\n".join(shared[:10]),
            metadata={"shared": len(shared)},
        )
        folder = store.store().path(f"samples/{made['preset']}")
        yield dg.MaterializeResult(
            metadata={**samples_metadata(made), "folder": dg.MetadataValue.path(folder)}
        )

    return [samples]


def samples_metadata(made: Mapping[str, Any]) -> dict[str, Any]:
    """What the asset's page shows of samples: what was said, first."""
    clips, refused = int(made["clips"]), int(made["refused"])
    audio_s = round(float(made["seconds"]), 1)
    said = f"{clips} clips of {made['preset']}, {audio_s} s of audio"
    return {
        "finding": f"{said}; the server refused {refused}" if refused else f"{said}; none refused",
        "clips": clips,
        "clips_spoken_now": int(made["spoken"]),
        "clips_in_store": int(made["kept"]),
        "clips_refused": refused,
        "audio_s": audio_s,
    }
