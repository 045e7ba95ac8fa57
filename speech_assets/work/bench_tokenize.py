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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from resources.scratch import scratch_folder
from resources.store import Store
from server.codec import load_codec, use_exact_float32
from server.weights import CODEC_FILES, local_folder, parse_location
from speech_assets.cores import core_count
from speech_assets.corpus.benchmark_corpora import RepeatedCorpus, archived
from speech_assets.corpus.room import check_room
from speech_assets.profiles import Profile, load_profile
from speech_assets.results.provenance import measurement_began
from speech_assets.results.result import Result
from speech_assets.work import ablation, tokenize_backfill, tokenize_curve, whole_pipeline, worker
from speech_assets.work.ablation import Bench, Reference
from speech_assets.work.bench_tokenize_asked import MIN_SHARDS, check_shards, checked_shapes
from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions
from speech_assets.work.device import (
    candidates,
    device_row,
    hold_device,
    keep_compiled,
    keep_freed_memory,
    take_turns_often,
)
from speech_assets.work.speech_rate import steadily_made
from speech_assets.work.speech_shards import make_shard, stored_speech
from speech_assets.work.token_shards import read_speech
from speech_assets.work.tokenize_curve import Curve
from speech_assets.work.tokenize_ways import parse_ways, ways_for
from speech_assets.work.tokenizer import (
    EncodeOptions,
    Tokenizer,
    default_batch_samples,
    encoder_threads,
)
from speech_assets.work.whole_pipeline import Pipeline, one_clip_each, speech_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from server.codec import Codec
    from server.codec_encoder_shapes import Shape
    from speech_assets.corpus.shards import Shard
    from speech_assets.work.device import HeldDevice
    from speech_assets.work.token_shards import SpeechShard

FULL_ROUNDS = 3
LEAST_RUN_S = 10.0  # Of a timed run: the first read and the last write are a second of any.
_DISK_FOLD = 3  # Corpus, archives and speech lie there at once: 2.74 times the PCM (measured).
REFERENCE_CLIPS = 24  # Of a shard, encoded alone for comparison: a share of 0.1 % is seen.


def main() -> None:
    """Entry point of `python -m speech_assets.work.bench_tokenize`."""
    parser = worker.argument_parser("bench_tokenize", __doc__ or "")
    worker.add_result_store(parser)
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
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--without-dagster",
        action="store_true",
        help=(
            "time the work process' own loop instead of a Dagster run: for machines without Dagster"
        ),
    )
    modes.add_argument(
        "--ablate",
        action="store_true",
        help="measure every way of encoding beside each other instead: no Dagster, one row a way",
    )
    parser.add_argument(
        "--profile", action="store_true", help="with --ablate: what each way's time goes to"
    )
    modes.add_argument(
        "--curve",
        action="store_true",
        help="measure clips' lengths, batches' budgets and numbers of cores instead, a row each",
    )
    modes.add_argument(
        "--whole",
        action="store_true",
        help="measure the whole pipeline instead, from archives to token shards: no Dagster",
    )
    parser.add_argument(
        "--speech-processes",
        type=worker.at_least(0),
        default=0,
        help="with --whole: processes that make speech side by side and share the cores; 0: as "
        f"many as suit them, 2 from {whole_pipeline.TWO_FROM_CORES} cores on, else 1",
    )
    parser.add_argument(
        "--repeat",
        type=worker.at_least(0),
        default=0,
        help="on the clips that ship, so many times over as LibriTTS-R has them; 0: on the "
        "profile's corpus; what it takes in the folder of temporary files is asked for first",
    )
    parser.add_argument("--ways", default="", help="with --ablate: names of ways, by semicolons")
    parser.add_argument(
        "--shapes", type=Path, help="tuned shapes of the fused kernels, by encoder_tuning"
    )
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
    def is_cut(self) -> bool:
        """Whether less is measured than what a whole run measures."""
        return self.arguments.rounds < FULL_ROUNDS or bool(self.arguments.shards)

    def is_reduced(self, seconds: Iterable[float]) -> bool:
        """Whether less is measured, or in too short a time; `seconds` are of each timed run."""
        return self.is_cut or min(seconds, default=0.0) < LEAST_RUN_S

    def speech(self) -> list[SpeechShard]:
        """The shards in memory."""
        return [read_speech(self.store, shard) for shard in self.shards]


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = measurement_began()
    environment = dict(os.environ)
    profile = load_profile(environment)
    kind = torch.device(candidates(profile.device)[0].torch_name).type
    shapes = checked_shapes(arguments, kind)
    codec_folder = local_folder(parse_location(profile.codec.location), CODEC_FILES)
    with scratch_folder("bench-tokenize") as folder:
        if arguments.repeat:
            made = _repeated(folder, profile, arguments.repeat, reporter)
            environment |= {"SPEECH_PROFILES": str(made), "SPEECH_PROFILE": "repeated"}
            profile = load_profile(environment)
        store = Store(str(folder))
        shards, hours_per_min = _prepare(store, profile, arguments, reporter)
        torch.set_num_threads(1)
        keep_freed_memory()
        take_turns_often()
        keep_compiled()
        use_exact_float32()
        with _device(arguments, profile, reporter) as device:
            codec = load_codec(
                codec_folder, device.torch_name, allow_untrained=profile.codec.allow_untrained
            )
            bench = _Bench(
                arguments, started_at, device, profile, store, shards, codec, hours_per_min, shapes
            )
            if arguments.ablate:
                result = _ablation(bench, reporter)
            elif arguments.curve:
                result = _curve(bench, reporter)
            elif arguments.whole:
                result = _whole(bench, folder, reporter)
            else:
                result = _tokenization(bench, str(folder), environment, reporter)
        out = Store(arguments.out)
        out.write_json(result.key, result.as_json())
        reporter.log(f"result: {out.path(result.key)}")


def _repeated(folder: Path, profile: Profile, times: int, reporter: worker.Reporter) -> Path:
    """A file of profiles of the clips that ship, repeated, which it writes if there is room.

    Raises:
        DownloadError: there is none.
    """
    corpus = RepeatedCorpus.of_shipped(times)
    size_bytes = _DISK_FOLD * corpus.size_bytes
    reporter.notice(
        f"--repeat {times} takes up to {size_bytes / 1e9:.1f} GB in {folder} until the end"
    )
    check_room(
        {folder: size_bytes},
        f"--repeat {times}",
        remedy="repeat less, or set TMPDIR to a folder on a larger disk",
    )
    reporter.start(times, "copies")
    return corpus.write(folder / "made", profile, MIN_SHARDS, reporter.advance)


def _device(
    arguments: argparse.Namespace, profile: Profile, reporter: worker.Reporter
) -> contextlib.AbstractContextManager[HeldDevice]:
    """The device, held; through Dagster it is the worker's to hold."""
    alone = arguments.ablate or arguments.curve or arguments.whole or arguments.without_dagster
    if alone:
        return hold_device(profile.device, reporter.notice)
    return contextlib.nullcontext(candidates(profile.device)[0])


def _ablation(bench: _Bench, reporter: worker.Reporter) -> Result:
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
    rows = ablation.measure(ablated, ways, reporter.log, profiled=arguments.profile)
    return ablation.result_of(
        ablated,
        rows,
        device=device_row(bench.device),
        started_at=bench.started_at,
        command=arguments.command,
        reduced=bench.is_reduced(
            seconds for row in rows if "error" not in row for seconds in row.get("loop_s", ())
        ),
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
        reduced=bench.is_cut,  # Its rounds go on until they are long enough.
        corpus=bench.profile.corpus.name,
    )


def _tokenization(
    bench: _Bench, folder: str, environment: dict[str, str], reporter: worker.Reporter
) -> Result:
    """A backfill beside the bare encoder, in turn."""
    arguments, codec = bench.arguments, bench.codec
    tokenizer = _tokenizer(bench)
    speech = bench.speech()
    reporter.log(_measured_on(bench, speech))
    rows = tokenize_backfill.measure(
        bench.store,
        tokenizer,
        speech,
        tokenize_backfill.own_loop(bench.store, tokenizer)
        if arguments.without_dagster
        else tokenize_backfill.dagster_run(folder, environment),
        arguments.rounds,
        reporter.log,
    )
    audio_min = _audio_min(speech)
    return Result(
        kind=tokenize_backfill.KIND,
        name=codec.identity.name,
        started_at=bench.started_at,
        device=device_row(bench.device),
        command=arguments.command,
        reduced=bench.is_reduced(row["backfill_s"] for row in rows),
        config={
            **_config(bench, tokenizer, audio_min),
            "decoding_processes": core_count(),
            "through_dagster": not arguments.without_dagster,
        },
        rows=rows,
        figures=tokenize_backfill.figures_of(rows, audio_min, bench.speech_hours_per_min),
    )


def _whole(bench: _Bench, folder: Path, reporter: worker.Reporter) -> Result:
    """The whole pipeline beside the bare encoder and its stages, in turn."""
    arguments, codec = bench.arguments, bench.codec
    processes = arguments.speech_processes or speech_processes()
    tokenizer = _tokenizer(bench)
    speech = bench.speech()
    reporter.log(f"{_measured_on(bench, speech)}; {processes} processes make speech")
    pipeline = Pipeline(
        bench.store,
        tokenizer,
        speech,
        bench.profile.max_clip_s,
        processes,
        one_clip_each(folder / "start", processes),
    )
    rows = whole_pipeline.measure(pipeline, arguments.rounds, reporter.log)
    return Result(
        kind=whole_pipeline.KIND,
        name=codec.identity.name,
        started_at=bench.started_at,
        device=device_row(bench.device),
        command=arguments.command,
        reduced=bench.is_reduced(row["pipeline_s"] for row in rows),
        config={
            **_config(bench, tokenizer, pipeline.audio_min),
            "cores": core_count(),
            "speech_processes": processes,
            "decoding_processes": pipeline.decoders * processes,
        },
        rows=rows,
        figures=whole_pipeline.figures_of(rows, pipeline.audio_min, bench.speech_hours_per_min),
    )


def _tokenizer(bench: _Bench) -> Tokenizer:
    """The tokenizer as the profile has it."""
    profile, codec = bench.profile, bench.codec
    given = profile.batch_samples
    options = EncodeOptions(
        default_batch_samples(codec) if given is None else given,
        profile.compile and codec.device.type == "cuda",
        profile.precision,
        encoder_threads(),
        profile.kernels,
    )
    return Tokenizer(codec, options, bench.shapes)


def _config(bench: _Bench, tokenizer: Tokenizer, audio_min: float) -> dict[str, Any]:
    """What results say of the corpus and the tokenizer."""
    profile, identity, options = bench.profile, bench.codec.identity, tokenizer.options
    return {
        "profile": profile.name,
        "corpus": profile.corpus.name,
        "codec": identity.name,
        "trained": identity.trained,
        "shards": len(bench.shards),
        "audio_minutes": audio_min,
        "batch_samples": options.batch_samples,
        "compile": options.compiled,
        "kernels": "torch" if tokenizer.encoder.fused is None else "triton",
        "shapes": {key: asdict(shape) for key, shape in (bench.shapes or {}).items()},
        "precision": options.precision,
        "threads": options.threads,
        "rounds": bench.arguments.rounds,
    }


def _measured_on(bench: _Bench, speech: list[SpeechShard]) -> str:
    return (
        f"{len(speech)} shards, {_audio_min(speech):.1f} minutes of speech, on {bench.device.chip}"
    )


def _audio_min(speech: list[SpeechShard]) -> float:
    return sum(shard.audio_s for shard in speech) / 60


def _prepare(
    store: Store, profile: Profile, arguments: argparse.Namespace, reporter: worker.Reporter
) -> tuple[list[Shard], float]:
    """Archives and speech of the benchmark's shards, and the hours a minute that speech made: as
    `Pipeline.speech_alone` has it of several processes."""
    shards = archived(store, profile.corpus, reporter.log)[: arguments.shards or None]
    check_shards(len(shards), arguments)
    reporter.log(f"making speech of {len(shards)} shards (not timed as part of the backfill)")
    reporter.start(len(shards), "shards")
    options = SpeechOptions(max_clip_s=profile.max_clip_s)
    with DecodingPool(core_count(), options) as pool:
        make_shard(store, shards[0], options, pool)  # Warm-up: the pool's start.
        reporter.advance(1)
        stored = stored_speech(store, shards[1:], options, pool, lambda: reporter.advance(1))
        reporter.close()
        return shards, steadily_made([stored]).hours_per_min


if __name__ == "__main__":
    main()
