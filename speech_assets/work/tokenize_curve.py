"""What the speed of tokenization depends on: clips' length, a batch's budget, the host's cores.

Each is varied alone, the others at their defaults. The bare encoder takes real speech, cut to clips
of one length; speech shards are made on so many cores of this machine and no other.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from server.frames import SAMPLE_RATE_HZ
from speech_assets.errors import ShardError
from speech_assets.results.result import Figure, Result
from speech_assets.work.decoding_pool import DecodingPool
from speech_assets.work.speech_shards import make_shards
from speech_assets.work.token_shards import read_speech
from speech_assets.work.tokenizer import (
    EncodeOptions,
    Tokenizer,
    default_batch_samples,
    encoder_threads,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from resources.store import Store
    from server.codec import Codec
    from server.codec_encoder_shapes import Shape
    from speech_assets.corpus.shards import Shard
    from speech_assets.work.decoding_pool import SpeechOptions

KIND = "tokenize_curve"
CLIP_S = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
BATCH_SAMPLES = (250_000, 1_000_000, 4_000_000, 16_000_000)
CORES = (1, 2, 4, 8, 16, 32, 64)
_CUDA_AUDIO_S, _CPU_AUDIO_S = 3_600.0, 80.0  # Of each measurement.


@dataclass(frozen=True, slots=True)
class Curve:
    """What is measured on. The shards' speech is there already.

    `audio_s` of it are encoded in each measurement; None is what suits the device.
    """

    store: Store
    shards: Sequence[Shard]
    codec: Codec
    options: SpeechOptions
    shapes: Mapping[str, Shape] | None = None
    audio_s: float | None = None

    def encoder_rows(self, rounds: int) -> Iterator[dict[str, Any]]:
        """Rows of the bare encoder by clips' length and by batch budget; hours are of audio."""
        cuda = self.codec.device.type == "cuda"
        audio_s = self.audio_s or (_CUDA_AUDIO_S if cuda else _CPU_AUDIO_S)
        speech = [read_speech(self.store, shard) for shard in self.shards]
        samples = np.concatenate([clip for shard in speech for clip in shard.clips])
        samples = np.resize(samples, round(audio_s * SAMPLE_RATE_HZ))
        usual = default_batch_samples(self.codec)
        for clip_s in (each for each in CLIP_S if each <= audio_s):
            yield self._encoded("clip_s", samples, clip_s, usual, rounds)
        for batch_samples in BATCH_SAMPLES if cuda else ():
            yield self._encoded("batch_samples", samples, 5.0, batch_samples, rounds)

    def _encoded(
        self,
        varied: str,
        samples: NDArray[np.int16],
        clip_s: float,
        batch_samples: int,
        rounds: int,
    ) -> dict[str, Any]:
        options = EncodeOptions(batch_samples, threads=encoder_threads())
        tokenizer = Tokenizer(self.codec, options, self.shapes)
        size = round(clip_s * SAMPLE_RATE_HZ)
        clips = [samples[at : at + size] for at in range(0, len(samples) - size + 1, size)]
        tokenizer.encode(clips if self.codec.device.type == "cuda" else clips[:1])
        seconds: list[float] = []
        for _ in range(rounds):
            began_s = time.monotonic()
            tokenizer.encode(clips)
            seconds.append(time.monotonic() - began_s)
        hours = len(clips) * size / SAMPLE_RATE_HZ / 3600
        return {
            "varied": varied,
            "clip_s": clip_s,
            "batch_samples": batch_samples,
            "hours_per_min": hours * 60 / statistics.median(seconds),
            "seconds": seconds,
        }

    def speech_rows(self) -> Iterator[dict[str, Any]]:
        """Rows of speech shards made on some of the cores; hours are of speech that was kept."""
        free = len(os.sched_getaffinity(0))
        for cores in [count for count in CORES if count < free] + [free]:
            with _on_cores(cores), DecodingPool(cores, self.options) as pool:
                self._speech_s(self.shards[:1], pool)  # The pool's start.
                taken = self.shards if cores > 1 else self.shards[:2]
                kept_s, seconds = self._speech_s(taken, pool)
            yield {
                "varied": "cores",
                "cores": cores,
                "hours_per_min": kept_s / 60 / seconds,
                "seconds": [seconds],
            }

    def _speech_s(self, shards: Sequence[Shard], pool: DecodingPool) -> tuple[float, float]:
        """Seconds of speech made anew, and those that it took."""
        for shard in shards:
            self.store.delete(shard.object_key("speech"))
        began_s = time.monotonic()
        kept_s = 0.0
        for _, found in make_shards(self.store, shards, self.options, pool):
            if isinstance(found, ShardError):
                raise found
            kept_s += found.statistics["kept_s"]
        return kept_s, time.monotonic() - began_s


def measure(
    curve: Curve,
    rounds: int,
    log: Callable[[str], None],
    *,
    device: Mapping[str, Any],
    started_at: str,
    command: str,
    reduced: bool,
    corpus: str,
) -> Result:
    """All rows, as a result of this kind."""
    rows: list[dict[str, Any]] = []
    for made in (curve.encoder_rows(rounds), curve.speech_rows()):
        for row in made:
            rows.append(row)
            value = row[row["varied"]]
            log(f"{row['varied']} {value:g}: {row['hours_per_min']:.3g} h/min")
    identity = curve.codec.identity
    speech = [row for row in rows if row["varied"] == "cores"]
    encoder = [row for row in rows if row["varied"] == "clip_s"]
    figures = {
        "encoder_hours_per_min_most": Figure(max(r["hours_per_min"] for r in encoder), "h/min"),
        "speech_hours_per_min_all_cores": Figure(speech[-1]["hours_per_min"], "h/min"),
        "speech_hours_per_min_a_core": Figure(
            speech[-1]["hours_per_min"] / speech[-1]["cores"], "h/min"
        ),
    }
    if curve.codec.device.type == "cuda":
        figures["peak_memory_gib"] = Figure(
            torch.cuda.max_memory_allocated(curve.codec.device) / 2**30, "GiB"
        )
    return Result(
        kind=KIND,
        name=identity.name,
        started_at=started_at,
        device=device,
        command=command,
        reduced=reduced,
        config={
            "codec": identity.name,
            "trained": identity.trained,
            "corpus": corpus,
            "shards": len(curve.shards),
            "rounds": rounds,
        },
        rows=rows,
        figures=figures,
    )


@contextmanager
def _on_cores(count: int) -> Generator[None]:
    """All threads of this process, and processes that it starts, on so many cores and no other."""
    free = os.sched_getaffinity(0)
    _hold(set(sorted(free)[:count]))
    try:
        yield
    finally:
        _hold(free)


def _hold(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # It has ended.
            os.sched_setaffinity(int(thread.name), cores)
