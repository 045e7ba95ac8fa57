"""What the speed of tokenization depends on: clips' length, a batch's budget, the host's cores.

Each is varied alone, the others at their defaults. The bare encoder takes real speech, cut to clips
of one length; speech shards are made on so many cores of this machine and no other, and count from
the first that is stored to the last. Each round of each goes on for some seconds.
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
from speech_assets.results.result import Figure, Result
from speech_assets.work.decoding_pool import DecodingPool
from speech_assets.work.speech_rate import Made, Stored, steadily_made
from speech_assets.work.speech_shards import stored_speech
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
ROUND_S = 5.0  # A round lasts so long at least: an H200 takes 0.4 s for what it is given at once.
_CUDA_AUDIO_S, _CPU_AUDIO_S = 3_600.0, 80.0  # Given at once.
_LEAST_SHARDS = 3  # On one core: speech counts from the first that is stored on.


@dataclass(frozen=True, slots=True)
class Curve:
    """What is measured on. The shards' speech is there already.

    `audio_s` of it are encoded at once; None is what suits the device. A round of a row lasts
    `round_s` at least.
    """

    store: Store
    shards: Sequence[Shard]
    codec: Codec
    options: SpeechOptions
    shapes: Mapping[str, Shape] | None = None
    audio_s: float | None = None
    round_s: float = ROUND_S

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
        cuda = self.codec.device.type == "cuda"
        if cuda:  # Its own peak, not that of the rows before it.
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.codec.device)
        tokenizer = Tokenizer(self.codec, options, self.shapes)
        size = round(clip_s * SAMPLE_RATE_HZ)
        clips = [samples[at : at + size] for at in range(0, len(samples) - size + 1, size)]
        tokenizer.encode(clips if cuda else clips[:1])
        audio_s = len(clips) * size / SAMPLE_RATE_HZ
        row = {
            "varied": varied,
            "clip_s": clip_s,
            "batch_samples": batch_samples,
            **_rates([self._encoder_round(tokenizer, clips, audio_s) for _ in range(rounds)]),
        }
        if cuda:
            row["peak_memory_gib"] = torch.cuda.max_memory_allocated(self.codec.device) / 2**30
        return row

    def _encoder_round(
        self, tokenizer: Tokenizer, clips: list[NDArray[np.int16]], audio_s: float
    ) -> Made:
        """The clips encoded over and over."""
        began_s, times, seconds = time.monotonic(), 0, 0.0
        while not times or seconds < self.round_s:
            tokenizer.encode(clips)
            times += 1
            seconds = time.monotonic() - began_s
        return Made(times * audio_s, seconds)

    def speech_rows(self, rounds: int) -> Iterator[dict[str, Any]]:
        """Rows of speech shards made on some of the cores; hours are of speech that was kept."""
        free = len(os.sched_getaffinity(0))
        for cores in [count for count in CORES if count < free] + [free]:
            with _on_cores(cores), DecodingPool(cores, self.options) as pool:
                self._made_anew(self.shards[:1], pool)  # The pool's start.
                taken = self.shards if cores > 1 else self.shards[:_LEAST_SHARDS]
                made = [self._speech_round(taken, pool) for _ in range(rounds)]
            yield {"varied": "cores", "cores": cores, **_rates(made)}

    def _speech_round(self, shards: Sequence[Shard], pool: DecodingPool) -> Made:
        """The shards made over and over, each time from the first that is stored to the last."""
        audio_s = seconds = 0.0
        while seconds < self.round_s or not seconds:
            made = steadily_made([self._made_anew(shards, pool)])
            audio_s += made.audio_s
            seconds += made.seconds
        return Made(audio_s, seconds)

    def _made_anew(self, shards: Sequence[Shard], pool: DecodingPool) -> list[Stored]:
        for shard in shards:
            self.store.delete(shard.object_key("speech"))
        return stored_speech(self.store, shards, self.options, pool)


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
    for made in (curve.encoder_rows(rounds), curve.speech_rows(rounds)):
        for row in made:
            rows.append(row)
            value = row[row["varied"]]
            log(f"{row['varied']} {value:,.9g}: {row['hours_per_min']:.3g} h/min")
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
            "round_s": curve.round_s,
        },
        rows=rows,
        figures=figures,
    )


def _rates(rounds: Sequence[Made]) -> dict[str, Any]:
    """The median of the rounds, and how long each was."""
    return {
        "hours_per_min": statistics.median(made.hours_per_min for made in rounds),
        "seconds": [made.seconds for made in rounds],
    }


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
