"""Tokenization measured: a backfill through Dagster beside the bare encoder, in turn, in one run.

The backfill is the real one: Dagster's run, the work process' start, reading, encoding, checking,
storing. The bare encoder is the same encoder on the same clips, held in memory, after a warm-up,
with nothing else. Speech shards are made before and not timed; their capacity is measured and
stands beside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from resources.store import Store
from server.codec import load_codec, use_exact_float32
from server.weights import CODEC_FILES, local_folder, parse_location
from speech_assets.cores import core_count
from speech_assets.corpus import repack, sources
from speech_assets.corpus.shards import Shard
from speech_assets.errors import ConfigError
from speech_assets.profiles import Profile, load_profile
from speech_assets.results.provenance import utc_now
from speech_assets.results.result import Figure, Result
from speech_assets.work import worker
from speech_assets.work.device import candidates, device_row, keep_freed_memory
from speech_assets.work.speech import DecodingPool, SpeechOptions, make_shard
from speech_assets.work.token_shards import SpeechShard, read_speech
from speech_assets.work.tokenizer import (
    EncodeOptions,
    Tokenizer,
    default_batch_samples,
    encoder_threads,
)
from speech_assets.work.tokens import tokenize_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Backfill = Callable[[list[Shard]], dict[str, float]]

MIN_SHARDS = 8


def main() -> None:
    """Entry point of `python -m speech_assets.work.bench_tokenize`."""
    parser = worker.argument_parser("bench_tokenize", __doc__ or "")
    parser.add_argument(
        "--out", type=Path, default=Path(".store"), help="store that gets the result"
    )
    parser.add_argument("--rounds", type=int, default=3, help="backfill and bare encoder, in turn")
    parser.add_argument("--shards", type=int, default=0, help="shards of it; 0 is all, at least 8")
    parser.add_argument(
        "--without-dagster",
        action="store_true",
        help=(
            "time the work process' own loop instead of a Dagster run: for machines without Dagster"
        ),
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = utc_now()
    environment = dict(os.environ)
    profile = load_profile(environment)
    device = candidates(profile.device)[0]
    with tempfile.TemporaryDirectory(prefix="speech-bench-") as folder:
        store = Store(folder)
        shards, speech_s = _prepare(store, profile, arguments, reporter)
        torch.set_num_threads(1)
        keep_freed_memory()
        use_exact_float32()
        codec = load_codec(
            local_folder(parse_location(profile.codec.location), CODEC_FILES),
            device.torch_name,
            allow_untrained=profile.codec.allow_untrained,
        )
        options = EncodeOptions(
            (
                default_batch_samples(codec)
                if profile.batch_samples is None
                else profile.batch_samples
            ),
            profile.compile and codec.device.type == "cuda",
            profile.precision,
            encoder_threads(),
        )
        tokenizer = Tokenizer(codec, options)
        speech = [read_speech(store, shard) for shard in shards]
        audio_min = sum(shard.audio_s for shard in speech) / 60
        reporter.log(f"{len(shards)} shards, {audio_min:.1f} minutes of speech, on {device.chip}")
        backfill = (
            _own_loop(store, tokenizer)
            if arguments.without_dagster
            else _dagster_run(folder, environment)
        )
        # Warm-up: kernels of every length, allocator, file cache, Dagster's imports.
        _encode(tokenizer, speech if codec.device.type == "cuda" else speech[:1])
        backfill(shards[:1])
        rows: list[dict[str, Any]] = []
        for number in range(arguments.rounds):
            encoder_s = _encode(tokenizer, speech)
            _clear(store, shards)
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
            reporter.log(
                f"round {number + 1}: encoder {encoder_s:.1f} s, backfill {backfill_s:.1f} s, "
                f"share {row['share_of_encoder']:.3f}"
            )
        result = Result(
            kind="tokenize",
            name=codec.identity.name,
            started_at=started_at,
            device=device_row(device),
            command="python -m speech_assets.work.bench_tokenize",
            config={
                "profile": profile.name,
                "corpus": profile.corpus.name,
                "codec": codec.identity.name,
                "trained": codec.identity.trained,
                "shards": len(shards),
                "audio_minutes": audio_min,
                "batch_samples": options.batch_samples,
                "compile": options.compiled,
                "precision": options.precision,
                "threads": options.threads,
                "through_dagster": not arguments.without_dagster,
                "rounds": arguments.rounds,
            },
            rows=rows,
            figures=_figures(rows, audio_min, speech_s),
        )
        Store(str(arguments.out)).write_json(result.key, result.as_json())
        reporter.log(f"result: {arguments.out / result.key}")


def _prepare(
    store: Store, profile: Profile, arguments: argparse.Namespace, reporter: worker.Reporter
) -> tuple[list[Shard], float]:
    """Archives and speech of the benchmark's shards, and the seconds that speech took."""
    corpus = profile.corpus
    shards: list[Shard] = []
    for split, files in sources.source_files(corpus).items():
        count = repack.shard_count(sources.row_count(corpus, split, files), corpus.shard_rows)
        repack.repack_split(corpus, split, files, count, store, lambda _: None)
        shards += [Shard(split, index) for index in range(count)]
    shards = shards[: arguments.shards or None]
    if len(shards) < MIN_SHARDS:
        raise ConfigError(
            f"{len(shards)} shards are too few to measure a backfill by; take at least {MIN_SHARDS}"
        )
    reporter.log(f"making speech of {len(shards)} shards (not timed as part of the backfill)")
    options = SpeechOptions(max_clip_s=profile.max_clip_s)
    with DecodingPool(core_count(), options) as pool:
        make_shard(store, shards[0], options, pool)  # Warm-up: the pool's start.
        began_s = time.monotonic()
        for shard in shards[1:]:
            make_shard(store, shard, options, pool)
        seconds = (time.monotonic() - began_s) * len(shards) / (len(shards) - 1)
    return shards, seconds


def _dagster_run(folder: str, environment: dict[str, str]) -> Backfill:
    """A function that materializes tokens of shards in one Dagster run and returns its figures."""
    os.environ["SPEECH_STORE"] = folder
    import dagster as dg

    from speech_assets.definitions import build_definitions
    from speech_assets.demo import QUIET, RANGE_END, RANGE_START

    defs = build_definitions()
    os.environ.pop("SPEECH_STORE")
    os.environ.update(environment)

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


def _floats(metadata: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Metadata values that are plain numbers and whose names begin with `prefix`."""
    return {
        name.removeprefix("run_"): float(value.value)
        for name, value in metadata.items()
        if name.startswith(prefix) and isinstance(value.value, int | float)
    }


def _own_loop(store: Store, tokenizer: Tokenizer) -> Backfill:
    """A function that makes tokens of shards by the work process' own loop, in this process."""

    def backfill(shards: list[Shard]) -> dict[str, float]:
        recorder = _Recorder("tokens")
        tokenizer.device_busy_s = 0.0
        if failures := tokenize_shards(store, shards, tokenizer, recorder):
            raise ConfigError("; ".join(failures))
        return recorder.figures

    return backfill


class _Recorder(worker.Reporter):
    """Keeps the run's figures, and the lowest agreement of any shard, instead of reporting them."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.figures: dict[str, float] = {}

    def result(self, kind: str, **values: Any) -> None:
        """Keep figures of the run."""
        if kind == "figures":
            self.figures |= values
        if kind == "shard":
            for name, value in values.items():
                if name.startswith("agreement") and isinstance(value, float):
                    self.figures[name] = min(value, self.figures.get(name, 1.0))


def _encode(tokenizer: Tokenizer, speech: list[SpeechShard]) -> float:
    began_s = time.monotonic()
    for shard in speech:
        tokenizer.encode(shard.clips)
    if tokenizer.codec.device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - began_s


def _clear(store: Store, shards: list[Shard]) -> None:
    for shard in shards:
        store.delete(shard.object_key("tokens"))


def _figures(rows: list[dict[str, Any]], audio_min: float, speech_s: float) -> dict[str, Figure]:
    def over(name: str, unit: str, value: Callable[[dict[str, Any]], float]) -> dict[str, Figure]:
        values = [value(row) for row in rows]
        return {
            name: Figure(statistics.median(values), unit, len(values), min(values), max(values))
        }

    figures = {
        **over("hours_per_min", "h/min", lambda r: audio_min / r["backfill_s"]),
        **over("encoder_hours_per_min", "h/min", lambda r: audio_min / r["encoder_s"]),
        **over("share_of_encoder", "ratio", lambda r: r["share_of_encoder"]),
        "speech_capacity_hours_per_min": Figure(audio_min / speech_s, "h/min"),
    }
    for name in rows[0]:
        if name.endswith("capacity_hours_per_min"):
            figures |= over(name, "h/min", lambda r, name=name: r[name])
        elif name == "device_busy_share" or name.startswith("agreement"):
            figures |= over(name, "share", lambda r, name=name: r[name])
        elif name == "peak_memory_gib":
            figures |= over(name, "GiB", lambda r: r["peak_memory_gib"])
    return figures


if __name__ == "__main__":
    main()
