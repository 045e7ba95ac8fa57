"""Speech shards to SNAC token shards: one process owns the device and encodes shard after shard.

Reading, encoding, and checking and storing go on side by side. What becomes of one shard is told in
`token_shards`, how clips are batched in `tokenizer`.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from resources.store import Store
from server.codec import load_codec, use_exact_float32
from speech_assets.corpus.shards import Shard
from speech_assets.errors import AgreementError, ConfigError, ShardError
from speech_assets.work import worker
from speech_assets.work.device import (
    hold_device,
    keep_compiled,
    keep_freed_memory,
    take_turns_often,
)
from speech_assets.work.token_shards import (
    SpeechShard,
    finish_shard,
    held_figures,
    read_speech,
    stored_audio_s,
)
from speech_assets.work.tokenizer import (
    EncodeOptions,
    Tokenizer,
    default_batch_samples,
    encoder_threads,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        help=(
            "padded samples of one encoder call; 0 is one clip a call (default: 0 on the CPU, "
            "4,000,000 on CUDA)"
        ),
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=None,
        help="clips encoded side by side on the CPU (default: half of the cores; the others read, "
        "check and write)",
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile the encoder (CUDA)")
    parser.add_argument(
        "--precision",
        choices=("fp32", "tf32", "bf16", "fp16"),
        default="fp32",
        help="anything but fp32 changes codes (CUDA)",
    )
    parser.add_argument(
        "--kernels",
        choices=("auto", "torch", "triton"),
        default="auto",
        help="fused kernels where they were measured (auto), never or always (CUDA)",
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    shards = [Shard.parse(key) for key in arguments.shards]
    if arguments.batch_samples is not None and arguments.batch_samples < 0:
        raise ConfigError(f"--batch-samples is {arguments.batch_samples}; it must be 0 or more")
    with hold_device(arguments.device, reporter.notice) as device:
        torch.set_num_threads(1)
        keep_freed_memory()
        take_turns_often()
        keep_compiled()
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
            batch_samples=(
                default_batch_samples(codec)
                if arguments.batch_samples is None
                else arguments.batch_samples
            ),
            compiled=arguments.compile and codec.device.type == "cuda",
            precision=arguments.precision,
            threads=encoder_threads() if arguments.threads is None else arguments.threads,
            kernels=arguments.kernels,
        )
        tokenizer = Tokenizer(codec, options)
        failures = tokenize_shards(store, shards, tokenizer, reporter)
    if failures:
        raise ShardError(f"{len(failures)} of {len(shards)} shards failed: {'; '.join(failures)}")


def tokenize_shards(
    store: Store,
    shards: list[Shard],
    tokenizer: Tokenizer,
    reporter: worker.Reporter,
    *,
    read_ahead: int = 3,
    arriving: Source | None = None,
) -> list[str]:
    """Make the token shards that are not valid yet; returns one line for each that failed.

    Reading the next shards, up to `read_ahead` of them, and checking and writing the last go on
    beside the encoding. Where their speech is being made meanwhile, `arriving` gives the shards,
    each once, in whatever order they become whole; all of them are made.

    Raises:
        SpeechAssetsError, ResourceError: `arriving` says that no more will come.
    """
    todo: list[Shard] = []
    for shard in shards:
        if arriving is None and (held := held_figures(store, shard, tokenizer)) is not None:
            reporter.result("shard", shard=shard.key, made=False, seconds=0.0, **held)
        else:
            todo.append(shard)
    if arriving is None:
        reporter.start(sum(stored_audio_s(store, shard) for shard in todo) / 60, "min of audio")
    else:
        reporter.start(len(todo), "shards")
    clock = StageClock()
    failures: list[str] = []
    started_s = time.monotonic()
    done_s = 0.0

    def fail(shard: Shard, error: Exception) -> None:
        failures.append(str(error))
        reporter.result("failed", shard=shard.key, message=str(error))

    def settle(pending: tuple[SpeechShard, Future[tuple[dict[str, Any], float]], float]) -> None:
        nonlocal done_s
        speech, future, seconds = pending
        try:
            figures, finish_s = future.result()
        except AgreementError as error:
            fail(speech.shard, error)
            return
        seconds += finish_s  # Of its own stages: what it waited for other shards is not its work.
        reporter.result("shard", shard=speech.shard.key, made=True, seconds=seconds, **figures)
        done_s += speech.audio_s
        rate = done_s / 60 / max(1e-9, time.monotonic() - started_s)
        done = speech.audio_s / 60 if arriving is None else 1
        reporter.advance(done, hours_per_min=f"{rate:.3g}")

    def read() -> tuple[Shard, SpeechShard | ShardError, float]:
        shard = source.take()
        try:
            speech, read_s = clock.timed("read", read_speech, store, shard)
        except ShardError as error:
            return shard, error, 0.0
        return shard, speech, read_s

    finishers = _finishers(tokenizer)
    with (
        ThreadPoolExecutor(_readers(tokenizer), "read") as reader,
        ThreadPoolExecutor(finishers, "finish") as finisher,
        # Closed first, whatever ends this: a reader may be waiting in it.
        contextlib.closing(_InOrder(todo) if arriving is None else arriving) as source,
    ):
        ahead: deque[Future[tuple[Shard, SpeechShard | ShardError, float]]] = deque()
        behind: deque[tuple[SpeechShard, Future[tuple[dict[str, Any], float]], float]] = deque()
        left = len(todo)
        while left or ahead:
            while left and len(ahead) < max(1, read_ahead):
                ahead.append(reader.submit(read))
                left -= 1
            shard, speech, read_s = ahead.popleft().result()
            if isinstance(speech, ShardError):
                fail(shard, speech)
                continue
            encode_started_s = time.monotonic()
            codes = tokenizer.encode(speech.clips)
            encode_s = time.monotonic() - encode_started_s
            clock.add("encode", encode_s)
            future = finisher.submit(
                clock.timed, "finish", finish_shard, store, speech, codes, tokenizer
            )
            behind.append((speech, future, read_s + encode_s))
            while len(behind) > 1 + finishers or (behind and behind[0][1].done()):
                settle(behind.popleft())
        while behind:
            settle(behind.popleft())
    wall_s = time.monotonic() - started_s
    if done_s:
        reporter.result("figures", **_run_figures(tokenizer, clock, done_s, wall_s))
    return failures


class Source(Protocol):
    """Where readers, each on a thread of its own, get the shards to read from."""

    def take(self) -> Shard:
        """The next shard, each once; waits until its speech is there."""
        ...

    def close(self) -> None:
        """No shard is wanted any more: whoever waits in `take`, and asks again, gets an error."""


class _InOrder:
    """Shards whose speech is there already."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self._shards = deque(shards)

    def take(self) -> Shard:
        return self._shards.popleft()

    def close(self) -> None:
        self._shards.clear()


class StageClock:
    """Seconds that each stage worked, added up over threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        """Add `seconds` of work to `stage`."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def timed(self, stage: str, function: Any, *arguments: Any) -> tuple[Any, float]:
        """What `function` gives, and the seconds it took; they are added to `stage`."""
        started_s = time.monotonic()
        seconds = 0.0
        try:
            value = function(*arguments)
        finally:
            seconds = time.monotonic() - started_s
            self.add(stage, seconds)
        return value, seconds


def _readers(tokenizer: Tokenizer) -> int:
    """Threads that read. One fills a CPU's encoder; a GPU's takes more than one decompresses."""
    return 1 if tokenizer.codec.device.type == "cpu" else 2


def _finishers(tokenizer: Tokenizer) -> int:
    """Threads that check and store. Beside a GPU two: one waits for the device while one writes."""
    return 1 if tokenizer.codec.device.type == "cpu" else 2


def _run_figures(
    tokenizer: Tokenizer, clock: StageClock, audio_s: float, wall_s: float
) -> dict[str, Any]:
    """Throughput of one run: audio hours per minute of wall clock, and of each stage's own time.

    A stage's capacity is that of all its threads, each as fast as it was beside the others.
    """
    cuda = tokenizer.codec.device.type == "cuda"
    peak_bytes = (
        torch.cuda.max_memory_allocated(tokenizer.codec.device)
        if cuda
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    audio_min = audio_s / 60
    threads = {"read": _readers(tokenizer), "finish": _finishers(tokenizer)}
    return {
        "audio_hours": audio_s / 3600,
        "hours_per_min": audio_min / wall_s,
        **{
            f"{stage}_capacity_hours_per_min": audio_min
            * threads.get(stage, 1)
            / max(seconds, 1e-9)
            for stage, seconds in sorted(clock.seconds.items())
        },
        "device_busy_share": tokenizer.device_busy_s / wall_s,
        "peak_memory_gib": peak_bytes / 2**30,
    }


if __name__ == "__main__":
    main()
