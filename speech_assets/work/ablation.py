"""Each way of encoding measured on the same shards: speed, device's share, memory, changed codes.

The bare encoder encodes clips held in memory; the whole loop reads speech shards, encodes, checks
and stores. Codes are compared with the reference: the clip alone, eager, float32, TF32 off.
"""

from __future__ import annotations

import random
import statistics
import time
import traceback
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from server.codec import use_exact_float32
from server.errors import ServerError
from speech_assets.corpus.agreement import Agreement
from speech_assets.corpus.encoder_traffic import hours_per_min, traffic
from speech_assets.errors import ConfigError
from speech_assets.results.result import Figure, Result
from speech_assets.work import worker
from speech_assets.work.encoder_profile import profile_rows
from speech_assets.work.token_shards import SpeechShard, checked_clips
from speech_assets.work.tokenizer import Tokenizer
from speech_assets.work.tokens import tokenize_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from resources.store import Store
    from server.codec import Codec
    from server.codec_encoder_shapes import Shape
    from speech_assets.corpus.shards import Shard
    from speech_assets.work.tokenize_ways import Way

KIND = "tokenize_ablation"
_STAGES = ("read", "encode", "finish")


@dataclass(frozen=True, slots=True)
class Reference:
    """Codes of some clips of each shard, each clip alone."""

    codes: list[dict[int, NDArray[np.uint16]]]

    @classmethod
    def of(cls, codec: Codec, speech: Sequence[SpeechShard], clips: int = 0) -> Reference:
        """Of `clips` clips of each shard; 0: of those that a tokenization checks itself by."""
        use_exact_float32()
        return cls(
            [
                {at: codec.encode(shard.samples(at)) for at in _sample(shard, clips)}
                for shard in speech
            ]
        )

    def compare(self, made: Sequence[list[NDArray[np.uint16]]]) -> Agreement:
        """How many codes of those clips are the reference's."""
        agreement = Agreement.empty()
        for held, codes in zip(self.codes, made, strict=True):
            for at, exact in held.items():
                agreement = agreement.add(exact, codes[at])
        return agreement


class Recorder(worker.Reporter):
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


@dataclass(frozen=True, slots=True)
class Bench:
    """What every way is measured on: `rounds` of the bare encoder, and as many of the loop."""

    store: Store
    shards: list[Shard]
    speech: list[SpeechShard]
    codec: Codec
    reference: Reference
    rounds: int
    shapes: Mapping[str, Shape] | None = None
    loop: bool = True

    @property
    def audio_min(self) -> float:
        """Minutes of audio in the shards."""
        return sum(shard.audio_s for shard in self.speech) / 60

    def row(self, way: Way) -> dict[str, Any]:
        """The figures of one way."""
        cuda = self.codec.device.type == "cuda"
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.codec.device)
        began_s = time.monotonic()
        tokenizer = Tokenizer(self.codec, way.options, self.shapes)
        # Kernels are built and chosen at the first call of each shape, so it is not timed with the
        # rounds. Its codes are those that are compared.
        made = [tokenizer.encode(shard.clips) for shard in self.speech]
        first_s = time.monotonic() - began_s
        seconds: list[float] = []
        busy: list[float] = []
        for _ in range(self.rounds):
            tokenizer.device_busy_s = 0.0
            seconds.append(encode_s(tokenizer, self.speech))
            busy.append(tokenizer.device_busy_s / seconds[-1])
        agreement = self.reference.compare(made)
        row: dict[str, Any] = {
            "way": way.name,
            "options": asdict(way.options),
            "kernels": "torch" if tokenizer.encoder.fused is None else "triton",
            "read_ahead": way.read_ahead,
            "first_s": first_s,
            "encoder_s": seconds,
            "encoder_hours_per_min": self.audio_min / statistics.median(seconds),
            "device_busy_share": statistics.median(busy),
            "codes_compared": sum(agreement.total),
            "agreement": agreement.overall,
            **{
                f"codes_changed_level_{level}": total - equal
                for level, (equal, total) in enumerate(
                    zip(agreement.equal, agreement.total, strict=True)
                )
            },
        }
        if self.loop:
            row |= self._loop(tokenizer, way)
        if cuda:
            row["peak_memory_gib"] = torch.cuda.max_memory_allocated(self.codec.device) / 2**30
        use_exact_float32()
        return row

    def _loop(self, tokenizer: Tokenizer, way: Way) -> dict[str, Any]:
        """Medians of the loop's rounds, the least agreement of any, and the seconds of each."""
        rounds: list[dict[str, float]] = []
        for _ in range(self.rounds):
            for shard in self.shards:
                self.store.delete(shard.object_key("tokens"))
            recorder = Recorder("tokens")
            tokenizer.device_busy_s = 0.0
            failures = tokenize_shards(
                self.store, self.shards, tokenizer, recorder, read_ahead=way.read_ahead
            )
            if failures:
                return {"loop_error": failures[0]}
            rounds.append(recorder.figures)

        def median(name: str) -> float:
            return statistics.median(figures[name] for figures in rounds)

        return {
            "loop_s": [self.audio_min / figures["hours_per_min"] for figures in rounds],
            "loop_hours_per_min": median("hours_per_min"),
            "loop_device_busy_share": median("device_busy_share"),
            **{
                f"loop_{name}": min(figures[name] for figures in rounds)
                for name in rounds[0]
                if name.startswith("agreement")
            },
            **{
                name: median(name)
                for stage in _STAGES
                if (name := f"{stage}_capacity_hours_per_min") in rounds[0]
            },
        }


def measure(
    bench: Bench,
    ways: Sequence[Way],
    log: Callable[[str], None],
    *,
    profiled: bool = False,
) -> list[dict[str, Any]]:
    """A row of each way; one that cannot run here says why, and `log` gets where it failed.

    `profiled` rows also say what families of kernels the device's time went to.

    Raises:
        ConfigError: none could run.
    """
    rows: list[dict[str, Any]] = []
    for way in ways:
        try:
            row = bench.row(way)
            if profiled:
                tokenizer = Tokenizer(bench.codec, way.options, bench.shapes)
                row["profile"] = profile_rows(tokenizer, bench.speech[0].clips)
            rows.append(row)
        # One way's failure must not cost the others: settings that this device does not take, its
        # memory (a RuntimeError of torch), a kernel that does not build.
        except (ServerError, RuntimeError) as error:
            log(f"{way.name}: {''.join(traceback.format_exception(error))}")
            message = str(error).strip() or type(error).__name__
            rows.append({"way": way.name, "error": message.splitlines()[0][:300]})
    if all("error" in row for row in rows):
        raise ConfigError(f"no way of encoding could be measured: {rows[0]['error']}")
    return rows


def result_of(
    bench: Bench,
    rows: Sequence[Mapping[str, Any]],
    *,
    device: Mapping[str, Any],
    started_at: str,
    command: str,
    reduced: bool = False,
    corpus: str,
    speech_hours_per_min: float | None = None,
) -> Result:
    """The result of the ways in `rows`, with what bounds the encoder by its bytes."""
    codec, identity = bench.codec, bench.codec.identity
    layers = traffic(_shape_of(codec))
    config: dict[str, Any] = {
        "codec": identity.name,
        "trained": identity.trained,
        "corpus": corpus,
        "shards": len(bench.shards),
        "audio_minutes": bench.audio_min,
        "rounds": bench.rounds,
        "traffic": [asdict(layer) for layer in layers],
    }
    figures = figures_of(rows)
    if speech_hours_per_min is not None:
        figures["speech_capacity_hours_per_min"] = Figure(speech_hours_per_min, "h/min")
    if codec.device.type == "cuda":
        bytes_per_s = copied_bytes_per_s(codec.device)
        figures["copied_bytes_per_s"] = Figure(bytes_per_s, "B/s")
        figures["bound_hours_per_min"] = Figure(hours_per_min(layers, bytes_per_s), "h/min")
    return Result(
        kind=KIND,
        name=identity.name,
        started_at=started_at,
        device=device,
        command=command,
        reduced=reduced,
        config=config,
        rows=rows,
        figures=figures,
    )


def copied_bytes_per_s(device: torch.device) -> float:
    """Bytes that a copy within the device's memory reads and writes a second."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    taken_ms: list[float] = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        taken_ms.append(begin.elapsed_time(end))
    return 2 * source.numel() / (min(taken_ms) / 1000)


def _shape_of(codec: Codec) -> dict[str, Any]:
    """What `traffic` asks of a configuration, from the model itself."""
    first, *blocks, _ = codec.model.encoder.block
    strides = [cast("Any", block).block[-1].stride[0] for block in blocks]
    return {"encoder_dim": cast("Any", first).out_channels, "encoder_rates": strides}


def figures_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """The bare encoder's speed of each way, `encoder_hours_per_min_<way>`."""
    figures: dict[str, Figure] = {}
    for row in rows:
        if "error" in row:
            continue
        name = "_".join("".join(c if c.isalnum() else " " for c in row["way"]).lower().split())
        speeds = sorted(
            row["encoder_hours_per_min"] * statistics.median(row["encoder_s"]) / seconds
            for seconds in row["encoder_s"]
        )
        figures[f"encoder_hours_per_min_{name}"] = Figure(
            row["encoder_hours_per_min"], "h/min", len(speeds), speeds[0], speeds[-1]
        )
        if "loop_hours_per_min" in row:
            figures[f"loop_hours_per_min_{name}"] = Figure(row["loop_hours_per_min"], "h/min")
    return figures


def encode_s(tokenizer: Tokenizer, speech: Sequence[SpeechShard]) -> float:
    """Seconds that the bare encoder takes for the clips of shards, held in memory."""
    began_s = time.monotonic()
    for shard in speech:
        tokenizer.encode(shard.clips)
    if tokenizer.codec.device.type == "cuda":
        torch.cuda.synchronize(tokenizer.codec.device)
    return time.monotonic() - began_s


def _sample(shard: SpeechShard, clips: int) -> list[int]:
    count = len(shard.clips)
    if not clips:
        return checked_clips(shard.shard, count)
    return sorted(random.Random(shard.shard.key).sample(range(count), min(clips, count)))
