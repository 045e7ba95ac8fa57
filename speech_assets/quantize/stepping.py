"""Runs of decode steps of an engine, with the clock read around each step and without."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from server.engine import Generation
from speech_assets.errors import SpeechAssetsError
from speech_assets.quantize.speed import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.engine import Engine, Sampling
    from speech_assets.quantize.quiet import Watch

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_LEAST_STEPS = 4  # Of a generation, on average: a voice that says less cannot be timed.


class SpeechEndsError(SpeechAssetsError):
    """The model ends its speech at once: there are no decode steps to measure."""


@dataclass(frozen=True, slots=True)
class Speech:
    """What is said in a run of `steps` decode steps, by `streams` at once, the same for a seed.

    A generation that ends early is followed by another, so that as many are always in flight.
    """

    prompts: Sequence[Sequence[int]]
    sampling: Sampling
    steps: int
    streams: int = 1

    def generation(self, seed: int, number: int) -> Generation:
        """Generation `number` of a run, of one token more than `steps`: the first is the prompt's.

        Raises:
            SpeechEndsError: there were so many that the model must be ending its speech at once.
        """
        if (number - self.streams) * _LEAST_STEPS > self.steps * self.streams:
            raise SpeechEndsError(
                f"{number} generations gave less than {self.steps} steps: the model ends its "
                "speech at once; is this the checkpoint of a voice?"
            )
        sampling = replace(self.sampling, seed=seed * 10_000 + number, max_tokens=self.steps + 1)
        return Generation(f"{seed}-{number}", self.prompts[number % len(self.prompts)], sampling)


def pair(engine: Engine, speech: Speech, seed: int, watch: Watch | None = None) -> Run:
    """A run with the clock and one without, which of them comes first in turn by `seed`.

    `watch` adds up what else runs meanwhile.

    Raises:
        SpeechEndsError: the model ends its speech at once.
    """

    def alone() -> float:
        with _watched(watch):
            return plain(engine, speech, seed)

    def clocked() -> Run:
        with _watched(watch):
            return timed(engine, speech, seed)

    if seed % 2:
        plain_s = alone()
        return replace(clocked(), plain_s=plain_s)
    run = clocked()
    return replace(run, plain_s=alone())


def timed(engine: Engine, speech: Speech, seed: int) -> Run:
    """A run with the clock read before and after each step; its `plain_s` is 0."""
    clock, step = time.perf_counter_ns, engine.step
    intervals: list[int] = []
    first: list[int] = []
    added: dict[str, int] = {}  # Those without a token yet, and when they were added.
    alive = number = inside = adding = 0
    last = began = clock()
    while len(intervals) < speech.steps:
        while alive < speech.streams:
            generation = speech.generation(seed, number)
            number, alive = number + 1, alive + 1
            added[generation.request_id] = before = clock()
            engine.add(generation)
            adding += clock() - before
        before = clock()
        outputs = step()
        after = clock()
        inside += after - before
        if not outputs:  # Under asynchronous scheduling what was given is on its way.
            continue
        fresh = False
        for output in outputs:
            if added and output.request_id in added:
                first.append(after - added.pop(output.request_id))
                fresh = True
            alive -= output.finish_reason is not None
        if not fresh:
            intervals.append(after - last)
        last = after
    taken = last - began
    _empty(engine, seed, number)
    return Run(
        seed=seed,
        steps=len(intervals),
        intervals_ms=tuple(value / _NS_PER_MS for value in intervals),
        first_token_ms=tuple(value / _NS_PER_MS for value in first),
        inside_s=inside / _NS_PER_S,
        outside_s=(taken - inside - adding) / _NS_PER_S,
        timed_s=taken / _NS_PER_S,
        plain_s=0.0,
    )


def plain(engine: Engine, speech: Speech, seed: int) -> float:
    """Seconds of the same steps, the clock read at the start and at the end alone."""
    step = engine.step
    added: set[str] = set()
    alive = number = steps = 0
    began_s = time.perf_counter()
    while steps < speech.steps:
        while alive < speech.streams:
            generation = speech.generation(seed, number)
            number, alive = number + 1, alive + 1
            added.add(generation.request_id)
            engine.add(generation)
        outputs = step()
        if not outputs:
            continue
        fresh = False
        for output in outputs:
            if added and output.request_id in added:
                added.remove(output.request_id)
                fresh = True
            alive -= output.finish_reason is not None
        steps += not fresh
    taken_s = time.perf_counter() - began_s
    _empty(engine, seed, number)
    return taken_s


def _watched(watch: Watch | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if watch is None else watch.watching()


def _empty(engine: Engine, seed: int, number: int) -> None:
    engine.abort(f"{seed}-{n}" for n in range(number))
    while engine.busy:
        engine.step()
