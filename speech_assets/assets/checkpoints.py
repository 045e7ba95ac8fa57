"""From a base model to checkpoints of every precision: work processes make, this shows.

Partitions are presets. One that serves another's weights (`model = "store:NAME"`) has a partition
of its own: its checks are its own.
"""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from server.frames import REALTIME_TOKENS_PER_S
from server.presets import load_presets
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.assets.result_metadata import result_metadata
from speech_assets.freshness import MEASURED_LATELY
from speech_assets.profiles import Profile
from speech_assets.quantize import base_model as base
from speech_assets.quantize import calibration as generations
from speech_assets.quantize.speed_tables import precision_table
from speech_assets.results.result import result_key
from speech_assets.results.stored import newest_complete

GROUP = "checkpoints"
# Bump when the same checkpoint would be made, judged or timed otherwise.
CHECKPOINT_CODE_VERSION = "1"
FIDELITY_CODE_VERSION = "1"
DECODE_SPEED_CODE_VERSION = "1"


class CalibrationConfig(dg.Config):
    """How much the base model speaks; 0 is all of the project's texts."""

    texts: int = Field(
        0, description="that calibrate quantization: fewer make worse checkpoints of 4 bits", ge=0
    )
    held_out: int = Field(
        0,
        description="that judge fidelity: fewer change no checkpoint, and judge less surely",
        ge=0,
    )
    max_tokens: int = Field(
        0, description=f"of a generation, {REALTIME_TOKENS_PER_S:.2f} are a second", ge=0
    )


class FidelityConfig(dg.Config):
    """How much of what the base model spoke is looked at."""

    generations: int = Field(0, description="held-out generations; 0 is all", ge=0)


class DecodeSpeedConfig(dg.Config):
    """How long decoding is timed; 0 is the command's own number."""

    tokens: int = Field(0, description="of a run", ge=0)
    runs: int = Field(0, description="that are timed, after the warm-up", ge=0)
    starts: int = Field(0, description="processes that time their start; one decodes", ge=0)
    profile: bool = Field(False, description="also which kernels take how much of it")
    allow_invalid: bool = Field(
        False, description="a measurement that does not count is kept as such, and no failure"
    )


def checkpoint_assets(profile: Profile) -> list[Any]:
    """Base model, calibration, and of each preset its checkpoint, fidelity and decode speed."""
    presets = dg.StaticPartitionsDefinition(list(profile.presets))

    @dg.asset(group_name=GROUP, kinds={"huggingface"}, code_version=base.CODE_VERSION)
    def base_model(context: dg.AssetExecutionContext, work: WorkResource) -> dg.MaterializeResult:
        """The model that all checkpoints are made from, fetched if need be and validated: weights
        whole, of the layout that speech tokens have."""
        arguments = [word for name in profile.presets for word in ("--preset", name)]
        try:
            found = result_of(context, work.run(context, "base_model", arguments), "base_model")
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            data_version=dg.DataVersion(str(found["weights_sha256"])),
            metadata={
                "location": str(found["location"]),
                "commit": str(found["commit"] or "none, a folder"),
                "weights_sha256": str(found["weights_sha256"]),
                "weights_mib": float(found["weights_bytes"]) / 2**20,
                "vocabulary_size": int(found["vocabulary_size"]),
                "layers": int(found["layers"]),
                "tied_head": bool(found["tied_head"]),
                "voices": ", ".join(found["voices"]),
            },
        )

    @dg.asset(
        group_name=GROUP,
        deps=[base_model],
        kinds={"json"},
        pool="gpu",
        code_version=generations.CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                "apart",
                asset="calibration",
                blocking=True,
                description="Texts that calibrate share no sentence with those that judge.",
            )
        ],
    )
    def calibration(
        context: dg.AssetExecutionContext,
        config: CalibrationConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        """What the base model itself says of the project's texts: of some of them quantizers learn
        which weights matter, by the others checkpoints are judged."""
        try:
            preset = base.base_preset(profile.presets).name
            arguments = ["--store", store.root, "--preset", preset]
            arguments += _options(texts=config.texts, held_out=config.held_out)
            arguments += _options(max_tokens=config.max_tokens)
            made = result_of(context, work.run(context, "calibration", arguments), "calibration")
            texts = [
                [row.text for row in generations.read_generations(store.store(), key)]
                for key in (generations.CALIBRATION_KEY, generations.HELD_OUT_KEY)
            ]
        except ERRORS as error:
            raise failed(context, error) from error
        shared = ""
        try:
            generations.check_apart(generations.text_sets(*texts))
        except generations.CalibrationError as error:
            shared = str(error)
        yield dg.AssetCheckResult(
            passed=not shared, asset_key="calibration", check_name="apart", description=shared
        )
        yield dg.MaterializeResult(metadata=_numbers(made))

    @dg.asset(
        partitions_def=presets,
        group_name=GROUP,
        deps=[base_model, calibration],
        kinds={"vllm"},
        pool="gpu",
        code_version=CHECKPOINT_CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                "engine",
                asset="checkpoints",
                blocking=True,
                description="vLLM loads it and gives the logits of its dequantized weights.",
            )
        ],
    )
    def checkpoints(
        context: dg.AssetExecutionContext, store: StoreResource, work: WorkResource
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        """The preset's checkpoint, made by its recipe, in the form that vLLM loads. One that is
        there and unchanged is kept."""
        arguments = ["--preset", context.partition_key, "--store", store.root]
        try:
            made = result_of(context, work.run(context, "checkpoint", arguments), "checkpoint")
            yield _check(made, "checkpoints", "engine")
        except ERRORS as error:
            raise failed(context, error) from error
        yield dg.MaterializeResult(metadata=checkpoint_metadata(made))

    @dg.asset(
        partitions_def=presets,
        group_name=GROUP,
        deps=[checkpoints, calibration],
        kinds={"torch"},
        pool="gpu",
        code_version=FIDELITY_CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                "fidelity",
                asset="fidelity",
                blocking=True,
                description="Mean KL divergence from the base model is within the preset's limit.",
            )
        ],
    )
    def fidelity(
        context: dg.AssetExecutionContext,
        config: FidelityConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        """How far the preset strays from the base model: both read what the base model said of
        texts that calibrated nothing, and their predictions are compared token by token."""
        arguments = ["--preset", context.partition_key, "--store", store.root]
        arguments += _options(generations=config.generations)
        try:
            made = result_of(context, work.run(context, "fidelity", arguments), "fidelity")
            value = store.store().read_json(made["key"])
            yield _check(made, "fidelity", "fidelity")
        except ERRORS as error:
            raise failed(context, error) from error
        yield dg.MaterializeResult(metadata=result_metadata(value, store.store().path(made["key"])))

    @dg.asset(
        partitions_def=presets,
        group_name=GROUP,
        deps=[checkpoints],
        kinds={"benchmark"},
        pool="gpu",
        code_version=DECODE_SPEED_CODE_VERSION,
        freshness_policy=MEASURED_LATELY,
    )
    def decode_speed(
        context: dg.AssetExecutionContext,
        config: DecodeSpeedConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """How fast the preset decodes alone, one stream and no server, beside what the memory's
        bandwidth allows."""
        arguments = ["--preset", context.partition_key, "--store", store.root]
        arguments += _options(tokens=config.tokens, runs=config.runs, starts=config.starts)
        arguments += ["--profile"] * config.profile
        arguments += ["--allow-invalid"] * config.allow_invalid
        try:
            made = result_of(context, work.run(context, "decode_speed", arguments), "decode_speed")
            value = store.store().read_json(made["key"])
            path = store.store().path(made["key"])
            metadata = decode_speed_metadata(value, path, store.store(), profile.presets)
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(metadata=metadata)

    return [base_model, calibration, checkpoints, fidelity, decode_speed]


def checkpoint_metadata(made: Mapping[str, Any]) -> dict[str, Any]:
    """What the asset's page shows of a checkpoint; what names `engine_` is of the check `engine`.

    `made` is what the work process reports.
    """
    of_check = {
        "passed": "engine_passed",
        "detail": "engine_detail",
        "value": "engine_value_nats",
        "limit": "engine_limit_nats",
    }
    read = {f"bytes_per_step_{head}_head": n for head, n in made["bytes_per_step"].items()}
    return {**{of_check.get(k, k): v for k, v in _numbers(made).items()}, **read}


def decode_speed_metadata(
    value: Mapping[str, Any], path: str, store: Store, presets: Sequence[str]
) -> dict[str, Any]:
    """What the asset's page shows of a speed: its figures, and how it stands beside the others.

    Those are the newest complete results in `store` of the profile's `presets`, whose first is what
    others are compared with; `value` itself is shown whatever became of it.
    """
    others = [
        other
        for other in newest_complete(store, "decode_speed")
        if other["config"]["preset"] in presets and not _same_place(other, value)
    ]
    settings = {name: preset.config() for name, preset in load_presets().items()}
    return {
        **result_metadata(value, path),
        "precision": dg.MetadataValue.md(
            precision_table([*others, value], newest_complete(store, "fidelity"), presets=settings)
        ),
    }


def _same_place(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two results are of the same kind, device and name."""
    first, second = (result_key(value).rpartition("/")[0] for value in (one, other))
    return first == second


def _check(made: Mapping[str, Any], asset: str, name: str) -> dg.AssetCheckResult:
    """The check of that name, as the work process has made it and written it for the server."""
    numbers = {f"{known}_nats": made[known] for known in ("value", "limit")}
    return dg.AssetCheckResult(
        passed=bool(made["passed"]),
        asset_key=asset,
        check_name=name,
        description=str(made["detail"]),
        metadata={k: dg.MetadataValue.float(v) for k, v in numbers.items() if v is not None},
    )


def _numbers(made: Mapping[str, Any]) -> dict[str, Any]:
    """A work process' plain values as metadata."""
    return {k: v for k, v in made.items() if k != "kind" and isinstance(v, str | int | float)}


def _options(**numbers: int) -> list[str]:
    """Options of a command, of those numbers that are not 0."""
    return [
        word
        for name, value in numbers.items()
        if value
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
