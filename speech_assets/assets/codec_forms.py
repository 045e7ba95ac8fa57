"""The codec in the forms that a server may load: work processes make and compare, this shows."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import CodecResource, StoreResource, WorkResource
from server.codec_form import FORMS
from speech_assets.assets.checkpoints import GROUP
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.assets.result_metadata import result_metadata
from speech_assets.codec_forms.figures import FULL_CALLS, FULL_CLIPS
from speech_assets.codec_forms.tables import codec_forms_table
from speech_assets.profiles import Profile

# Bump when the same form would be made or compared otherwise.
CODE_VERSION = "1"
_MUST_BE_ZERO = ("sample_count_mismatches", "flagged_clips", "non_finite")


class CodecFormConfig(dg.Config):
    """How much of the form is compared with the whole codec; less marks the result as reduced."""

    clips: int = Field(FULL_CLIPS, description="real clips that are compared", ge=1)
    calls: int = Field(FULL_CALLS, description="timed calls of the decoder", ge=1)
    dtype: str = Field(
        "auto", description="what the form decodes in; auto is float32 on a CPU, else bfloat16"
    )


def codec_form_assets(profile: Profile) -> list[Any]:
    """The base codec, and what decodes of it in each form."""

    @dg.asset(group_name=GROUP, kinds={"huggingface"}, code_version=CODE_VERSION)
    def base_codec(context: dg.AssetExecutionContext, codec: CodecResource) -> dg.MaterializeResult:
        """The codec that shards are made with and speech is decoded by, fetched if need be."""
        try:
            folder = codec.folder()
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            metadata={
                "location": profile.codec.location,
                "folder": dg.MetadataValue.path(str(folder)),
                "weights_sha256": profile.codec.weights_sha256 or "not pinned",
            }
        )

    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(list(FORMS)),
        group_name=GROUP,
        deps=[base_codec],
        kinds={"torch", "audio"},
        pool="gpu",
        code_version=CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                "sound",
                asset="codec_checkpoints",
                blocking=True,
                description="As many samples as of the whole codec, finite, no unhealthy clip.",
            )
        ],
    )
    def codec_checkpoints(
        context: dg.AssetExecutionContext,
        config: CodecFormConfig,
        store: StoreResource,
        codec: CodecResource,
        work: WorkResource,
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        """The codec's decoder alone, in one form, and how what it decodes differs from the whole
        codec in float32: error, health, time, memory."""
        arguments = ["--form", context.partition_key, "--store", store.root]
        arguments += ["--codec", codec.location, "--device", profile.device]
        arguments += [f"--clips={config.clips}", f"--calls={config.calls}"]
        arguments += [f"--dtype={config.dtype}"]
        arguments += ["--allow-untrained"] * codec.allow_untrained
        try:
            results = work.run(context, "codec_checkpoint", arguments)
            made = result_of(context, results, "codec_checkpoint")
            value = store.store().read_json(made["key"])
        except ERRORS as error:
            raise failed(context, error) from error
        counts = {name: float(value["figures"][name]["value"]) for name in _MUST_BE_ZERO}
        yield dg.AssetCheckResult(
            passed=not any(counts.values()),
            asset_key="codec_checkpoints",
            check_name="sound",
            metadata={name: dg.MetadataValue.float(count) for name, count in counts.items()},
        )
        yield dg.MaterializeResult(
            metadata={
                **result_metadata(value, store.store().path(made["key"])),
                "comparison": dg.MetadataValue.md(codec_forms_table([value])),
                "folder": dg.MetadataValue.path(str(made["folder"])),
            }
        )

    return [base_codec, codec_checkpoints]
