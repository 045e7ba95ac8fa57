"""The voice's two trainings: the codec, and the language model on its codes."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from server.files import sha256_of
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
from speech_assets.errors import ConfigError
from speech_assets.voice import versions
from speech_assets.voice.files import sum_of


class TrainingConfig(dg.Config):
    """Settings of a training, as its command takes them: {"minutes": "9", "hidden": "384"}."""

    device: str = Field("cuda", description="cuda, or cpu for trials of a few steps")
    attempts: int = Field(3, description="seeds to try when a codec does not learn")
    seed: int = 1
    options: dict[str, str] = Field({}, description="any other option of the command, by name")


def training_assets() -> list[Any]:
    """Codec and language model. Each training has a folder of its own, named after all that it is
    made from, so that it goes on where it stopped and never on something else."""

    @dg.asset(
        group_name=GROUP,
        deps=["voice_corpus"],
        kinds={"torch"},
        pool="gpu",
        code_version=str(versions.CODEC_CODE_VERSION),
    )
    def voice_codec(
        context: dg.AssetExecutionContext,
        config: TrainingConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """The codec, trained on the speech of all voices. Goes on where it stopped; a seed with
        which it does not learn is given up for the next."""
        try:
            packs = packs_of(store.store())
            sums = {voice: sum_of(folder) for voice, folder in packs.items()}
            key = _key(sums, config.options, versions.CODEC_CODE_VERSION)
            trained: Mapping[str, Any] | None = None
            folder = ""
            for seed in range(config.seed, config.seed + config.attempts):
                folder = f"voice/codec/{key}-{seed}"
                results = work.run(
                    context,
                    "voice_codec",
                    [
                        *pack_options(packs),
                        "--out",
                        str(folder_of(store.store(), folder)),
                        *_options(config),
                        "--seed",
                        str(seed),
                    ],
                )
                if stalled := [r for r in results if r["kind"] == "stalled"]:
                    context.log.warning(str(stalled[0]["message"]))
                    continue
                trained = result_of(context, results, "voice_codec")
                break
            if trained is None:
                raise ConfigError(
                    f"no seed of {config.seed} to {config.seed + config.attempts - 1} learns; try "
                    "other seeds, or change the settings"
                )
            facts = {**trained, "folder": folder, "packs_sums": sums}
            store.store().write_json(CODEC, facts)
        except ERRORS as error:
            raise failed(context, error) from error
        return _trained(facts, store.store())

    @dg.asset(
        group_name=GROUP,
        deps=["voice_texts", "voice_corpus", "voice_codec"],
        kinds={"torch"},
        pool="gpu",
        code_version=str(versions.LM_CODE_VERSION),
    )
    def voice_lm(
        context: dg.AssetExecutionContext,
        config: TrainingConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """The language model, trained on the codec's codes of the speech and the texts' phonemes.
        Goes on where it stopped."""
        try:
            packs, texts = packs_of(store.store()), made(store.store(), TEXTS, "voice_texts")
            codec = in_force(store.store(), CODEC, "voice_codec")
            sums = {voice: sum_of(folder) for voice, folder in packs.items()}
            inputs = [sums, sha256_of(texts), codec["weights_sha256"], config.seed]
            folder = f"voice/lm/{_key(inputs, config.options, versions.LM_CODE_VERSION)}"
            results = work.run(
                context,
                "voice_lm",
                [
                    *pack_options(packs),
                    "--texts",
                    str(texts),
                    "--codec",
                    str(folder_of(store.store(), codec["folder"])),
                    "--live-codes",
                    str(codec["live_codes"]),
                    "--out",
                    str(folder_of(store.store(), folder)),
                    *_options(config),
                    "--seed",
                    str(config.seed),
                ],
            )
            trained = result_of(context, results, "voice_lm")
            facts = {**trained, "folder": folder, "packs_sums": sums}
            store.store().write_json(LM, facts)
        except ERRORS as error:
            raise failed(context, error) from error
        return _trained(facts, store.store())

    return [voice_codec, voice_lm]


def _options(config: TrainingConfig) -> list[str]:
    named = {"device": config.device, **config.options}
    return [w for k, v in named.items() for w in (f"--{k.replace('_', '-')}", v)]


def _key(inputs: object, options: Mapping[str, str], code_version: int) -> str:
    """Name of the folder of a training of these inputs: another input, another folder."""
    text = json.dumps([inputs, dict(options), code_version], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _trained(facts: Mapping[str, Any], store: Store) -> dg.MaterializeResult:
    plain = {k: v for k, v in facts.items() if isinstance(v, int | float | str) and k != "kind"}
    return dg.MaterializeResult(
        data_version=dg.DataVersion(str(facts["weights_sha256"])),
        metadata={
            **plain,
            "packs_sums": dg.MetadataValue.json(facts["packs_sums"]),
            "dagster/uri": store.path(str(facts["folder"])),
        },
    )
