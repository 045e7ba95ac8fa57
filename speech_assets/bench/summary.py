"""summary.json: what a run was asked for, whether its client kept up, and what each level gave."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from speech_assets.bench.percentile import nearest_rank
from speech_assets.results.provenance import cpu_device, git_state, installed_software

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from speech_assets.bench.clients import PartEnd
    from speech_assets.bench.level import LevelSummary
    from speech_assets.bench.options import BenchOptions

SCHEMA_VERSION = 1
# Of a core: a process that needs more of it has requests that wait for each other.
MOST_CPU = 0.9
_LEVELS_OPTION = {"closed": "--streams", "open": "--rate", "listening": "--listeners"}


@dataclass(slots=True)
class ClientHealth:
    """Whether the client was ever the limit, and by what it is known."""

    lag_limit_ms: float
    reasons: list[str] = field(default_factory=list[str])
    lag_ms_p99: float | None = None
    lag_ms_max: float | None = None
    dispatch_lag_ms_p99: float | None = None
    cpu_share_max: float | None = None

    def look(self, level: float, ends: Sequence[PartEnd], rows: pa.Table) -> None:
        """Take in one level."""
        for process, end in enumerate(ends):
            self.reasons += [
                f"level {level:g}: client process {process}: {fault}" for fault in end.faults
            ]
            self._worst("cpu_share_max", end.cpu_share)
            if end.cpu_share > MOST_CPU:
                share = f"{end.cpu_share:.0%} of a core (at most {MOST_CPU:.0%})"
                self.reasons.append(
                    f"level {level:g}: client process {process} used {share}; use more processes"
                )
            if end.lag_ms_max is not None:
                self._worst("lag_ms_max", end.lag_ms_max)
            if end.lag_ms_p99 is not None:
                self._late("lag_ms_p99", end.lag_ms_p99, level, f"process {process}'s event loop")
        late = [
            lag
            for lag, is_warmup in zip(
                rows["lag_ms"].to_pylist(), rows["warmup"].to_pylist(), strict=True
            )
            if lag is not None and not is_warmup
        ]
        if late:
            self._late("dispatch_lag_ms_p99", nearest_rank(late, 99), level, "dispatch")

    def as_json(self) -> dict[str, Any]:
        """For summary.json."""
        return {
            "valid": not self.reasons,
            "reasons": self.reasons,
            "lag_ms_p99": self.lag_ms_p99,
            "lag_ms_max": self.lag_ms_max,
            "dispatch_lag_ms_p99": self.dispatch_lag_ms_p99,
            "cpu_share_max": self.cpu_share_max,
        }

    def _late(self, name: str, lag_ms: float, level: float, what: str) -> None:
        self._worst(name, lag_ms)
        if lag_ms > self.lag_limit_ms:
            self.reasons.append(
                f"level {level:g}: {what} was late, p99 {lag_ms:.1f} ms "
                f"(at most {self.lag_limit_ms:g} ms)"
            )

    def _worst(self, name: str, value: float) -> None:
        before = getattr(self, name)
        setattr(self, name, value if before is None else max(before, value))


@dataclass(slots=True)
class RunFacts:
    """What happened around the levels."""

    started_at: str
    status: Literal["complete", "interrupted"] = "complete"
    config: dict[str, Any] | None = None
    metrics_before: dict[str, float] | None = None
    metrics_after: dict[str, float] | None = None


def summary(
    options: BenchOptions, facts: RunFacts, health: ClientHealth, levels: Sequence[LevelSummary]
) -> dict[str, Any]:
    """The JSON value of summary.json."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command(options),
        "started_at": facts.started_at,
        "url": options.shown_url,
        "api": options.api,
        "mode": options.mode,
        "format": options.format,
        "seed": options.seed,
        "texts": list(options.texts),
        "texts_sha256": hashlib.sha256(json.dumps(options.texts).encode()).hexdigest(),
        "duration_s": options.duration_s,
        "warmup_s": options.warmup_s,
        "processes": options.client_processes,
        "status": facts.status,
        "client": health.as_json(),
        "server": {
            "config": facts.config,
            "metrics_before": facts.metrics_before,
            "metrics_after": facts.metrics_after,
        },
        "software": software(),
        "levels": [level.as_json() for level in levels],
    }


def command(options: BenchOptions) -> str:
    """The command line that asks for the same, its own texts and headers' values left out."""
    levels = ",".join(f"{level:g}" for level in options.levels)
    words = [
        *("speech-bench", "--url", options.shown_url, "--api", options.api, "--mode", options.mode),
        *(_LEVELS_OPTION[options.mode], levels),
        *("--duration-s", f"{options.duration_s:g}", "--warmup-s", f"{options.warmup_s:g}"),
        *("--seed", str(options.seed), "--processes", str(options.client_processes)),
        *("--format", options.format, "--timeout-s", f"{options.timeout_s:g}"),
        *("--lag-limit-ms", f"{options.lag_limit_ms:g}"),
    ]
    if options.mode != "closed":
        words += ["--arrivals", options.arrivals]
    for name in ("voice", "model", "max_in_flight"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    if options.fresh_connections:
        words.append("--fresh-connections")
    if options.cancel_share:
        words += ["--cancel-share", f"{options.cancel_share:g}"]
    for name, _ in options.headers:
        words += ["--header", f"{name}: ..."]  # It may be a secret.
    return shlex.join(words)


def software() -> dict[str, Any]:
    """Versions of what measures, the machine that it ran on, and the commit."""
    return {
        **installed_software(),
        "platform": platform.platform(),
        "cpu": cpu_device(),
        "git": git_state(),
    }
