"""Tokenization measured: a backfill through Dagster beside the bare encoder, in turn, in one run.

The backfill is the real one: Dagster's run, the work process' start, reading, encoding, checking,
storing. The bare encoder is the same encoder on the same clips, held in memory, after a warm-up,
with nothing else. Speech shards are made before and not timed; their capacity is measured and
stands beside.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from resources.store import Store
from server.codec import load_codec, use_exact_float32
from server.codec_encoder_shapes import read_shapes
from server.weights import CODEC_FILES, local_folder, parse_location
from speech_assets.cores import core_count
from speech_assets.corpus import repack, sources
from speech_assets.corpus.archive import archive_split
from speech_assets.corpus.benchmark_corpora import repeated_corpus
from speech_assets.corpus.shards import Shard
from speech_assets.errors import ConfigError, ShardError
from speech_assets.profiles import Profile, load_profile
from speech_assets.results.provenance import measurement_began
from speech_assets.results.result import Figure, Result
from speech_assets.work import ablation, tokenize_curve, worker
from speech_assets.work.ablation import Bench, Recorder, Reference, encode_s
from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions
from speech_assets.work.device import (
    candidates,
    device_row,
    hold_device,
    keep_compiled,
    keep_freed_memory,
    take_turns_often,
)
from speech_assets.work.speech_shards import make_shard, make_shards
from speech_assets.work.token_shards import read_speech
from speech_assets.work.tokenize_curve import Curve
from speech_assets.work.tokenize_ways import parse_ways, ways_for
from speech_assets.work.tokenizer import (
    EncodeOptions,
    Tokenizer,
    default_batch_samples,
    encoder_threads,
)
from speech_assets.work.tokens import tokenize_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from server.codec import Codec
    from server.codec_encoder_shapes import Shape
    from speech_assets.work.device import HeldDevice
    from speech_assets.work.token_shards import SpeechShard

    Backfill = Callable[[list[Shard]], dict[str, float]]

MIN_SHARDS = 8
FULL_ROUNDS = 3
REFERENCE_CLIPS = 24  # Of a shard, encoded alone for comparison: a share of 0.1 % is seen.


def main() -> None:
    """Entry point of `python -m speech_assets.work.bench_tokenize`."""
    parser = worker.argument_parser("bench_tokenize", __doc__ or "")
    parser.add_argument(
        "--out", type=Path, default=Path(".store"), help="store that gets the result"
    )
    parser.add_argument(
        "--rounds",
        type=worker.at_least(1),
        default=FULL_ROUNDS,
        help="backfill and bare encoder, in turn",
    )
    parser.add_argument(
        "--shards",
        type=worker.at_least(0),
        default=0,
        help=f"shards of it; 0 is all, at least {MIN_SHARDS}",
    )
    parser.add_argument(
        "--without-dagster",
        action="store_true",
        help=(
            "time the work process' own loop instead of a Dagster run: for machines without Dagster"
        ),
    )
    parser.add_argument(
        "--ablate",
        action="store_true",
        help="measure every way of encoding beside each other instead: no Dagster, one row a way",
    )
    parser.add_argument(
        "--profile", action="store_true", help="with --ablate: what each way's time goes to"
    )
    parser.add_argument(
        "--curve",
        action="store_true",
        help="measure clips' lengths, batches' budgets and numbers of cores instead, a row each",
    )
    parser.add_argument(
        "--repeat",
        type=worker.at_least(0),
        default=0,
        help="on the clips that ship, so many times over as LibriTTS-R has them; 0: on the "
        "profile's corpus",
    )
    parser.add_argument("--ways", default="", help="with --ablate: names of ways, by semicolons")
    parser.add_argument("--shapes", type=Path, help="tuned shapes of the fused kernels")
    worker.run(_work, parser)


@dataclass(frozen=True, slots=True)
class _Bench:
    """What every mode is measured on."""

    arguments: argparse.Namespace
    started_at: str
    device: HeldDevice
    profile: Profile
    store: Store
    shards: list[Shard]
    codec: Codec
    speech_hours_per_min: float
    shapes: Mapping[str, Shape] | None

    @property
    def is_reduced(self) -> bool:
        """Whether it is less than what a whole run measures."""
        return self.arguments.rounds < FULL_ROUNDS or bool(self.arguments.shards)

    def speech(self) -> list[SpeechShard]:
        """The shards in memory."""
        return [read_speech(self.store, shard) for shard in self.shards]


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = measurement_began()
    environment = dict(os.environ)
    profile = load_profile(environment)
    with tempfile.TemporaryDirectory(prefix="speech-bench-") as folder:
        if arguments.repeat:
            made = repeated_corpus(Path(folder, "made"), arguments.repeat, profile, MIN_SHARDS)
            environment |= {"SPEECH_PROFILES": str(made), "SPEECH_PROFILE": "repeated"}
            profile = load_profile(environment)
        store = Store(folder)
        shards, hours_per_min = _prepare(store, profile, arguments, reporter)
        torch.set_num_threads(1)
        keep_freed_memory()
        take_turns_often()
        keep_compiled()
        use_exact_float32()
        shapes = None if arguments.shapes is None else read_shapes(arguments.shapes)
        with _device(arguments, profile, reporter) as device:
            codec = load_codec(
                local_folder(parse_location(profile.codec.location), CODEC_FILES),
                device.torch_name,
                allow_untrained=profile.codec.allow_untrained,
            )
            bench = _Bench(
                arguments, started_at, device, profile, store, shards, codec, hours_per_min, shapes
            )
            if arguments.ablate:
                result = _ablation(bench)
            elif arguments.curve:
                result = _curve(bench, reporter)
            else:
                result = _tokenization(bench, folder, environment, reporter)
        Store(str(arguments.out)).write_json(result.key, result.as_json())
        reporter.log(f"result: {arguments.out / result.key}")


def _device(
    arguments: argparse.Namespace, profile: Profile, reporter: worker.Reporter
) -> contextlib.AbstractContextManager[HeldDevice]:
    """The device, held; through Dagster it is the worker's to hold."""
    alone = arguments.ablate or arguments.curve or arguments.without_dagster
    if alone:
        return hold_device(profile.device, reporter.notice)
    return contextlib.nullcontext(candidates(profile.device)[0])


def _ablation(bench: _Bench) -> Result:
    """Every way of encoding."""
    arguments, codec, speech = bench.arguments, bench.codec, bench.speech()
    ablated = Bench(
        bench.store,
        bench.shards,
        speech,
        codec,
        Reference.of(codec, speech, REFERENCE_CLIPS),
        arguments.rounds,
        bench.shapes,
    )
    ways = parse_ways(arguments.ways, ways_for(codec.device.type, encoder_threads()))
    return ablation.result_of(
        ablated,
        ablation.measure(ablated, ways, profiled=arguments.profile),
        device=device_row(bench.device),
        started_at=bench.started_at,
        command=arguments.command,
        reduced=bench.is_reduced,
        corpus=bench.profile.corpus.name,
        speech_hours_per_min=bench.speech_hours_per_min,
    )


def _curve(bench: _Bench, reporter: worker.Reporter) -> Result:
    """Clips' lengths, batches' budgets and cores."""
    options = SpeechOptions(max_clip_s=bench.profile.max_clip_s)
    return tokenize_curve.measure(
        Curve(bench.store, bench.shards, bench.codec, options, bench.shapes),
        bench.arguments.rounds,
        reporter.log,
        device=device_row(bench.device),
        started_at=bench.started_at,
        command=bench.arguments.command,
        reduced=bench.is_reduced,
        corpus=bench.profile.corpus.name,
    )


def _tokenization(
    bench: _Bench, folder: str, environment: dict[str, str], reporter: worker.Reporter
) -> Result:
    """A backfill beside the bare encoder, in turn."""
    arguments, profile, codec = bench.arguments, bench.profile, bench.codec
    given = profile.batch_samples
    options = EncodeOptions(
        default_batch_samples(codec) if given is None else given,
        profile.compile and codec.device.type == "cuda",
        profile.precision,
        encoder_threads(),
        profile.kernels,
    )
    tokenizer = Tokenizer(codec, options, bench.shapes)
    speech = bench.speech()
    audio_min = sum(shard.audio_s for shard in speech) / 60
    reporter.log(f"{len(speech)} shards, {audio_min:.1f} minutes of speech, on {bench.device.chip}")
    backfill = (
        _own_loop(bench.store, tokenizer)
        if arguments.without_dagster
        else _dagster_run(folder, environment)
    )
    # Warm-up: kernels of every length, allocator, file cache, Dagster's imports.
    encode_s(tokenizer, speech if codec.device.type == "cuda" else speech[:1])
    backfill(bench.shards[:1])
    rows: list[dict[str, Any]] = []
    for number in range(arguments.rounds):
        encoder_s = encode_s(tokenizer, speech)
        _clear(bench.store, bench.shards)
        began_s = time.monotonic()
        figures = backfill(bench.shards)
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
    return Result(
        kind="tokenize",
        name=codec.identity.name,
        started_at=bench.started_at,
        device=device_row(bench.device),
        command=arguments.command,
        reduced=bench.is_reduced,
        config={
            "profile": profile.name,
            "corpus": profile.corpus.name,
            "codec": codec.identity.name,
            "trained": codec.identity.trained,
            "shards": len(bench.shards),
            "audio_minutes": audio_min,
            "batch_samples": options.batch_samples,
            "compile": options.compiled,
            "kernels": "torch" if tokenizer.encoder.fused is None else "triton",
            "shapes": {key: asdict(shape) for key, shape in (bench.shapes or {}).items()},
            "precision": options.precision,
            "threads": options.threads,
            "decoding_processes": core_count(),
            "through_dagster": not arguments.without_dagster,
            "rounds": arguments.rounds,
        },
        rows=rows,
        figures=_figures(rows, audio_min, bench.speech_hours_per_min),
    )


def _prepare(
    store: Store, profile: Profile, arguments: argparse.Namespace, reporter: worker.Reporter
) -> tuple[list[Shard], float]:
    """Archives and speech of the benchmark's shards, and the hours a minute that speech made."""
    corpus = profile.corpus
    shards: list[Shard] = []
    for split, files in sources.source_files(corpus).items():
        count = repack.shard_count(sources.row_count(corpus, split, files), corpus.shard_rows)
        archive_split(corpus, split, count, store, lambda _: None)
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
        kept_s = 0.0
        for _, found in make_shards(store, shards[1:], options, pool):
            if isinstance(found, ShardError):
                raise found
            kept_s += found.statistics["kept_s"]
        return shards, kept_s / 60 / (time.monotonic() - began_s)


def _dagster_run(folder: str, environment: dict[str, str]) -> Backfill:
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
        recorder = Recorder("tokens")
        tokenizer.device_busy_s = 0.0
        if failures := tokenize_shards(store, shards, tokenizer, recorder):
            raise ConfigError("; ".join(failures))
        return recorder.figures

    return backfill


def _clear(store: Store, shards: list[Shard]) -> None:
    for shard in shards:
        store.delete(shard.object_key("tokens"))


def _figures(
    rows: list[dict[str, Any]], audio_min: float, speech_hours_per_min: float
) -> dict[str, Figure]:
    def over(name: str, unit: str, value: Callable[[dict[str, Any]], float]) -> dict[str, Figure]:
        values = [value(row) for row in rows]
        return {
            name: Figure(statistics.median(values), unit, len(values), min(values), max(values))
        }

    figures = {
        **over("hours_per_min", "h/min", lambda r: audio_min / r["backfill_s"]),
        **over("encoder_hours_per_min", "h/min", lambda r: audio_min / r["encoder_s"]),
        **over("share_of_encoder", "ratio", lambda r: r["share_of_encoder"]),
        "speech_capacity_hours_per_min": Figure(speech_hours_per_min, "h/min"),
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
