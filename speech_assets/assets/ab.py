"""Comparisons of two configurations: a work process measures, this shows."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from speech_assets.ab.raw import read_pair
from speech_assets.ab.tables import comparison_table
from speech_assets.ab.verdict import verdicts
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.assets.result_metadata import result_metadata
from speech_assets.profiles import Profile
from speech_assets.quality.sentences import QUALITY_SENTENCES
from speech_assets.results.result import parse_result

# Bump when the same arms would be compared otherwise.
AB_CODE_VERSION = "3"


class AbConfig(dg.Config):
    """What arm B, the partition's preset, is compared with, and by how many clips.

    With `settings_b` or `codec_b` and no `arm_a`, arm A is the same preset without them.
    """

    arm_a: str = Field("", description="PRESET[,setting=value...]; empty is the profile's first")
    settings_b: str = Field("", description="setting=value,... that arm B's preset differs in")
    codec_b: str = Field("", description="arm B's codec: fp32, fp16, bf16, int8, or a folder")
    sentences: int = Field(
        len(QUALITY_SENTENCES),
        description="how many of the project's",
        ge=1,
        le=len(QUALITY_SENTENCES),
    )
    seeds: str = Field("1,2", description="of each sentence, with commas between")
    warmup: int = Field(2, description="clips that each server speaks first, not measured", ge=0)
    transcripts: bool = Field(True, description="whether Whisper listens to both arms")
    speaker: bool = Field(True, description="whether voices are compared")


def ab_assets(profile: Profile) -> list[Any]:
    """The comparison of each preset that the profile lists with its first."""
    presets = dg.StaticPartitionsDefinition(list(profile.presets))

    @dg.asset(
        partitions_def=presets,
        deps=[
            "fidelity",
            # Any of its forms may be an arm's codec.
            dg.AssetDep("codec_checkpoints", partition_mapping=dg.AllPartitionMapping()),
        ],
        group_name="quality",
        kinds={"benchmark"},
        pool="gpu",
        code_version=AB_CODE_VERSION,
    )
    def ab(
        context: dg.AssetExecutionContext,
        config: AbConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """The preset beside another configuration: both are served and asked for the same sentences
        with the same seeds, in turn. Audio, transcripts, times and memory, clip by clip; what
        differs by more than noise is said. Of the same configuration twice it is the noise.
        """
        try:
            arguments = ab_arguments(context.partition_key, config, profile, store.root)
            made = result_of(context, work.run(context, "ab", arguments), "ab")
            path = store.store().path(made["key"])
            value = parse_result(store.store().read_bytes(made["key"]), path)
            read_pair(store.store(), value["config"])
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            metadata={
                **ab_metadata(value, path),
                "folder": dg.MetadataValue.path(store.store().path(made["folder"])),
            }
        )

    return [ab]


def ab_arguments(preset: str, config: AbConfig, profile: Profile, root: str) -> list[str]:
    """The work process' arguments for arm B `preset`. One word each: a value may begin with `-`."""
    is_changed = bool(config.settings_b or config.codec_b)
    arm_a = config.arm_a or (preset if is_changed else profile.presets[0])
    arm_b = f"{preset},{config.settings_b}" if config.settings_b else preset
    return [
        *(f"--a={arm_a}", f"--b={arm_b}", f"--codec-b={config.codec_b}", f"--store={root}"),
        *(f"--sentences={config.sentences}", f"--seeds={config.seeds}"),
        *(f"--warmup={config.warmup}", *["--no-transcripts"] * (not config.transcripts)),
        *["--no-speaker"] * (not config.speaker),
    ]


def ab_metadata(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What the asset's page shows of a comparison: its table, what it says, its figures."""
    sentences = "\n".join(f"- {verdict.sentence}" for verdict in verdicts(value))
    shown = result_metadata(value, path)
    return {
        # What was found is read first, also before the table.
        "finding": shown["finding"],
        "comparison": dg.MetadataValue.md(comparison_table(value)),
        "verdicts": dg.MetadataValue.md(sentences),
        **shown,
    }
