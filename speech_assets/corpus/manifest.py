"""What a split of token shards holds, counted from the shards themselves."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from server.frames import SAMPLE_RATE_HZ, TOKENS_PER_FRAME
from speech_assets.corpus.quarantine import count_reasons, read_quarantine
from speech_assets.corpus.shards import (
    ARCHIVE_SCHEMA,
    SPEECH_SCHEMA,
    Shard,
    metadata_of,
    read_footer,
)
from speech_assets.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from resources.store import Store

CODE_VERSION = "1"
_COLUMNS = ["id", "speaker_id", "source", "licence", "sample_count", "frame_count"]
_SAME_IN_ALL = ("codec", "codec_weights_sha256", "codec_trained", "layout_version", "precision")


def manifest_key(split: str) -> str:
    """Key in the store of a split's manifest."""
    return f"manifests/{split}.json"


def build_manifest(store: Store, corpus: str, split: str, keys: Sequence[str]) -> dict[str, Any]:
    """The manifest of `split`: one entry per shard, totals, and what was set aside.

    Raises:
        ShardError: shards are missing, damaged, or made with different codecs.
    """
    shards = [Shard.parse(key) for key in keys]
    missing = [shard.key for shard in shards if not store.exists(shard.object_key("tokens"))]
    if missing:
        raise ShardError(
            f"split {split!r}: {len(missing)} of {len(shards)} token shards are missing"
            f" ({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}); materialize tokens"
            " for them first"
        )
    entries: list[dict[str, Any]] = []
    made_with: dict[str, str] = {}
    ids: Counter[str] = Counter()
    speakers: Counter[str] = Counter()
    samples_of: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for shard in shards:
        table, metadata = _read(store, shard)
        for name in _SAME_IN_ALL:
            if made_with.setdefault(name, metadata[name]) != metadata[name]:
                raise ShardError(
                    f"split {split!r} was made with more than one {name}: {made_with[name]} and "
                    f"{metadata[name]} ({shard.key}); materialize tokens of the whole split again"
                )
        rows = table.to_pylist()
        ids.update(row["id"] for row in rows)
        speakers.update(row["speaker_id"] for row in rows)
        for row in rows:
            samples_of[row["source"], row["licence"]] += row["sample_count"]
        quarantine_key = shard.quarantine_key("speech")
        with store.open(quarantine_key) as file:
            set_aside = read_quarantine(file, store.path(quarantine_key))
        reasons.update(count_reasons(set_aside))
        entries.append(_entry(store, shard, rows, len(set_aside), json.loads(metadata["figures"])))
    samples = sum(samples_of.values())
    frames = sum(entry["frames"] for entry in entries)
    audio_hours = samples / SAMPLE_RATE_HZ / 3600
    totals = {
        "shards": len(entries),
        "source_rows": sum(entry["source_rows"] for entry in entries),
        "rows": sum(entry["rows"] for entry in entries),
        "quarantined_rows": sum(entry["quarantined_rows"] for entry in entries),
        "duplicate_ids": sum(count - 1 for count in ids.values()),
        "audio_hours": audio_hours,
        "cut_hours": sum(entry["cut_s"] for entry in entries) / 3600,
        "frames": frames,
        "tokens": frames * TOKENS_PER_FRAME,
        "tokens_per_hour": frames * TOKENS_PER_FRAME / audio_hours if audio_hours else 0.0,
        "speakers": len(speakers),
    }
    return {
        "schema_version": 1,
        "corpus": corpus,
        "split": split,
        "made_with": made_with,
        "totals": totals,
        "audio_hours_by_source_and_licence": [
            {"source": source, "licence": licence, "audio_hours": n / SAMPLE_RATE_HZ / 3600}
            for (source, licence), n in sorted(samples_of.items())
        ],
        "quarantine": dict(sorted(reasons.items())),
        "shards": entries,
    }


def faults(manifest: Mapping[str, Any]) -> list[str]:
    """What makes a split incomplete, one line a fault."""
    found = [
        f"{entry['key']}: {entry['source_rows']} source rows became {entry['rows']} token rows and "
        f"{entry['quarantined_rows']} quarantined ones"
        for entry in manifest["shards"]
        if entry["source_rows"] != entry["rows"] + entry["quarantined_rows"]
    ]
    totals = manifest["totals"]
    if not totals["rows"]:
        named = ", ".join(f"{n} {reason}" for reason, n in manifest["quarantine"].items() if n)
        found.append(
            f"no row of {totals['source_rows']} can be used ({named or 'the split is empty'}); see"
            " quarantine/speech, and check the corpus row: delimiter, columns, path"
        )
    if duplicates := manifest["totals"]["duplicate_ids"]:
        found.append(f"{duplicates} ids are there twice")
    return found


def _entry(
    store: Store,
    shard: Shard,
    rows: Sequence[Mapping[str, Any]],
    quarantined_rows: int,
    figures: Mapping[str, Any],
) -> dict[str, Any]:
    archive_key, speech_key = shard.object_key("archives"), shard.object_key("speech")
    with store.open(archive_key) as file:
        _, source_rows = read_footer(file, ARCHIVE_SCHEMA, store.path(archive_key))
    with store.open(speech_key) as file:
        speech, _ = read_footer(file, SPEECH_SCHEMA, store.path(speech_key))
    return {
        "key": shard.key,
        "path": shard.object_key("tokens"),
        "source_rows": source_rows,
        "rows": len(rows),
        "quarantined_rows": quarantined_rows,
        "frames": sum(row["frame_count"] for row in rows),
        "audio_hours": sum(row["sample_count"] for row in rows) / SAMPLE_RATE_HZ / 3600,
        "cut_s": json.loads(speech["statistics"])["cut_s"],
        "agreement": figures["agreement"],
        "log_mel_distance_db": figures["log_mel_distance_db"],
        "envelope_correlation": figures["envelope_correlation"],
    }


def _read(store: Store, shard: Shard) -> tuple[pa.Table, dict[str, str]]:
    key = shard.object_key("tokens")
    try:
        with store.open(key) as file:
            table = pq.read_table(
                file,
                columns=_COLUMNS,
                use_threads=False,
                pre_buffer=False,
                page_checksum_verification=True,
            )
    except (pa.ArrowException, OSError) as error:
        raise ShardError(
            f"{store.path(key)} is damaged: {error}; delete it and materialize tokens {shard.key}"
        ) from error
    return table, metadata_of(table.schema)
