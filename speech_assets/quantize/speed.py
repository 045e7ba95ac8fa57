"""Decode speed of one preset: what was measured, its figures, and why they may not count.

A measurement that slows what it measures is worse than none: one that captured the engine's log
read 40 % less than the engine gave, and nobody saw it. So every measurement carries what it did to
the process (`Quiet`), and `faults` says what of that is too much.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.bench.figures import LEAST_FOR
from speech_assets.bench.percentile import nearest_rank
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.quantize.quiet import Quiet

KIND = "decode_speed"
GAP_LIMIT = 0.02  # Share of the time that may pass outside steps; some microseconds do.
FOREIGN_LIMIT = 0.02  # Cores that threads which the engine did not start, or the starter, may use.
OTHERS_LIMIT = 0.05  # Cores beside the stepping thread, where the engine has that one alone.
WAITED_LIMIT = 0.05  # Share of the time in which the stepping thread may wait for a core.
CLOCK_LIMIT = 0.05  # Share that reading the clock may cost, by the pair where it cost least.
_GIB = 1 << 30
_LEAST_PAIRS = 4  # Of two, both are slow by chance once in a few times on a busy machine.


@dataclass(frozen=True, slots=True)
class Run:
    """Decode steps with the clock read around each, and as many without (`plain_s`), same seeds.

    Attributes:
        steps: decode steps of either.
        intervals_ms: from the tokens of a step to those of the next; steps that also read a prompt
            are left out.
        first_token_ms: of each generation, from being added to its first token.
        inside_s, outside_s: time within `Engine.step`, and between one step and the next.
        timed_s, plain_s: the whole run, prompts included, with and without the clock.
    """

    seed: int
    steps: int
    intervals_ms: tuple[float, ...]
    first_token_ms: tuple[float, ...]
    inside_s: float
    outside_s: float
    timed_s: float
    plain_s: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens of one stream a second, prompts left out."""
        return 1e3 * len(self.intervals_ms) / sum(self.intervals_ms)

    @property
    def gap_share(self) -> float:
        """Time outside steps over all time."""
        return self.outside_s / (self.inside_s + self.outside_s)

    @property
    def clock_share(self) -> float:
        """By how much the run with the clock took longer; below 0 when it was faster."""
        return self.timed_s / self.plain_s - 1


@dataclass(frozen=True, slots=True)
class Measured:
    """All that one process measured of one preset."""

    runs: Sequence[Run]
    quiet: Quiet
    starts_s: Sequence[float]  # Of each start, a process of its own.
    bytes_per_step: int
    bandwidth_gb_per_s: float
    weights_bytes: int
    memory_bytes: Sequence[int]  # After each run.
    peak_memory_bytes: int  # With the cache of keys and values, which takes what a GPU has left.
    device_memory_bytes: int | None = None  # In use on a GPU, by whatever.
    streams: int = 1
    profile: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def faults(measured: Measured) -> list[str]:
    """Why the figures do not count, each a clause; empty when they do."""
    quiet, runs = measured.quiet, measured.runs
    found = list(quiet.stream_faults)
    gap = statistics.median(run.gap_share for run in runs)
    if gap > GAP_LIMIT:
        found.append(f"{gap:.1%} of the time passed outside steps (limit {GAP_LIMIT:.0%})")
    if quiet.foreign_cores > FOREIGN_LIMIT:
        names = ", ".join(quiet.foreign_threads)
        found.append(
            f"threads that the engine did not start ({names}) took {quiet.foreign_cores:.1%} of a "
            f"core (limit {FOREIGN_LIMIT:.0%})"
        )
    if quiet.starter_cores is not None and quiet.starter_cores > FOREIGN_LIMIT:
        found.append(
            f"the starting process took {quiet.starter_cores:.1%} of a core (limit "
            f"{FOREIGN_LIMIT:.0%})"
        )
    if quiet.sole_thread and quiet.others_cores > OTHERS_LIMIT:
        found.append(
            f"other threads of the process took {quiet.others_cores:.1%} of a core, and the engine "
            f"has one thread (limit {OTHERS_LIMIT:.0%})"
        )
    if quiet.waited_share is not None and quiet.waited_share > WAITED_LIMIT:
        found.append(
            f"the stepping thread waited for a core in {quiet.waited_share:.1%} of the time (limit "
            f"{WAITED_LIMIT:.0%}): other processes had it"
        )
    # In every pair: on a shared machine one run of a pair may be slow by chance, not all.
    least = min(run.clock_share for run in runs)
    if len(runs) >= _LEAST_PAIRS and least > CLOCK_LIMIT:
        found.append(f"reading the clock cost {least:.1%} or more (limit {CLOCK_LIMIT:.0%})")
    return found


def clock_share(runs: Sequence[Run]) -> float:
    """What reading the clock costs, as a share: the fastest run with it, and the fastest without.

    What a shared machine does to a run makes it slower, never faster; of five pairs single ones
    differed by 40 % either way.
    """
    timed_s = min(run.timed_s / run.steps for run in runs)
    return timed_s / min(run.plain_s / run.steps for run in runs) - 1


def figures(measured: Measured) -> dict[str, Figure]:
    """The figures of a measurement.

    `ms_per_token` is from a token to the next, of one stream, prompts left out; p95 of 40 values
    or more, p99 of 200. `tokens_per_s` is the mean rate, its interval the range of the runs. `rtf`
    is the time that a second of speech takes (82.03 tokens). `floor_ms` is the time that the
    memory takes to give the weights of a step, at the rate that this process measured. Of
    `first_token_ms`, `start_s` and `memory_gib_p50` the median stands, with the least and the most
    in place of an interval.
    """
    runs, quiet = measured.runs, measured.quiet
    intervals = [value for run in runs for value in run.intervals_ms]
    first = [value for run in runs for value in run.first_token_ms]
    rates = [run.tokens_per_s for run in runs]
    rate = 1e3 * len(intervals) / sum(intervals)
    middle = nearest_rank(intervals, 50)
    floor_ms = measured.bytes_per_step / measured.bandwidth_gb_per_s / 1e6
    value = {
        f"ms_per_token_p{percent}": Figure(nearest_rank(intervals, percent), "ms", len(intervals))
        for percent, least in LEAST_FOR.items()
        if len(intervals) >= least
    }
    value |= {
        "tokens_per_s": Figure(rate, "tokens/s", len(intervals), min(rates), max(rates)),
        "rtf": Figure(REALTIME_TOKENS_PER_S / rate, "", len(intervals)),
        "first_token_ms": _spread(first, "ms"),
        "start_s": _spread(measured.starts_s, "s"),
        "memory_gib_p50": _spread([size / _GIB for size in measured.memory_bytes], "GiB"),
        "peak_memory_gib": Figure(measured.peak_memory_bytes / _GIB, "GiB"),
        "weights_gib": Figure(measured.weights_bytes / _GIB, "GiB"),
        "bytes_per_step": Figure(measured.bytes_per_step, "bytes"),
        "bandwidth_gb_per_s": Figure(measured.bandwidth_gb_per_s, "GB/s"),
        "floor_ms": Figure(floor_ms, "ms"),
        "floor_share": Figure(floor_ms / middle, "", len(intervals)),
        "harness_overhead_share": Figure(
            statistics.median(run.gap_share for run in runs), "", len(runs)
        ),
        "clock_overhead_share": Figure(clock_share(runs), "", len(runs)),
        "other_threads_cpu_share": Figure(quiet.others_cores, "cores"),
        "foreign_threads_cpu_share": Figure(quiet.foreign_cores, "cores"),
    }
    if quiet.starter_cores is not None:
        value["starter_cpu_share"] = Figure(quiet.starter_cores, "cores")
    if quiet.waited_share is not None:
        value["waited_share"] = Figure(quiet.waited_share, "")
    if measured.device_memory_bytes is not None:
        value["device_memory_gib"] = Figure(measured.device_memory_bytes / _GIB, "GiB")
    if measured.streams > 1:
        value["all_streams_tokens_per_s"] = Figure(rate * measured.streams, "tokens/s")
    return value


def _spread(values: Sequence[float], unit: str) -> Figure:
    """The median of `values`, with the least and the most."""
    return Figure(nearest_rank(values, 50), unit, len(values), min(values), max(values))


def rows(measured: Measured, weights: str) -> list[dict[str, Any]]:
    """A row of each run, and of each part of the profile; every one says what the weights are."""
    of_runs = [
        {
            "run": number,
            "weights": weights,
            "seed": run.seed,
            "steps": run.steps,
            "generations": len(run.first_token_ms),
            "ms_per_token_p50": nearest_rank(run.intervals_ms, 50),
            "tokens_per_s": run.tokens_per_s,
            "first_token_ms": run.first_token_ms[0],
            "harness_overhead_share": run.gap_share,
            "plain_ms_per_step": 1e3 * run.plain_s / run.steps,
            "timed_ms_per_step": 1e3 * run.timed_s / run.steps,
        }
        for number, run in enumerate(measured.runs, 1)
    ]
    return of_runs + [{"weights": weights, **row} for row in measured.profile]
