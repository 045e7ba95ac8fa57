"""The process whose costs are measured: a server's model without HTTP, and streams that read it.

Streams are on the event loop, as a server's connections are: each asks for one utterance after the
other and takes its audio as it comes. Started by `speech_assets.work.cost_curve`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server import frames
from server.loading import load_model
from server.metrics import Metrics, PlaybackClock
from server.presets import load_preset
from server.speech import SpeechRequest
from server.wav import BYTES_PER_SAMPLE
from speech_assets.load.cost_curve import LevelCost, context_tokens
from speech_assets.quantize.quiet import cpu_s
from speech_assets.sentences import LONG_SENTENCES, SENTENCES
from speech_assets.work import measured_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from server.serving import Model
    from server.speech import Utterance, UtteranceReport

_ENGINE_THREAD = "engine"  # As `server.engine_thread` names it.
_LONGEST_FIRST_FRAMES = 117  # Of a stream's first utterance: 10 s.
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured: levels of streams, each for `duration_s` after `warm_up_s`.

    `trace_s` of each level are traced on a GPU, after what is timed; 0 is none. `folder` is for
    this process alone; `starter_pid` is who started it.
    """

    preset: str
    store: str
    levels: Sequence[int]
    duration_s: float
    warm_up_s: float
    trace_s: float
    seed: int
    folder: str
    starter_pid: int


@dataclass(slots=True)
class _Heard:
    """What all streams have been given since it was last begun anew."""

    samples: int = 0
    late_chunks: int = 0
    reports: list[UtteranceReport] = field(default_factory=list["UtteranceReport"])


@dataclass(slots=True)
class _Observed:
    """What a server's metrics were told of, one by one."""

    steps_s: list[float] = field(default_factory=list[float])
    busy_s: list[float] = field(default_factory=list[float])
    decodes_s: list[float] = field(default_factory=list[float])
    decode_rows: list[float] = field(default_factory=list[float])

    def watch(self, metrics: Metrics) -> None:
        """Keep what `metrics` are told from now on."""
        for histogram, kept in (
            (metrics.engine_step_seconds, self.steps_s),
            (metrics.decode_seconds, self.decodes_s),
            (metrics.decode_batch_size, self.decode_rows),
        ):
            histogram.observe = _both(histogram.observe, kept)
        metrics.busy_seconds.inc = _both(metrics.busy_seconds.inc, self.busy_s)

    def clear(self) -> None:
        """Forget what was kept."""
        for kept in (self.steps_s, self.busy_s, self.decodes_s, self.decode_rows):
            kept.clear()


def _both(tell: Any, kept: list[float]) -> Any:
    def told(amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        kept.append(amount)
        tell(amount, exemplar)

    return told


class Streams:
    """Streams that generate without a pause, as many as are asked for."""

    def __init__(self, model: Model, texts: Sequence[str], seed: int) -> None:
        self.heard = _Heard()
        self.reports: list[UtteranceReport] = []  # Of all levels.
        self._model, self._texts, self._seed = model, texts, seed
        self._tasks: list[asyncio.Task[None]] = []
        self._speaking: dict[int, Utterance] = {}

    def grow(self, count: int) -> None:
        """Begin further streams, until there are `count`."""
        while len(self._tasks) < count:
            self._tasks.append(asyncio.create_task(self._stream(len(self._tasks))))

    def check(self) -> None:
        """Raise what has ended a stream: none ends by itself."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def end(self) -> None:
        """End all streams, and wait until what they spoke has ended."""
        for task in self._tasks:
            task.cancel()
        for utterance in list(self._speaking.values()):
            utterance.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stream(self, number: int) -> None:
        utterances = 0
        # As if it had begun earlier: of streams that begin together all would end together.
        first = random.Random(f"{self._seed} {number}").randint(1, _LONGEST_FIRST_FRAMES)
        while True:
            seed = self._seed * 1_000_000 + number * 1_000 + utterances
            sampling = replace(self._model.sampling, seed=seed)
            if not utterances:
                sampling = replace(sampling, max_tokens=first * frames.TOKENS_PER_FRAME)
            voices = self._model.voices.own
            request = SpeechRequest(
                id=f"{number}-{utterances}",
                text=self._texts[(number + utterances) % len(self._texts)],
                voice=voices[number % len(voices)],
                sampling=sampling,
            )
            await self._speak(number, request)
            utterances += 1

    async def _speak(self, number: int, request: SpeechRequest) -> None:
        utterance = self._speaking[number] = await self._model.service.speak(request)
        clock = PlaybackClock()
        async for chunk in utterance:
            samples = len(chunk) // BYTES_PER_SAMPLE
            self.heard.samples += samples
            self.heard.late_chunks += clock.sent(samples, time.monotonic()) > 0
        if (report := utterance.report) is not None:
            if report.error is not None:
                raise measured_process.ProcessError(
                    f"utterance {request.id} ended with an error: {report.error}"
                )
            self.heard.reports.append(report)
            self.reports.append(report)


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of the wall, and CPU time of the engine's thread, of this one, and of the process;
    those in which the engine's thread waited for a core, where that is known."""

    wall_s: float
    engine_s: float
    loop_s: float
    process_s: float
    waited_s: float | None

    @classmethod
    def now(cls) -> _Times:
        """As they are."""
        engine = next(
            thread.native_id or 0
            for thread in threading.enumerate()
            if thread.name == _ENGINE_THREAD
        )
        return cls(
            time.monotonic(),
            cpu_s(engine, of_thread=True) or 0.0,
            time.thread_time(),
            time.process_time(),
            _waited_s(engine),
        )


def _waited_s(thread: int) -> float | None:
    with suppress(OSError, IndexError, ValueError):
        words = Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii").split()
        return int(words[1]) / 1e9
    return None


def main() -> None:
    """Entry point of `python -m speech_assets.work.cost_curve_child JOB`."""
    measured_process.answer(lambda job: _measure(Job(**job)))


def _measure(job: Job) -> dict[str, Any]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before torch reads it.
    preset = load_preset(job.preset)
    metrics = Metrics()
    observed = _Observed()
    began_s = time.monotonic()
    model = load_model(preset, metrics, store=job.store)
    start_s = time.monotonic() - began_s
    observed.watch(metrics)
    texts = LONG_SENTENCES if preset.untrained else SENTENCES
    device = model.config["engine"]["device"]
    try:
        return {
            "start_s": start_s,
            "device": device,
            "served": model.config,
            **asyncio.run(_levels(job, Streams(model, texts, job.seed), observed, device)),
        }
    finally:
        model.service.close()


async def _levels(job: Job, streams: Streams, observed: _Observed, device: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    try:
        for level in sorted(job.levels):
            streams.grow(level)
            await asyncio.sleep(job.warm_up_s)
            cost = await _level(job, streams, observed, level, device)
            rows.append(cost.row())
            print(_line(job.preset, rows[-1]), file=sys.stderr, flush=True)
    finally:
        await streams.end()
    return {"rows": rows, "context_tokens": context_tokens(streams.reports)}


async def _level(
    job: Job, streams: Streams, observed: _Observed, level: int, device: str
) -> LevelCost:
    before = _Times.now()
    observed.clear()
    heard = streams.heard = _Heard()
    await asyncio.sleep(job.duration_s)
    streams.heard = _Heard()
    kept = _Observed(*(list(values) for values in _lists(observed)))
    after = _Times.now()
    streams.check()
    window_s = after.wall_s - before.wall_s
    engine_s, loop_s = after.engine_s - before.engine_s, after.loop_s - before.loop_s
    rest_s = after.process_s - before.process_s - engine_s - loop_s
    return LevelCost(
        streams=level,
        window_s=window_s,
        steps_s=kept.steps_s,
        busy_s=sum(kept.busy_s),
        decodes_s=kept.decodes_s,
        decode_rows=kept.decode_rows,
        samples=heard.samples,
        late_chunks=heard.late_chunks,
        reports=heard.reports,
        thread_cores={
            "engine": engine_s / window_s,
            "event_loop": loop_s / window_s,
            "others": max(0.0, rest_s) / window_s,
        },
        waited_share=None
        if after.waited_s is None or before.waited_s is None
        else (after.waited_s - before.waited_s) / window_s,
        host_memory_bytes=_resident(),
        device_memory_bytes=_device_memory(device),
        trace=await _trace(observed, job.trace_s) if device == "cuda" and job.trace_s else {},
    )


def _lists(observed: _Observed) -> tuple[list[float], ...]:
    return observed.steps_s, observed.busy_s, observed.decodes_s, observed.decode_rows


async def _trace(observed: _Observed, trace_s: float) -> Mapping[str, Any]:
    """What the GPU did in a window of its own, after what was timed; why there is none, else."""
    from torch.profiler import ProfilerActivity, profile

    from speech_assets.work.device_trace import kernels_of, trace_row

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            steps = len(observed.steps_s)
            await asyncio.sleep(trace_s)
            steps = len(observed.steps_s) - steps
        return trace_row(kernels_of(found.events() or ()), steps)
    except Exception as error:  # Of a driver, or of another torch: the level is kept.
        return {"no_trace": f"{type(error).__name__}: {error}"}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE


def _device_memory(device: str) -> int | None:
    if device != "cuda":
        return None
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _line(preset: str, row: Mapping[str, Any]) -> str:
    """One line of a level, while the next is measured."""

    def shown(name: str) -> str:
        return "-" if row.get(name) is None else f"{row[name]:.2f}"

    cores = ", ".join(f"{name} {value:.2f}" for name, value in row["thread_cores"].items())
    return (
        f"{preset}, {row['streams']} streams: step {shown('step_ms_mean')} ms, beside it "
        f"{shown('beside_ms_mean')}, between {shown('between_ms_mean')}; RTF {shown('rtf')}, "
        f"{row['late_chunks']} late; cores {cores}; device: model {shown('lm_ms')}, codec "
        f"{shown('codec_ms')}, idle {shown('idle_ms')}"
    )


if __name__ == "__main__":
    main()
