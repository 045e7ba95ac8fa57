"""Speech shards to SNAC token shards: one process owns the device and encodes batches of like lengths.

Every shard is checked before it is stored: the codes of a sample of its clips against the reference (the clip
alone, eager, float32, TF32 off), and, with trained weights, the decoded sample against the original.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from resources.store import Store
from server import frames
from server.codec import Codec, load_codec, use_exact_float32
from server.codec_encoder import BatchEncoder, Precision, split_levels
from speech_assets.corpus.agreement import Agreement, Limits, limits_for
from speech_assets.corpus.audio import from_pcm16
from speech_assets.corpus.batches import padded_frames, plan_batches
from speech_assets.corpus.fidelity import Fidelity, compare
from speech_assets.corpus.shards import (
    SPEECH_SCHEMA,
    TOKEN_SCHEMA,
    Shard,
    check_token_table,
    fingerprint,
    iterate_rows,
    read_footer,
    token_row,
    with_metadata,
    write_rows,
)
from speech_assets.errors import AgreementError, ConfigError, ShardError
from speech_assets.work import worker
from speech_assets.work.device import hold_device, keep_freed_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

CODE_VERSION = "1"  # Bump when the same speech shard would give other bytes.
CHECKED_CLIPS = 8
CHECKED_SHARE = 0.01
# On the CPU larger batches are slower: activations at 24 kHz outgrow the caches (docs/decisions.md).
CPU_BATCH_SAMPLES = 0
CUDA_BATCH_SAMPLES = 4_000_000
CUDA_ROUND_FRAMES = 8  # A compiled encoder sees few lengths; masks make the padding harmless.


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How clips are encoded. Only `precision` may change codes, so only it is in the fingerprint."""

    batch_samples: int
    compiled: bool = False
    precision: Precision = "fp32"
    threads: int = 1


@dataclass(frozen=True, slots=True)
class SpeechShard:
    """Rows of a speech shard in memory, with their samples."""

    shard: Shard
    fingerprint: str
    rows: list[dict[str, Any]]
    clips: list[NDArray[np.float32]]

    @property
    def audio_s(self) -> float:
        """Seconds of audio in it."""
        return sum(map(len, self.clips)) / frames.SAMPLE_RATE_HZ


def main() -> None:
    """Entry point of `python -m speech_assets.work.tokens`."""
    parser = worker.argument_parser("tokens", __doc__ or "")
    parser.add_argument("--store", required=True, help="folder or fsspec URL of the store")
    parser.add_argument("--shards", nargs="+", required=True, help="shards, as train.000")
    parser.add_argument(
        "--codec", type=Path, required=True, help="folder with config.json, weights"
    )
    parser.add_argument("--allow-untrained", action="store_true", help="random weights, for speed")
    parser.add_argument("--weights-sha256", default="", help="hash that the weights must have")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--batch-samples",
        type=int,
        default=None,
        help="padded samples of one encoder call; 0 is one clip a call (default: 0 on the CPU, "
        "4,000,000 on CUDA)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=encoder_threads(),
        help="clips encoded side by side on the CPU; the other cores read, check and write",
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile the encoder (CUDA)")
    parser.add_argument(
        "--precision",
        choices=("fp32", "tf32", "bf16", "fp16"),
        default="fp32",
        help="anything but fp32 changes codes (CUDA)",
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    shards = [Shard.parse(key) for key in arguments.shards]
    if arguments.batch_samples is not None and arguments.batch_samples < 0:
        raise ConfigError(f"--batch-samples is {arguments.batch_samples}; it must be 0 or more")
    with hold_device(arguments.device, reporter.log) as device:
        torch.set_num_threads(1)
        keep_freed_memory()
        use_exact_float32()
        codec = load_codec(
            arguments.codec, device.torch_name, allow_untrained=arguments.allow_untrained
        )
        held_sha256 = codec.identity.weights_sha256
        if arguments.weights_sha256 not in ("", held_sha256):
            raise ConfigError(
                f"weights in {arguments.codec} have sha256 {held_sha256}, the profile pins "
                f"{arguments.weights_sha256}; fetch the codec again, or correct the profile"
            )
        options = EncodeOptions(
            batch_samples=default_batch_samples(codec)
            if arguments.batch_samples is None
            else arguments.batch_samples,
            compiled=arguments.compile and codec.device.type == "cuda",
            precision=arguments.precision,
            threads=arguments.threads,
        )
        tokenizer = Tokenizer(codec, options)
        failures = tokenize_shards(store, shards, tokenizer, reporter)
    if failures:
        raise ShardError(f"{len(failures)} of {len(shards)} shards failed: {'; '.join(failures)}")


def tokenize_shards(
    store: Store, shards: list[Shard], tokenizer: Tokenizer, reporter: worker.Reporter
) -> list[str]:
    """Make the token shards that are not there yet; returns one line for each that failed its checks.

    Reading the next shard and checking and writing the last go on beside the encoding.
    """
    todo: list[Shard] = []
    for shard in shards:
        if (held := held_figures(store, shard, tokenizer)) is not None:
            reporter.result("shard", shard=shard.key, made=False, seconds=0.0, **held)
        else:
            todo.append(shard)
    reporter.start(sum(_stored_audio_s(store, shard) for shard in todo) / 60, "min of audio")
    clock = StageClock()
    failures: list[str] = []
    started_s = time.monotonic()
    done_s = 0.0

    def fail(shard: Shard, error: Exception) -> None:
        failures.append(str(error))
        reporter.result("failed", shard=shard.key, message=str(error))

    def settle(pending: tuple[SpeechShard, Future[dict[str, Any]], float]) -> None:
        nonlocal done_s
        speech, future, encode_s = pending
        try:
            figures = future.result()
        except AgreementError as error:
            fail(speech.shard, error)
            return
        reporter.result("shard", shard=speech.shard.key, made=True, seconds=encode_s, **figures)
        done_s += speech.audio_s
        rate = done_s / 60 / max(1e-9, time.monotonic() - started_s)
        reporter.advance(speech.audio_s / 60, hours_per_min=f"{rate:.3g}")

    with ThreadPoolExecutor(1, "read") as reader, ThreadPoolExecutor(1, "finish") as finisher:
        ahead: deque[tuple[Shard, Future[SpeechShard]]] = deque()
        behind: deque[tuple[SpeechShard, Future[dict[str, Any]], float]] = deque()
        queue = deque(todo)
        while queue or ahead:
            while queue and len(ahead) < 2:
                shard = queue.popleft()
                ahead.append((shard, reader.submit(clock.timed, "read", read_speech, store, shard)))
            shard, reading = ahead.popleft()
            try:
                speech = reading.result()
            except ShardError as error:
                fail(shard, error)
                continue
            encode_started_s = time.monotonic()
            codes = tokenizer.encode(speech.clips)
            encode_s = time.monotonic() - encode_started_s
            clock.add("encode", encode_s)
            future = finisher.submit(
                clock.timed, "finish", finish_shard, store, speech, codes, tokenizer
            )
            behind.append((speech, future, encode_s))
            while len(behind) > 2 or (behind and behind[0][1].done()):
                settle(behind.popleft())
        while behind:
            settle(behind.popleft())
    wall_s = time.monotonic() - started_s
    if done_s:
        reporter.result("figures", **_run_figures(tokenizer, clock, done_s, wall_s))
    return failures


class Tokenizer:
    """The codec, its batch encoder, and what was measured while encoding."""

    def __init__(self, codec: Codec, options: EncodeOptions) -> None:
        self.codec = codec
        self.options = options
        self.encoder = BatchEncoder(
            codec,
            compiled=options.compiled,
            precision=options.precision,
        )
        self.device_busy_s = 0.0
        self._lock = threading.Lock()
        self._round_frames = 1 if codec.device.type == "cpu" else CUDA_ROUND_FRAMES

    def encode(self, clips: list[NDArray[np.float32]]) -> list[NDArray[np.uint16]]:
        """Codes (frames, 7) of each clip, in order."""
        counts = [frames.frame_count(len(clip)) for clip in clips]
        batches = plan_batches(
            counts, self.options.batch_samples, round_frames=self._round_frames
        )
        if self.codec.device.type == "cpu":
            done = self._encode_on_cpu(clips, batches)
        else:
            done = self._encode_on_device(clips, batches)
        codes: dict[int, NDArray[np.uint16]] = {}
        for batch, levels in zip(batches, done, strict=True):
            split = split_levels(levels, [counts[clip] for clip in batch])
            codes.update(zip(batch, split, strict=True))
        return [codes[clip] for clip in range(len(clips))]

    def _encode_on_cpu(
        self, clips: list[NDArray[np.float32]], batches: list[list[int]]
    ) -> Iterator[list[NDArray[np.int64]]]:
        """Batches side by side, each on one thread: the interpreter is free inside the kernels."""

        def encode(batch: list[int]) -> list[NDArray[np.int64]]:
            host, lengths = self._pad([clips[clip] for clip in batch], pin=False)
            started_s = time.monotonic()
            levels = self.encoder.launch(host, lengths)
            seconds = time.monotonic() - started_s
            with self._lock:
                self.device_busy_s += seconds / self.options.threads
            return [level.numpy() for level in levels]

        if self.options.threads == 1:
            yield from map(encode, batches)
            return
        with ThreadPoolExecutor(self.options.threads, "encode") as pool:
            yield from pool.map(encode, batches)

    def _encode_on_device(
        self, clips: list[NDArray[np.float32]], batches: list[list[int]]
    ) -> Iterator[list[NDArray[np.int64]]]:
        """One batch runs while the host prepares the next and unpacks the last."""
        in_flight: deque[_Launched] = deque()
        for batch in batches:
            in_flight.append(self._launch([clips[clip] for clip in batch]))
            if len(in_flight) > 1:
                yield self._collect(in_flight.popleft())
        while in_flight:
            yield self._collect(in_flight.popleft())

    def _launch(self, clips: list[NDArray[np.float32]]) -> _Launched:
        host, lengths = self._pad(clips, pin=True)
        device = self.codec.device
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        levels = self.encoder.launch(
            host.to(device, non_blocking=True),
            None if lengths is None else lengths.to(device, non_blocking=True),
        )
        end.record()
        return _Launched(levels, begin, end)

    def _collect(self, launched: _Launched) -> list[NDArray[np.int64]]:
        levels = [level.cpu().numpy() for level in launched.levels]
        self.device_busy_s += launched.begin.elapsed_time(launched.end) / 1000
        return levels

    def _pad(
        self, clips: list[NDArray[np.float32]], *, pin: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The batch, zero-padded, and its frame counts; None when every clip fills it."""
        counts = [frames.frame_count(len(clip)) for clip in clips]
        width = padded_frames(max(counts), self._round_frames)
        host = torch.zeros(len(clips), width * frames.SAMPLES_PER_FRAME, pin_memory=pin)
        for row, clip in zip(host, clips, strict=True):
            row[: len(clip)] = torch.from_numpy(clip)
        return host, None if min(counts) == width else torch.tensor(counts)


@dataclass(frozen=True, slots=True)
class _Launched:
    levels: list[torch.Tensor]
    begin: torch.cuda.Event
    end: torch.cuda.Event


class StageClock:
    """Seconds that each stage worked, added up over threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        """Add `seconds` of work to `stage`."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def timed(self, stage: str, function: Any, *arguments: Any) -> Any:
        """Call `function` and add the time it took to `stage`."""
        started_s = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self.add(stage, time.monotonic() - started_s)


def read_speech(store: Store, shard: Shard) -> SpeechShard:
    """The speech shard, samples as float32.

    Raises:
        ShardError: it is missing or damaged.
    """
    key = shard.object_key("speech")
    rows: list[dict[str, Any]] = []
    clips: list[NDArray[np.float32]] = []
    try:
        with store.open(key) as file:
            metadata, _ = read_footer(file, SPEECH_SCHEMA, store.path(key))
            for row in iterate_rows(file, SPEECH_SCHEMA.names):
                pcm = np.frombuffer(row.pop("pcm"), "<i2")
                if len(pcm) != row["sample_count"]:
                    raise ShardError(
                        f"{store.path(key)} row {row['id']!r} holds {len(pcm)} samples and says "
                        f"{row['sample_count']}; delete the shard and make it again"
                    )
                rows.append(row)
                clips.append(from_pcm16(pcm))
    except FileNotFoundError as error:
        raise ShardError(
            f"{store.path(key)} is not there; materialize speech {shard.key} first"
        ) from error
    except pa.ArrowException as error:
        raise ShardError(
            f"{store.path(key)} is damaged: {error}; delete it and materialize speech {shard.key}"
        ) from error
    return SpeechShard(shard, metadata["fingerprint"], rows, clips)


def finish_shard(
    store: Store, speech: SpeechShard, codes: list[NDArray[np.uint16]], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Check the codes of a shard and store it; its figures.

    Raises:
        AgreementError: the codes are not those of the reference; nothing was stored.
    """
    codec, options = tokenizer.codec, tokenizer.options
    sample = checked_clips(speech.shard, len(codes))
    agreement = Agreement.empty()
    fidelities: list[Fidelity] = []
    for clip in sample:
        agreement = agreement.add(codec.encode(speech.clips[clip]), codes[clip])
        decoded = codec.decode(codes[clip])[: len(speech.clips[clip])]
        fidelities.append(compare(speech.clips[clip], decoded))
    limits = limits_for(codec.device.type, options.precision)
    if faults := agreement.faults(limits):
        raise AgreementError(
            f"shard {speech.shard.key}: codes differ from the reference: {', '.join(faults)}; it was "
            "not stored. Lower batch_samples, switch compile off, or report this with the device's name"
        )
    figures = shard_figures(speech, codes, agreement, fidelities, limits)
    rows = [token_row(row, clip) for row, clip in zip(speech.rows, codes, strict=True)]
    schema = with_metadata(
        TOKEN_SCHEMA,
        {
            "fingerprint": _fingerprint(speech.fingerprint, codec, options),
            "code_version": CODE_VERSION,
            "layout_version": str(frames.LAYOUT_VERSION),
            "codec": codec.identity.name,
            "codec_weights_sha256": codec.identity.weights_sha256,
            "codec_trained": "true" if codec.identity.trained else "untrained",
            "precision": options.precision,
            "figures": json.dumps(figures, sort_keys=True),
        },
    )
    columns = {name: [row[name] for row in rows] for name in TOKEN_SCHEMA.names}
    if faults := check_token_table(pa.table(columns, schema=TOKEN_SCHEMA)):
        raise AgreementError(f"shard {speech.shard.key} is malformed: {'; '.join(faults)}")
    store.write(
        speech.shard.object_key("tokens"),
        lambda file: write_rows(file, schema, rows, row_group_rows=len(rows) or 1),
    )
    return figures


def shard_figures(
    speech: SpeechShard,
    codes: list[NDArray[np.uint16]],
    agreement: Agreement,
    fidelities: list[Fidelity],
    limits: Limits,
) -> dict[str, Any]:
    """What is recorded of a shard: the same on every run, so without times."""
    silent = sum(float(np.abs(clip).max(initial=0.0)) < 10 ** (-60 / 20) for clip in speech.clips)
    return {
        "rows": len(codes),
        "audio_hours": speech.audio_s / 3600,
        "frames": sum(map(len, codes)),
        "silent_clips": silent,
        "checked_clips": len(fidelities),
        "agreement": agreement.overall,
        **{f"agreement_level_{i}": value for i, value in enumerate(agreement.levels)},
        "agreement_limits": asdict(limits),
        "log_mel_distance_db": _mean([f.log_mel_distance_db for f in fidelities]),
        "envelope_correlation": _mean([f.envelope_correlation for f in fidelities]),
    }


def checked_clips(shard: Shard, count: int) -> list[int]:
    """Clips of a shard that are checked against the reference: max(8, 1 %), the same at every run."""
    wanted = max(CHECKED_CLIPS, round(CHECKED_SHARE * count))
    return sorted(random.Random(shard.key).sample(range(count), min(wanted, count)))


def held_figures(store: Store, shard: Shard, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Figures of the stored token shard when it is valid for this speech shard, codec and code."""
    speech_key, key = shard.object_key("speech"), shard.object_key("tokens")
    try:
        with store.open(speech_key) as file:
            speech, _ = read_footer(file, SPEECH_SCHEMA, store.path(speech_key))
        with store.open(key) as file:
            metadata, rows = read_footer(file, TOKEN_SCHEMA, store.path(key))
    except (FileNotFoundError, ShardError):
        return None
    wanted = _fingerprint(speech["fingerprint"], tokenizer.codec, tokenizer.options)
    if metadata.get("fingerprint") != wanted:
        return None
    figures: dict[str, Any] = json.loads(metadata["figures"])
    return figures if figures["rows"] == rows else None


def _fingerprint(speech: str, codec: Codec, options: EncodeOptions) -> str:
    identity = codec.identity
    return fingerprint(
        CODE_VERSION,
        speech,
        identity.weights_sha256,
        identity.config_sha256,
        frames.LAYOUT_VERSION,
        options.precision,
    )


def encoder_threads() -> int:
    """Half of the cores (of `SPEECH_THREADS`): checking a shard takes as long as encoding half of it."""
    return max(1, int(os.environ.get("SPEECH_THREADS") or os.cpu_count() or 1) // 2)


def default_batch_samples(codec: Codec) -> int:
    """Padded samples of one encoder call that suit the codec's device."""
    return CPU_BATCH_SAMPLES if codec.device.type == "cpu" else CUDA_BATCH_SAMPLES


def _stored_audio_s(store: Store, shard: Shard) -> float:
    key = shard.object_key("speech")
    try:
        with store.open(key) as file:
            metadata, _ = read_footer(file, SPEECH_SCHEMA, store.path(key))
    except (FileNotFoundError, ShardError):
        return 0.0  # Reading it will say what is wrong.
    return float(json.loads(metadata["statistics"])["kept_s"])


def _run_figures(
    tokenizer: Tokenizer, clock: StageClock, audio_s: float, wall_s: float
) -> dict[str, Any]:
    """Throughput of one run: audio hours per minute of wall clock, and of each stage's own time."""
    cuda = tokenizer.codec.device.type == "cuda"
    peak_bytes = (
        torch.cuda.max_memory_allocated()
        if cuda
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    audio_min = audio_s / 60
    return {
        "audio_hours": audio_s / 3600,
        "hours_per_min": audio_min / wall_s,
        **{
            f"{stage}_capacity_hours_per_min": audio_min / max(seconds, 1e-9)
            for stage, seconds in sorted(clock.seconds.items())
        },
        "device_busy_share": tokenizer.device_busy_s / wall_s,
        "peak_memory_gib": peak_bytes / 2**30,
    }


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


if __name__ == "__main__":
    main()
