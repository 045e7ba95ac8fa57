"""The corpus half of the lineage: source, archives, speech, tokens, manifest, dataset card."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from resources.configured import CodecResource, StoreResource, WorkResource
from resources.errors import ResourceError
from server.errors import ServerError
from speech_assets.assets.checks import TOKEN_CHECKS, check_shards
from speech_assets.assets.failures import failed, record_shards
from speech_assets.corpus import card, manifest
from speech_assets.corpus.archive import archive_split, code_version, source_version
from speech_assets.corpus.shards import SPEECH_CODE_VERSION, TOKEN_CODE_VERSION, Shard
from speech_assets.corpus.stored_split import check_owner
from speech_assets.errors import SpeechAssetsError
from speech_assets.partitions import CorpusPartitions
from speech_assets.profiles import Profile

GROUP = "corpus"
# A start of Python, torch and the weights is paid once for so many shards.
SHARDS_PER_RUN = 16
# A download of hours would keep `speech` of the splits that are there from the one slot of `cpu`.
DOWNLOAD_POOL = "download"
_ERRORS = (SpeechAssetsError, ResourceError, ServerError)


def corpus_assets(profile: Profile, partitions: CorpusPartitions) -> list[Any]:
    """The corpus assets of `profile`."""
    corpus = profile.corpus
    backfill = dg.BackfillPolicy.multi_run(max_partitions_per_run=SHARDS_PER_RUN)

    @dg.observable_source_asset(group_name=GROUP)
    def source(context: dg.OpExecutionContext, store: StoreResource) -> dg.DataVersion:
        """What the corpus comes from: files of this machine, or what is published of LibriTTS-R.
        Observing tells whether it has changed."""
        try:
            return dg.DataVersion(source_version(corpus, store.store(), context.log.info))
        except _ERRORS as error:
            raise dg.Failure(str(error), allow_retries=False) from error

    @dg.asset(
        group_name=GROUP,
        deps=[source],
        partitions_def=partitions.splits,
        kinds={"parquet"},
        pool=DOWNLOAD_POOL if corpus.kind == "libritts-r" else "cpu",
        code_version=code_version(corpus),
    )
    def archives(context: dg.AssetExecutionContext, store: StoreResource) -> dg.MaterializeResult:
        """A split's rows as they came, audio undecoded: sorted by id, at most 1,000 a shard.
        LibriTTS-R is downloaded first: what is missing, into a folder where it stays."""
        split = context.partition_key
        try:
            check_owner(store.store(), corpus.name)
            shards, made = archive_split(
                corpus,
                split,
                len(partitions.shards_of_split[split]),
                store.store(),
                context.log.info,
            )
        except _ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": sum(shard.rows for shard in shards),
                "shards": len(shards),
                "audio_mib": sum(shard.audio_bytes for shard in shards) / 2**20,
                "skipped_because_valid": not made,
                "dagster/uri": store.store().path(f"archives/{split}"),
            }
        )

    @dg.asset(
        group_name=GROUP,
        deps=[dg.AssetDep(archives, partition_mapping=partitions.split_to_shards)],
        partitions_def=partitions.shards,
        backfill_policy=backfill,
        kinds={"parquet", "audio"},
        pool="cpu",
        code_version=SPEECH_CODE_VERSION,
    )
    def speech(
        context: dg.AssetExecutionContext, store: StoreResource, work: WorkResource
    ) -> dg.MaterializeResult:
        """Clips as mono 24 kHz PCM, silence at the ends cut. Rows that cannot be used are set aside
        in the quarantine, each with its reason."""
        results = work.run(
            context,
            "speech",
            [
                "--store",
                store.root,
                "--max-clip-s",
                str(profile.max_clip_s),
                "--shards",
                *context.partition_keys,
            ],
        )
        record_shards(context, results, _speech_metadata)
        return dg.MaterializeResult()

    @dg.asset(
        group_name=GROUP,
        deps=[speech],
        partitions_def=partitions.shards,
        backfill_policy=backfill,
        kinds={"parquet", "torch"},
        pool="gpu",
        code_version=TOKEN_CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                check.name, asset="tokens", description=check.description, blocking=True
            )
            for check in TOKEN_CHECKS
        ],
    )
    def tokens(
        context: dg.AssetExecutionContext,
        store: StoreResource,
        codec: CodecResource,
        work: WorkResource,
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        """SNAC codes of every clip, seven a frame, ready for training. Batching does not change
        them: a sample of each shard is compared with clips encoded alone."""
        try:
            folder = codec.folder()
        except _ERRORS as error:
            raise failed(context, error) from error
        options = ["--device", profile.device, "--precision", profile.precision]
        options += ["--kernels", profile.kernels]
        if profile.batch_samples is not None:
            options += ["--batch-samples", str(profile.batch_samples)]
        options += ["--compile"] * profile.compile
        options += ["--allow-untrained"] * codec.allow_untrained
        if codec.weights_sha256:
            options += ["--weights-sha256", codec.weights_sha256]
        results = work.run(
            context,
            "tokens",
            [
                "--store",
                store.root,
                "--codec",
                str(folder),
                *options,
                "--shards",
                *context.partition_keys,
            ],
        )
        shards = record_shards(context, results, _token_metadata)
        for figures in (result for result in results if result["kind"] == "figures"):
            for key in context.partition_keys:
                context.add_asset_metadata(
                    {f"run_{k}": v for k, v in figures.items() if k != "kind"}, partition_key=key
                )
        try:
            yield from check_shards(store.store(), [Shard.parse(str(r["shard"])) for r in shards])
        except _ERRORS as error:
            raise failed(context, error) from error
        yield dg.MaterializeResult()

    @dg.asset(
        name="manifest",
        group_name=GROUP,
        deps=[dg.AssetDep(tokens, partition_mapping=partitions.shards_to_split)],
        partitions_def=partitions.splits,
        kinds={"json"},
        code_version=manifest.CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                "complete",
                asset="manifest",
                blocking=True,
                description=(
                    "Every source row is a token row or in the quarantine, and no id is twice."
                ),
            )
        ],
    )
    def manifest_asset(
        context: dg.AssetExecutionContext, store: StoreResource
    ) -> dg.MaterializeResult:
        """What a split holds: shards, hours, tokens, speakers, what was set aside and why."""
        split = context.partition_key
        try:
            made = manifest.build_manifest(
                store.store(), corpus.name, split, partitions.shards_of_split[split]
            )
            store.store().write_json(manifest.manifest_key(split), made)
        except FileNotFoundError as error:
            raise dg.Failure(
                f"{error.filename} is missing: tokens of split {split!r} are there without what"
                " they were made from; materialize archives and speech of it again",
                allow_retries=False,
            ) from error
        except _ERRORS as error:
            raise failed(context, error) from error
        totals = made["totals"]
        faults = manifest.faults(made)
        return dg.MaterializeResult(
            metadata={
                **{k: v for k, v in totals.items() if isinstance(v, int | float)},
                "quarantine": dg.MetadataValue.json(made["quarantine"]),
                "dagster/uri": store.store().path(manifest.manifest_key(split)),
            },
            check_results=[
                dg.AssetCheckResult(
                    check_name="complete",
                    passed=not faults,
                    description="; ".join(faults) or "nothing is missing",
                    metadata={"faults": "; ".join(faults) or "none"},
                )
            ],
        )

    @dg.asset(
        group_name=GROUP,
        deps=[manifest_asset],
        kinds={"markdown"},
        code_version=card.CODE_VERSION,
    )
    def dataset_card(
        context: dg.AssetExecutionContext, store: StoreResource
    ) -> dg.MaterializeResult:
        """The token dataset in words: its sources, making, licences, and how to load it."""
        try:
            manifests = [
                store.store().read_json(manifest.manifest_key(split))
                for split in partitions.shards_of_split
            ]
            text = card.render_card(manifests)
            store.store().write_bytes(card.CARD_KEY, text.encode())
        except FileNotFoundError as error:
            raise dg.Failure(
                f"a manifest is missing ({error}); materialize manifest for every split first",
                allow_retries=False,
            ) from error
        except _ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            metadata={
                "card": dg.MetadataValue.md(text),
                "audio_hours": sum(made["totals"]["audio_hours"] for made in manifests),
                "tokens": sum(made["totals"]["tokens"] for made in manifests),
                "dagster/uri": store.store().path(card.CARD_KEY),
            }
        )

    return [source, archives, speech, tokens, manifest_asset, dataset_card]


def _speech_metadata(result: Mapping[str, Any]) -> dict[str, Any]:
    reasons = {reason: count for reason, count in result["reasons"].items() if count}
    return {
        "dagster/row_count": result["kept_rows"],
        "audio_hours": result["kept_s"] / 3600,
        "kept_s": result["kept_s"],
        "cut_s": result["cut_s"],
        "quarantined_rows": sum(reasons.values()),
        "quarantine": dg.MetadataValue.json(reasons),
        "seconds": result["seconds"],
        "skipped_because_valid": not result["made"],
    }


def _token_metadata(result: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        key: value
        for key, value in result.items()
        if isinstance(value, int | float) and key not in ("rows", "made")
    }
    return {
        "dagster/row_count": result["rows"],
        **plain,
        "skipped_because_valid": not result["made"],
    }
