"""One level under way: its warm-up, its window, and the wait for what the window began."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.bench.level import LevelSummary, summarize
from speech_assets.bench.options import MOST_STREAMS
from speech_assets.bench.part import Part
from speech_assets.bench.rows import table
from speech_assets.bench.server_facts import was_restarted
from speech_assets.bench.watch import Watch
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from speech_assets.bench.clients import Clients, PartEnd
    from speech_assets.bench.options import BenchOptions
    from speech_assets.bench.progress import Progress
    from speech_assets.bench.server_facts import ServerFacts
    from speech_assets.bench.server_probe import ServerProbe

# From the order to the start, so that all processes have it by then.
_AHEAD_S = 0.3
# A listening level is estimated by a quarter as many streams: it must not be beyond the server.
_ESTIMATE_SHARE = 4
_LEAST_ESTIMATED = 8


@dataclass(frozen=True, slots=True)
class LevelDone:
    """A level's rows and summary, and how its client processes ended."""

    rows: pa.Table
    summary: LevelSummary
    ends: list[PartEnd]
    was_interrupted: bool
    is_hopeless: bool


class LevelRun:
    """One level: its warm-up, its window, and the wait for what the window began."""

    def __init__(
        self,
        options: BenchOptions,
        level: float,
        clients: Clients,
        probe: ServerProbe,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._options = options
        self._level = level
        self._clients = clients
        self._probe = probe
        self._progress = progress
        self._base_s = time.monotonic() + _AHEAD_S
        self._rows: list[dict[str, Any]] = []
        self._figures: dict[str, Figure] = {}
        self._failures: list[str] = []
        self._was_interrupted = False

    def run(self) -> LevelDone:
        """Measure and judge the level. Ctrl-C ends it early; what has ended by then is kept."""
        options = self._options
        before = self._probe.facts()
        self._base_s = time.monotonic() + _AHEAD_S
        part: Part | None = self._part(self._base_s, options.warmup_s)
        ends: list[PartEnd] = []
        watch: Watch | None = None
        if options.mode == "listening":
            part = self._estimated()
        if part is not None:
            watch, ends = self._run(part)
            self._add(part, ends)
        else:
            part = self._part(self._base_s, options.warmup_s)
        return self._judged(part, watch, ends, before)

    def _judged(
        self, part: Part, watch: Watch | None, ends: list[PartEnd], before: ServerFacts
    ) -> LevelDone:
        options = self._options
        is_hopeless = watch is None or bool(watch.gave_up)
        is_whole = not (is_hopeless or self._was_interrupted or any(end.faults for end in ends))
        window_s = part.duration_s
        if not is_whole:
            window_s = min(max(time.monotonic() - part.measure_s, 1e-3), window_s)
        if watch is not None and watch.gave_up:
            self._failures.append(watch.gave_up)
        if self._was_interrupted:
            unfinished = sum(end.unfinished for end in ends)
            self._failures.append(f"interrupted with {unfinished} measured requests in flight")
        if watch is not None and watch.freed_s is not None and (cut := sum(e.cut for e in ends)):
            freed_ms = (watch.freed_s - max(end.cut_s for end in ends if end.cut)) * 1e3
            if freed_ms > 0:  # Else the server was idle before the last of them reached it.
                self._figures["cancel_to_free_ms"] = Figure(freed_ms, "ms", cut)
        summarized = summarize(
            self._rows,
            self._level,
            options.mode,
            offered=part.offered() if part.load == "open" and is_whole else None,
            streams=part.streams if part.load == "closed" and is_whole else None,
            warmup_s=part.measure_s - self._base_s,
            window_s=window_s,
            was_restarted=was_restarted(before, self._probe.facts()),
            server_metrics=watch.metrics_changes() if watch else None,
            more_figures=self._figures,
            more_failures=self._failures,
        )
        return LevelDone(table(self._rows), summarized, ends, self._was_interrupted, is_hopeless)

    def _estimated(self) -> Part | None:
        """The load of so many listeners, by how long one listens; None if nobody could be."""
        options = self._options
        estimate = dataclasses.replace(
            self._part(self._base_s, 0.0),
            load="closed",
            duration_s=max(options.warmup_s / 2, 1e-3),
            streams=max(1, int(self._level) // _ESTIMATE_SHARE),
            least=min(_LEAST_ESTIMATED, len(options.texts)),
            cancel_share=0.0,
        )
        watch, ends = self._run(estimate, is_estimate=True)
        self._add(estimate, ends, is_warmup=True)
        fine = [row for row in self._rows if row["outcome"] == "ok"]
        if self._was_interrupted:
            return None
        if not fine:
            why = watch.gave_up or "no request of the warm-up succeeded"
            self._failures.append(f"how many requests listeners make is not known: {why}")
            return None
        audio_s = sum(row["audio_s"] for row in fine) / len(fine)
        ttfa_s = sum(row["ttfa_ms"] for row in fine) / len(fine) / 1e3
        rate = self._level / (audio_s + ttfa_s)
        if rate > MOST_STREAMS:
            self._failures.append(
                f"{self._level:g} listeners of {audio_s:.3f} s would make {rate:,.0f} requests "
                f"a second, and {MOST_STREAMS:,} are the most; ask for longer texts"
            )
            return None
        self._figures |= {
            "estimated_audio_s": Figure(audio_s, "s", len(fine)),
            "estimated_ttfa_ms": Figure(ttfa_s * 1e3, "ms", len(fine)),
            "offered_per_s": Figure(rate, "1/s", len(fine)),
        }
        start_s = time.monotonic() + _AHEAD_S
        return dataclasses.replace(
            self._part(start_s, options.warmup_s / 2),
            rate=rate,
            first_request=max(row["request"] for row in self._rows) + 1,
        )

    def _part(self, start_s: float, warmup_s: float) -> Part:
        """The level's load, of which each process gets its share."""
        options = self._options
        is_closed = options.mode == "closed"
        return Part(
            load="closed" if is_closed else "open",
            start_s=start_s,
            warmup_s=warmup_s,
            duration_s=options.duration_s,
            process=0,
            processes=self._clients.count,
            first_request=0,
            seed=options.seed,
            texts=len(options.texts),
            cancel_share=options.cancel_share,
            streams=int(self._level) if is_closed else 0,
            least=int(self._level) if is_closed else 0,
            rate=0.0 if is_closed else self._level,
            arrivals=options.arrivals,
            # Arrivals go on while the last measured requests are awaited, however long.
            until_s=warmup_s + options.duration_s + options.timeout_s,
            in_flight_cap=options.in_flight_cap(self._level),
        )

    def _run(self, part: Part, *, is_estimate: bool = False) -> tuple[Watch, list[PartEnd]]:
        watch = Watch(
            part,
            self._level,
            self._options.mode,
            self._probe,
            self._progress,
            self._clients.stop,
            is_estimate=is_estimate,
        )
        shares = [_share(part, process) for process in range(self._clients.count)]
        try:
            return watch, self._clients.run(shares, watch.listen, watch.finished)
        except KeyboardInterrupt:
            self._was_interrupted = True
            self._clients.stop()
            return watch, self._clients.rest()

    def _add(self, part: Part, ends: Sequence[PartEnd], *, is_warmup: bool = False) -> None:
        """Add rows, their times from the level's start."""
        for process, end in enumerate(ends):
            for row in end.rows.to_pylist():
                began_s = row["dispatched_s"] if row["planned_s"] is None else row["planned_s"]
                row |= {
                    "level": self._level,
                    "mode": self._options.mode,
                    "process": process,
                    "warmup": is_warmup or began_s < part.measure_s,
                }
                for name in ("planned_s", "dispatched_s", "ended_s"):
                    if row[name] is not None:
                        row[name] -= self._base_s
                self._rows.append(row)


def _share(part: Part, process: int) -> Part:
    """What one process gets of a load: streams and caps as even as they go."""

    def even(count: int) -> int:
        return count // part.processes + (process < count % part.processes)

    streams = even(part.streams)
    return dataclasses.replace(
        part,
        process=process,
        streams=streams,
        # One without a stream would never come to its share.
        least=-(-part.least * streams // part.streams) if streams else 0,
        in_flight_cap=max(1, even(part.in_flight_cap)),
    )
