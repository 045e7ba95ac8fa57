"""The quality half of the lineage: how well the presets' samples are understood."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.assets.result_metadata import result_metadata
from speech_assets.freshness import MEASURED_LATELY
from speech_assets.profiles import Profile
from speech_assets.quality.noise import judged
from speech_assets.quality.sentences import QUALITY_SENTENCES
from speech_assets.quality.tables import kinds_table, misheard_table, wer_table
from speech_assets.quality.versions import JUDGING

GROUP = "quality"


class WerConfig(dg.Config):
    """What is judged, and who judges; what is empty is as asked for last or as the profile says."""

    sentences: int = Field(
        0,
        description="how many of the samples' sentences; 0 is what was asked for last",
        ge=0,
        le=len(QUALITY_SENTENCES),
    )
    seeds: str = Field("", description="of each sentence, as 1,2; empty is what was asked for last")

    base: str = Field("", description="preset to compare with; empty is the profile's first")
    asr: str = Field("", description="Whisper's weights: a name, or a .pt file")
    dnsmos: bool = Field(True, description="rate noise, too")
    speaker: bool = Field(True, description="compare voices with the base preset's, too")


def quality_assets(profile: Profile) -> list[Any]:
    """WER of each preset that the profile lists."""
    presets = dg.StaticPartitionsDefinition(list(profile.presets))

    @dg.asset(
        partitions_def=presets,
        deps=["samples"],
        group_name=GROUP,
        kinds={"benchmark"},
        pool="gpu",
        code_version=JUDGING,
        freshness_policy=MEASURED_LATELY,
        check_specs=[
            dg.AssetCheckSpec(
                "within_noise",
                asset="wer",
                description="Format-insensitive WER is not above that of the profile's first "
                "preset by more than resampling sentences explains.",
            )
        ],
    )
    def wer(
        context: dg.AssetExecutionContext,
        config: WerConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        """How well the preset's samples are understood: Whisper hears them, errors are counted.

        Word and character error rates with 95 % intervals over sentences, beside those of the
        profile's first preset and of the previous result; DNSMOS, how alike the voice is to that
        preset's, leading silence, faults of the signal (clicks only beside that preset, so that
        none are sought in its own), clips that failed to speak. Beside a difference stands how
        large a true one must be to be found four times in five.
        """
        arguments = ["--preset", context.partition_key, "--store", store.root]
        arguments += [f"--sentences={config.sentences}", f"--seeds={config.seeds}"]
        arguments += [f"--base={config.base}"] if config.base else []
        arguments += [f"--asr={config.asr}"] if config.asr else []
        arguments += ["--no-mos"] * (not config.dnsmos)
        arguments += ["--no-speaker"] * (not config.speaker)
        try:
            made = result_of(context, work.run(context, "wer", arguments), "wer")
            value = store.store().read_json(made["key"])
        except ERRORS as error:
            raise failed(context, error) from error
        noise = judged(value)
        yield dg.AssetCheckResult(
            passed=noise.is_within,
            asset_key="wer",
            check_name="within_noise",
            severity=dg.AssetCheckSeverity.WARN,
            description=noise.detail,
        )
        yield dg.MaterializeResult(metadata=wer_metadata(value, store.store().path(made["key"])))

    return [wer]


def wer_metadata(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What the asset's page shows of a result: figures, kinds of sentences, the worst clips."""
    return {
        **result_metadata(value, path),
        "compared": dg.MetadataValue.md(wer_table([value])),
        "by_kind": dg.MetadataValue.md(kinds_table(value)),
        "misheard": dg.MetadataValue.md(misheard_table(value)),
    }
