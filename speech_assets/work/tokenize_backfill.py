"""A backfill of tokens beside the bare encoder, in turn: its rows and their figures.

The backfill is a Dagster run, or the work process' own loop for machines without Dagster. Speech is
there before; the bare encoder takes the same clips, held in memory.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from speech_assets.errors import ShardError
from speech_assets.results.result import Figure
from speech_assets.work.ablation import Recorder, encode_s
from speech_assets.work.tokens import tokenize_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from resources.store import Store
    from speech_assets.corpus.shards import Shard
    from speech_assets.work.token_shards import SpeechShard
    from speech_assets.work.tokenizer import Tokenizer

    Backfill = Callable[[list[Shard]], dict[str, float]]

KIND = "tokenize"
_SHARES = ("device_busy_share", "agreement")  # What names of shares begin with.


def measure(
    store: Store,
    tokenizer: Tokenizer,
    speech: Sequence[SpeechShard],
    backfill: Backfill,
    rounds: int,
    log: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A row of each round: seconds of the bare encoder and of `backfill` for the same shards."""
    shards = [held.shard for held in speech]
    # Warm-up: kernels of every length, allocator, file cache, Dagster's imports.
    encode_s(tokenizer, speech if tokenizer.codec.device.type == "cuda" else speech[:1])
    backfill(shards[:1])
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        encoder_s = encode_s(tokenizer, speech)
        clear(store, shards, "tokens")
        began_s = time.monotonic()
        figures = backfill(shards)
        backfill_s = time.monotonic() - began_s
        row = {
            "round": number,
            "encoder_s": encoder_s,
            "backfill_s": backfill_s,
            "share_of_encoder": encoder_s / backfill_s,
            **figures,
        }
        rows.append(row)
        log(
            f"round {number + 1}: encoder {encoder_s:.1f} s, backfill {backfill_s:.1f} s, "
            f"share {row['share_of_encoder']:.3f}"
        )
    return rows


def dagster_run(folder: str, environment: dict[str, str]) -> Backfill:
    """A function that materializes tokens of shards in one Dagster run and returns its figures."""
    # Before definitions are imported: they are built of what the environment says then.
    os.environ.update(environment)
    os.environ["SPEECH_STORE"] = folder
    import dagster as dg

    from speech_assets.definitions import build_definitions
    from speech_assets.demo import QUIET, RANGE_END, RANGE_START

    defs = build_definitions()
    os.environ.pop("SPEECH_STORE")
    os.environ.update(environment)  # The user's own store, if one is named.

    def backfill(shards: list[Shard]) -> dict[str, float]:
        with dg.DagsterInstance.ephemeral() as instance:
            result = defs.resolve_job_def("tokenize").execute_in_process(
                instance=instance,
                asset_selection=[dg.AssetKey("tokens")],
                tags={RANGE_START: shards[0].key, RANGE_END: shards[-1].key},
                run_config=QUIET,
            )
        events = result.asset_materializations_for_node("tokens")
        agreements = [_floats(event.metadata, "agreement") for event in events]
        lowest = {name: min(values[name] for values in agreements) for name in agreements[0]}
        return {**_floats(events[0].metadata, "run_"), **lowest}

    return backfill


def own_loop(store: Store, tokenizer: Tokenizer) -> Backfill:
    """A function that makes tokens of shards by the work process' own loop, in this process."""

    def backfill(shards: list[Shard]) -> dict[str, float]:
        recorder = Recorder("tokens")
        tokenizer.device_busy_s = 0.0
        if failures := tokenize_shards(store, shards, tokenizer, recorder):
            raise ShardError("; ".join(failures))
        return recorder.figures

    return backfill


def clear(store: Store, shards: Sequence[Shard], *assets: str) -> None:
    """Remove what is stored of `assets` (speech, tokens) of the shards."""
    for shard in shards:
        for asset in assets:
            store.delete(shard.object_key(asset))


def figures_of(
    rows: Sequence[Mapping[str, Any]], audio_min: float, speech_hours_per_min: float
) -> dict[str, Figure]:
    """Figures of the rounds; `speech_hours_per_min` is what speech was made at before."""
    return {
        "hours_per_min": median_of([audio_min / r["backfill_s"] for r in rows], "h/min"),
        "encoder_hours_per_min": median_of([audio_min / r["encoder_s"] for r in rows], "h/min"),
        "share_of_encoder": median_of([r["share_of_encoder"] for r in rows], "ratio"),
        "speech_capacity_hours_per_min": Figure(speech_hours_per_min, "h/min"),
        **loop_figures(rows),
    }


def loop_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """What the loop itself said: its stages' capacity, the device's share, codes, memory."""
    figures: dict[str, Figure] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name.endswith("capacity_hours_per_min"):
            figures[name] = median_of(values, "h/min")
        elif name.startswith(_SHARES):
            figures[name] = median_of(values, "share")
        elif name == "peak_memory_gib":
            figures[name] = median_of(values, "GiB")
    return figures


def median_of(values: Sequence[float], unit: str) -> Figure:
    """The median of the rounds' values, with the least and the most of them."""
    return Figure(statistics.median(values), unit, len(values), min(values), max(values))


def _floats(metadata: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Metadata values that are plain numbers and whose names begin with `prefix`."""
    return {
        name.removeprefix("run_"): float(value.value)
        for name, value in metadata.items()
        if name.startswith(prefix) and isinstance(value.value, int | float)
    }
