"""The voice half of the lineage: texts and synthetic speech; the rest is in its neighbours."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from server.files import sha256_of
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.assets.voice_release import release_assets
from speech_assets.assets.voice_store import (
    GROUP,
    TEXTS,
    VOICES,
    chosen,
    folder_of,
    made,
)
from speech_assets.assets.voice_training import training_assets
from speech_assets.errors import ConfigError
from speech_assets.voice import versions
from speech_assets.voice.held_out import HELD_OUT_IDS, overlaps
from speech_assets.voice.texts import read_texts


class TextsConfig(dg.Config):
    """Where the sentences come from."""

    root: str = Field("/", description="where the source packages are installed or unpacked")
    entries: int = Field(12_000, description="texts to train on")
    seed: int = 7
    held_out: list[str] = Field([], description="files of more sentences to keep out, one a line")
    given: str = Field("", description="a text.jsonl.xz to take as it is, instead")


class CorpusConfig(dg.Config):
    """How much is spoken, and where the teacher's voices are."""

    voice_files: str = Field(
        "", description="folder of the voices of npm's kokoro-js 1.2.1 (package/voices)"
    )
    hours: float = Field(5.0, description="of speech, at most")
    ids: str = Field("", description="FIRST:END of the texts, for trials")


def voice_assets() -> list[Any]:
    """The assets of the voice; the same whatever the profile."""
    return [*corpus_assets(), *training_assets(), *release_assets()]


def corpus_assets() -> list[Any]:
    """Texts and speech."""
    voices = dg.StaticPartitionsDefinition(list(VOICES))

    @dg.asset(
        group_name=GROUP,
        kinds={"text"},
        code_version=str(versions.TEXTS_CODE_VERSION),
        check_specs=[
            dg.AssetCheckSpec(
                "held_out_apart",
                asset="voice_texts",
                blocking=True,
                description="No text to train on holds a sentence that judges the voice.",
            )
        ],
    )
    def voice_texts(
        context: dg.AssetExecutionContext,
        config: TextsConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """Sentences of free sources with their phonemes; the 70 that judge the voice are apart."""
        try:
            path = folder_of(store.store(), TEXTS)
            if config.given:
                path.parent.mkdir(parents=True, exist_ok=True)
                read_texts(Path(config.given))
                shutil.copyfile(config.given, path)
                facts: Mapping[str, Any] = {}
            else:
                options = ["--entries", str(config.entries), "--seed", str(config.seed)]
                for file in config.held_out:
                    options += ["--held-out", file]
                results = work.run(
                    context, "voice_texts", ["--out", str(path), "--root", config.root, *options]
                )
                facts = result_of(context, results, "texts")
            texts = read_texts(path)
        except ERRORS as error:
            raise failed(context, error) from error
        train = {n: text.text for n, text in texts.items() if n not in HELD_OUT_IDS}
        found = overlaps(train.items())
        return dg.MaterializeResult(
            data_version=dg.DataVersion(sha256_of(path)),
            metadata={
                "dagster/row_count": len(texts),
                "to_train_on": len(train),
                **chosen(facts, "seed", "phonemizer", "words"),
                "sources": dg.MetadataValue.json(facts.get("sources", [])),
                "dagster/uri": str(path),
            },
            check_results=[
                dg.AssetCheckResult(
                    check_name="held_out_apart",
                    passed=not found,
                    metadata={
                        "overlaps": len(found),
                        "first": f"{found[0].id}: {found[0].text}" if found else "none",
                    },
                )
            ],
        )

    @dg.asset(
        group_name=GROUP,
        deps=[voice_texts],
        partitions_def=voices,
        kinds={"audio"},
        pool="cpu",
        code_version=str(versions.CORPUS_CODE_VERSION),
        check_specs=[
            dg.AssetCheckSpec(
                "held_out_spoken",
                asset="voice_corpus",
                description="All sentences that judge the voice are spoken, by this voice too.",
            )
        ],
    )
    def voice_corpus(
        context: dg.AssetExecutionContext,
        config: CorpusConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """Synthetic speech of one voice, in packs of five minutes. Goes on where it stopped."""
        voice = context.partition_key
        try:
            out = folder_of(store.store(), f"voice/corpus/{voice}")
            texts = made(store.store(), TEXTS, "voice_texts")
            if not config.voice_files:
                raise ConfigError(
                    "voice_files is not set; run 'npm pack kokoro-js@1.2.1', unpack it with tar, "
                    "and give the path of its folder package/voices in the run's config"
                )
            options = ["--hours", str(config.hours)]
            options += ["--ids", config.ids] if config.ids else []
            results = work.run(
                context,
                "voice_corpus",
                [
                    "--voice",
                    voice,
                    "--voice-file",
                    str(Path(config.voice_files) / f"{VOICES[voice]}.bin"),
                    "--texts",
                    str(texts),
                    "--out",
                    str(out),
                    *options,
                ],
            )
            spoken = result_of(context, results, "voice_corpus")
        except ERRORS as error:
            raise failed(context, error) from error
        held = int(spoken["held_out_clips"])
        return dg.MaterializeResult(
            data_version=dg.DataVersion(str(spoken["packs_sum"])),
            metadata={
                "dagster/row_count": spoken["clips"],
                **chosen(spoken, "hours", "packs", "held_out_clips", "packs_sum"),
                "texts_sha256": sha256_of(texts),
                "dagster/uri": str(out),
            },
            check_results=[
                dg.AssetCheckResult(
                    check_name="held_out_spoken",
                    passed=held == len(HELD_OUT_IDS),
                    severity=dg.AssetCheckSeverity.WARN,
                    metadata={"clips": held, "of": len(HELD_OUT_IDS)},
                )
            ],
        )

    return [voice_texts, voice_corpus]
