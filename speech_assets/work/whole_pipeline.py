"""The whole pipeline, from compressed parquet to token shards, beside the bare encoder, in turn.

Processes make speech of the archives, as a run starts them, while the tokens loop in this process
takes each shard as it becomes whole. Beside it, in the same rounds: the bare encoder on the same
clips in memory, each stage alone, and how long the processes take to start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resources.store import Store
from speech_assets.cores import core_count
from speech_assets.corpus.benchmark_corpora import archived, tiny_corpus
from speech_assets.errors import ConfigError, ShardError
from speech_assets.profiles import load_profile
from speech_assets.results.result import Figure
from speech_assets.work.ablation import Recorder, encode_s
from speech_assets.work.speech_makers import LOOK_EVERY_S, SpeechMakers, speech_makers
from speech_assets.work.speech_rate import Stored, steadily_made
from speech_assets.work.tokenize_backfill import clear, loop_figures, median_of, own_loop
from speech_assets.work.tokens import tokenize_shards

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from speech_assets.corpus.shards import Shard
    from speech_assets.work.token_shards import SpeechShard
    from speech_assets.work.tokenizer import Tokenizer

    Archives = tuple[Store, list[Shard]]

KIND = "tokenize_pipeline"
TWO_FROM_CORES = 8  # Meant to keep more cores at work; no published result compares the two yet.
_LEAST_SHARDS = 2  # Of each process: speed is from when each has its first.


def speech_processes() -> int:
    """How many processes make speech unless somebody says: by `TWO_FROM_CORES`."""
    return 2 if core_count() >= TWO_FROM_CORES else 1


def check_processes(processes: int, shards: int) -> None:
    """Raises ConfigError where there are too few shards for so many processes."""
    if shards < _LEAST_SHARDS * processes:
        raise ConfigError(
            f"{processes} speech processes need {_LEAST_SHARDS} shards each, there are {shards}; "
            "take fewer processes (--speech-processes) or more shards"
        )


def one_clip_each(folder: Path, processes: int) -> Archives:
    """Archives of a clip for each process, in a store of their own below the empty `folder`."""
    profiles, _ = tiny_corpus(folder, processes)
    tiny = load_profile({"SPEECH_PROFILES": str(profiles), "SPEECH_PROFILE": "tiny"})
    store = Store(str(folder / "store"))
    return store, archived(store, tiny.corpus)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What is measured on: archives are in `store`, `speech` of them is in memory.

    `processes` share the cores; of `clips` each of them makes one to show that it has started.

    Raises:
        ConfigError: there are too few shards for so many processes.
    """

    store: Store
    tokenizer: Tokenizer
    speech: Sequence[SpeechShard]
    max_clip_s: float
    processes: int
    clips: Archives

    def __post_init__(self) -> None:
        check_processes(self.processes, len(self.speech))

    @property
    def audio_min(self) -> float:
        """Minutes of audio in the shards."""
        return sum(shard.audio_s for shard in self.speech) / 60

    @property
    def decoders(self) -> int:
        """Decoding processes of each speech process: the cores, shared out."""
        return max(1, core_count() // self.processes)

    @property
    def shards(self) -> list[Shard]:
        """The shards, in order."""
        return [held.shard for held in self.speech]

    def makers(
        self, store: Store, shards: Sequence[Shard]
    ) -> contextlib.AbstractContextManager[SpeechMakers]:
        """The processes, at work on shards."""
        return speech_makers(
            store,
            shards,
            processes=self.processes,
            decoders=self.decoders,
            max_clip_s=self.max_clip_s,
        )

    def start_s(self) -> float:
        """Seconds until each of the processes, started together, has made speech of one clip."""
        store, shards = self.clips
        clear(store, shards, "speech")
        began_s = time.monotonic()
        with self.makers(store, shards) as makers:
            for _ in shards:
                makers.take()
            return time.monotonic() - began_s

    def speech_alone(self) -> tuple[float, float]:
        """Seconds from the start to the last speech shard, and hours a minute once started.

        The latter is from when each process had its first shard to the last shard of all.
        """
        arrived_s: dict[Shard, float] = {}
        clear(self.store, self.shards, "speech")
        began_s = time.monotonic()
        with self.makers(self.store, self.shards) as makers:
            for _ in self.shards:
                shard = makers.take()
                arrived_s[shard] = time.monotonic() - began_s
        arrived = [Stored(arrived_s[held.shard], held.audio_s) for held in self.speech]
        by_process = [arrived[number :: self.processes] for number in range(self.processes)]
        made = steadily_made(by_process, least_s=LOOK_EVERY_S)
        return max(arrived_s.values()), made.hours_per_min

    def whole(self) -> dict[str, float]:
        """Seconds from the start to the last token shard, with what the tokens loop says of it."""
        clear(self.store, self.shards, "speech", "tokens")
        recorder = Recorder("tokens")
        self.tokenizer.device_busy_s = 0.0
        began_s = time.monotonic()
        with self.makers(self.store, self.shards) as makers:
            failures = tokenize_shards(
                self.store, self.shards, self.tokenizer, recorder, arriving=makers
            )
            seconds = time.monotonic() - began_s
        if failures:
            raise ShardError("; ".join(failures))
        # Its clock began before there was a shard: what it says of a minute is `pipeline_s`' here.
        loop = {name: v for name, v in recorder.figures.items() if name != "hours_per_min"}
        return {"pipeline_s": seconds, **loop}


def measure(pipeline: Pipeline, rounds: int, log: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row of each round: the bare encoder, the stages alone and the pipeline, in seconds.

    Raises:
        WorkError: a speech process failed.
        ShardError: a token shard could not be made.
    """
    tokenizer, speech = pipeline.tokenizer, pipeline.speech
    tokens = own_loop(pipeline.store, tokenizer)
    # Warm-up: kernels of every length, allocator, file cache, what the processes import.
    encode_s(tokenizer, speech if tokenizer.codec.device.type == "cuda" else speech[:1])
    tokens(pipeline.shards[:1])
    pipeline.start_s()
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        encoder_s = encode_s(tokenizer, speech)
        clear(pipeline.store, pipeline.shards, "tokens")
        tokens_alone = tokens(pipeline.shards)["hours_per_min"]
        start_s = pipeline.start_s()
        speech_s, speech_alone = pipeline.speech_alone()
        row = {
            "round": number,
            "encoder_s": encoder_s,
            "start_s": start_s,
            "speech_s": speech_s,
            "speech_hours_per_min": speech_alone,
            "tokens_hours_per_min": tokens_alone,
            **pipeline.whole(),
        }
        rows.append(row)
        log(
            f"round {number + 1}: encoder {encoder_s:.1f} s, pipeline {row['pipeline_s']:.1f} s "
            f"({start_s:.1f} s of it the start), share {encoder_s / row['pipeline_s']:.3f}; alone: "
            f"speech {speech_alone:.3g} h/min, tokens {tokens_alone:.3g}"
        )
    return rows


def figures_of(
    rows: Sequence[Mapping[str, Any]], audio_min: float, speech_hours_per_min: float
) -> dict[str, Figure]:
    """Figures of the rounds; `speech_hours_per_min` is what one process on all cores made, from
    its first shard to its last, before."""

    def over(unit: str, value: Callable[[Mapping[str, Any]], float]) -> Figure:
        return median_of([value(row) for row in rows], unit)

    started = [row for row in rows if row["pipeline_s"] > row["start_s"]]
    value = {
        "pipeline_hours_per_min": over("h/min", lambda r: audio_min / r["pipeline_s"]),
        "encoder_hours_per_min": over("h/min", lambda r: audio_min / r["encoder_s"]),
        "share_of_encoder": over("ratio", lambda r: r["encoder_s"] / r["pipeline_s"]),
        "start_s": over("s", lambda r: r["start_s"]),
        "speech_hours_per_min": over("h/min", lambda r: r["speech_hours_per_min"]),
        "speech_one_process_hours_per_min": Figure(speech_hours_per_min, "h/min"),
        "tokens_hours_per_min": over("h/min", lambda r: r["tokens_hours_per_min"]),
        **loop_figures(rows),
    }
    if len(started) == len(rows):  # The start is measured apart: of a short run it may be longer.
        value["share_once_started"] = over(
            "ratio", lambda r: r["encoder_s"] / (r["pipeline_s"] - r["start_s"])
        )
    return value
