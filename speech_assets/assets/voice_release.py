"""What comes of the voice: scores of held-out sentences, and the checkpoint that ships."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.assets.voice_store import (
    CODEC,
    GROUP,
    LM,
    TEXTS,
    folder_of,
    in_force,
    made,
    pack_options,
    packs_of,
)
from speech_assets.voice import versions
from speech_assets.voice.card import CARD
from speech_assets.voice.files import sum_of

LARGEST_MB = 28.0  # Of codec and language model together, as they ship.


class ScoresConfig(dg.Config):
    """What is spoken and judged."""

    device: str = Field("cpu", description="to speak on; judged on the CPU")
    seeds: str = "0,1,2"
    most: int = Field(0, description="sentences and recordings; 0 is all")
    max_frames: int = Field(240, description="longest clip, in frames of 85 ms")
    quality: bool = Field(True, description="DNSMOS beside words")


def release_assets() -> list[Any]:
    """Scores and checkpoint."""

    @dg.asset(
        group_name=GROUP,
        deps=["voice_texts", "voice_corpus", "voice_codec", "voice_lm"],
        kinds={"audio"},
        pool="cpu",
        code_version=str(versions.SCORES_CODE_VERSION),
    )
    def voice_scores(
        context: dg.AssetExecutionContext,
        config: ScoresConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """Held-out recordings through the codec, and held-out sentences spoken freely, judged by
        Whisper and DNSMOS. Figures are result files, with 95 % intervals over sentences."""
        try:
            packs, texts = packs_of(store.store()), made(store.store(), TEXTS, "voice_texts")
            codec, lm = (
                folder_of(store.store(), in_force(store.store(), key, asset)["folder"])
                for key, asset in ((CODEC, "voice_codec"), (LM, "voice_lm"))
            )
            common = ["--codec", str(codec), "--device", config.device, "--most", str(config.most)]
            spoken = ["--lm", str(lm), "--texts", str(texts), "--seeds", config.seeds]
            metadata: dict[str, Any] = {}
            for name, arguments in (
                ("resynthesise", [*common, *pack_options(packs)]),
                ("speak", [*common, *spoken, "--max-frames", str(config.max_frames)]),
            ):
                out = folder_of(store.store(), f"voice/samples/{name}")
                results = work.run(context, "voice_samples", [name, "--out", str(out), *arguments])
                result_of(context, results, "samples")
                judged = ["--samples", str(out), "--texts", str(texts), "--out", store.root]
                judged += [] if config.quality else ["--no-mos"]
                results = work.run(context, "voice_eval", judged)
                figures = result_of(context, results, "figures")
                metadata |= {f"{name}_{k}": v for k, v in figures.items() if k != "kind"}
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(metadata=metadata)

    @dg.asset(
        group_name=GROUP,
        deps=["voice_texts", "voice_codec", "voice_lm"],
        kinds={"file"},
        code_version=str(versions.CHECKPOINT_CODE_VERSION),
        check_specs=[
            dg.AssetCheckSpec(
                "small_enough",
                asset="voice_checkpoint",
                description=f"Codec and language model take {LARGEST_MB:g} MB or less.",
            )
        ],
    )
    def voice_checkpoint(
        context: dg.AssetExecutionContext, store: StoreResource, work: WorkResource
    ) -> dg.MaterializeResult:
        """Codec and packed language model as they ship, each with its model card."""
        try:
            texts = made(store.store(), TEXTS, "voice_texts")
            facts = texts.with_name("texts.json")
            size_mb = 0.0
            metadata: dict[str, Any] = {}
            for name, key, asset in (("codec", CODEC, "voice_codec"), ("lm", LM, "voice_lm")):
                folder = folder_of(store.store(), in_force(store.store(), key, asset)["folder"])
                out = folder_of(store.store(), f"voice/checkpoint/{name}")
                arguments = [f"--{name}", str(folder), "--out", str(out)]
                arguments += ["--text-facts", str(facts)] if facts.exists() else []
                results = work.run(context, "voice_export", arguments)
                exported = result_of(context, results, "exported")
                size_mb += float(exported["megabytes"])
                metadata |= {
                    f"{name}_name": exported["name"],
                    f"{name}_megabytes": exported["megabytes"],
                    f"{name}_card": dg.MetadataValue.md((out / CARD).read_text("utf-8")),
                }
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            data_version=dg.DataVersion(sum_of(out, out.with_name("codec"))),
            metadata={**metadata, "megabytes": size_mb, "dagster/uri": str(out.parent)},
            check_results=[
                dg.AssetCheckResult(
                    check_name="small_enough",
                    passed=size_mb <= LARGEST_MB,
                    metadata={"megabytes": size_mb, "at_most": LARGEST_MB},
                )
            ],
        )

    return [voice_scores, voice_checkpoint]
