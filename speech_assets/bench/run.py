"""A load test from its start to its summary: the levels one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speech_assets.bench.clients import Clients
from speech_assets.bench.errors import ClientDiedError
from speech_assets.bench.level_run import LevelRun
from speech_assets.bench.rows import SCHEMA, failed
from speech_assets.bench.server_probe import ServerProbe
from speech_assets.bench.summary import ClientHealth, RunFacts, summary
from speech_assets.bench.target import Target
from speech_assets.results.provenance import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from speech_assets.bench.level import LevelSummary
    from speech_assets.bench.options import BenchOptions
    from speech_assets.bench.progress import Progress
    from speech_assets.bench.server_facts import ServerFacts


@dataclass(frozen=True, slots=True)
class BenchRun:
    """Rows of all requests (`rows.parquet`) and what they say (`summary.json`)."""

    rows: pa.Table
    summary: dict[str, Any]
    levels: tuple[LevelSummary, ...]

    @property
    def valid(self) -> bool:
        """Whether the client kept up, so that the figures are the server's."""
        return self.summary["client"]["valid"]

    @property
    def interrupted(self) -> bool:
        """Whether it was ended before its time."""
        return self.summary["status"] == "interrupted"

    @property
    def has_errors(self) -> bool:
        """Whether any request failed, those of the warm-up too."""
        return any(failed(outcome) for outcome in self.rows["outcome"].unique().to_pylist())


def run_bench(
    options: BenchOptions,
    *,
    progress: Callable[[Progress], None] | None = None,
    after_level: Callable[[LevelSummary], bool] | None = None,
    keep_interrupted: bool = False,
) -> BenchRun:
    """Run all levels; `after_level` returning False ends the sweep.

    With `keep_interrupted`, Ctrl-C ends the run and what was measured is returned; otherwise it is
    raised on, as any other exception is. No client process is left in any case.
    """
    sweep = _Sweep(options, progress)
    try:
        sweep.run(after_level)
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        sweep.facts.status = "interrupted"
    except ClientDiedError as error:
        sweep.health.reasons.append(str(error))
    return sweep.result()


class _Sweep:
    def __init__(self, options: BenchOptions, progress: Callable[[Progress], None] | None) -> None:
        self._options = options
        self._progress = progress
        self._tables: list[pa.Table] = []
        self._levels: list[LevelSummary] = []
        self.health = ClientHealth(options.lag_limit_ms)
        self.facts = RunFacts(started_at=utc_now())

    def run(self, after_level: Callable[[LevelSummary], bool] | None) -> None:
        options = self._options
        with ServerProbe(options.base_url, options.all_headers, options.address.query) as probe:
            facts = probe.facts()
            self.facts.config = facts.config
            self.facts.metrics_before = facts.metrics.values if facts.metrics else None
            with Clients.running(self._target(facts), options.client_processes) as clients:
                for level in options.levels:
                    done = LevelRun(options, level, clients, probe, self._progress).run()
                    self._tables.append(done.rows)
                    self._levels.append(done.summary)
                    self.health.look(level, done.ends, done.rows)
                    if done.was_interrupted:
                        raise KeyboardInterrupt
                    goes_on = after_level is None or after_level(done.summary)
                    if not goes_on or done.is_hopeless or any(end.faults for end in done.ends):
                        break
            metrics = probe.metrics().result()
            self.facts.metrics_after = metrics.values if metrics else None

    def result(self) -> BenchRun:
        rows = pa.concat_tables(self._tables) if self._tables else SCHEMA.empty_table()
        return BenchRun(
            rows,
            summary(self._options, self.facts, self.health, self._levels),
            tuple(self._levels),
        )

    def _target(self, facts: ServerFacts) -> Target:
        options = self._options
        return Target(
            api=options.api,
            speech_url=options.speech_url,
            is_ours=facts.is_ours,
            format=options.format,
            texts=options.texts,
            voice=options.voice,
            model=options.model,
            headers=options.all_headers,
            fresh_connections=options.fresh_connections,
            timeout_s=options.timeout_s,
        )
