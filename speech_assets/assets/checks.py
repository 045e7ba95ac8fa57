"""The checks of token shards, made on what the store really holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from server.frames import LEVELS
from speech_assets.corpus import fidelity
from speech_assets.corpus.shards import TOKEN_SCHEMA, check_token_table, metadata_of
from speech_assets.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from resources.store import Store
    from speech_assets.corpus.shards import Shard


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A token shard read back: its rows, its metadata and the figures recorded in it."""

    shard: Shard
    table: pa.Table
    metadata: dict[str, str]
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """One check: `faults` says what is wrong with a shard, `value` is plotted over time."""

    name: str
    description: str
    faults: Callable[[StoredShard], list[str]]
    value: str = ""


def _form(shard: StoredShard) -> list[str]:
    return check_token_table(shard.table)


def _silence(shard: StoredShard) -> list[str]:
    silent = shard.figures["silent_clips"]
    return [f"{silent} clips are silent"] if silent else []


def _agreement(shard: StoredShard) -> list[str]:
    limits = shard.figures["agreement_limits"]
    measured = [("overall", shard.figures["agreement"], limits["overall"])]
    measured += [
        (f"level {level}", shard.figures[f"agreement_level_{level}"], limits["level"])
        for level in range(LEVELS)
    ]
    return [f"{name} {value:.4%} < {least:.2%}" for name, value, least in measured if value < least]


def _fidelity(shard: StoredShard) -> list[str]:
    if shard.metadata["codec_trained"] != "true" or not shard.figures["rows"]:
        return []
    return fidelity.faults(
        fidelity.Fidelity(
            shard.figures["log_mel_distance_db"], shard.figures["envelope_correlation"]
        )
    )


TOKEN_CHECKS = (
    TokenCheck(
        "well_formed",
        "Schema, codes within 0..4,095, seven a frame, frames that fit the samples, ids once and"
        " sorted.",
        _form,
    ),
    TokenCheck("no_silent_clip", "No clip peaks below -60 dBFS.", _silence, "silent_clips"),
    TokenCheck(
        "agreement",
        "Codes of max(8, 1 %) clips are those of the clip encoded alone in float32.",
        _agreement,
        "agreement",
    ),
    TokenCheck(
        "fidelity",
        "Decoded clips sound like their originals: log-mel distance and envelope correlation."
        " Recorded, and blocking with trained weights.",
        _fidelity,
        "log_mel_distance_db",
    ),
)


def check_shards(store: Store, shards: Sequence[Shard]) -> Iterator[dg.AssetCheckResult]:
    """One result per check over `shards`, as stored; the metadata names each shard at fault.

    Raises:
        ShardError: a shard that was just made cannot be read back.
    """
    stored = [read_stored(store, shard) for shard in shards]
    for check in TOKEN_CHECKS:
        faults = {
            shard.shard.key: "; ".join(found) for shard in stored if (found := check.faults(shard))
        }
        metadata: dict[str, Any] = {"shards": len(stored), "faults": dg.MetadataValue.json(faults)}
        if check.value and stored:
            values = [float(shard.figures[check.value]) for shard in stored]
            metadata |= {f"{check.value}_min": min(values), f"{check.value}_max": max(values)}
        yield dg.AssetCheckResult(
            check_name=check.name,
            passed=not faults,
            metadata=metadata,
            description=f"{len(faults)} of {len(stored)} shards at fault",
        )


def read_stored(store: Store, shard: Shard) -> StoredShard:
    """A token shard as the store holds it.

    Raises:
        ShardError: it is missing or damaged.
    """
    key = shard.object_key("tokens")
    try:
        with store.open(key) as file:
            # One thread: one of Arrow's, still holding the file at exit, aborts the process.
            table = pq.read_table(
                file, page_checksum_verification=True, use_threads=False, pre_buffer=False
            )
    except FileNotFoundError as error:
        raise ShardError(f"{store.path(key)} is missing; materialize tokens {shard.key}") from error
    except (pa.ArrowException, OSError) as error:
        raise ShardError(
            f"{store.path(key)} is damaged: {error}; delete it and materialize tokens {shard.key}"
        ) from error
    metadata = metadata_of(table.schema)
    if not table.schema.remove_metadata().equals(TOKEN_SCHEMA) or "figures" not in metadata:
        raise ShardError(
            f"{store.path(key)} was not written by this version; delete it and materialize tokens "
            f"{shard.key}"
        )
    return StoredShard(shard, table, metadata, json.loads(metadata["figures"]))
