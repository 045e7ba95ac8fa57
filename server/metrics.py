"""What the server counts and times, in Prometheus' form.

One `Metrics` object belongs to one server: it has a registry of its own, so that two servers in one
process (tests, comparisons) do not add up. The engine's thread, the event loop and a scrape may use
it at the same time.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from server.frames import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTENT_TYPE = CONTENT_TYPE_LATEST

Transport = Literal["http", "sse", "websocket"]
# How a request ended: its finish reason, or why it never became speech.
Outcome = Literal[
    "stop",
    "length",
    "silence",
    "loop",
    "cancelled",
    "error",
    "refused",
    "overloaded",
    "stalled",
]

# Why a connection was closed before the application saw a request.
Refusal = Literal["too_many", "slow_headers", "large_headers"]

# Fine where a listener notices (tens of milliseconds to a second), coarse above.
_LATENCY_BUCKETS_S = (
    *(0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5),
    *(0.75, 1, 1.5, 2, 3, 5, 10, 20, 30),
)
# Nearly all find a place at once; those who do not wait for the end of somebody's utterance.
_WAIT_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60)
_STEP_BUCKETS_S = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.012, 0.015),
    *(0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1),
)
_RTF_BUCKETS = (
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    1,
    1.1,
    1.25,
    1.5,
    2,
    3,
    5,
    8,
)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 256)
_LAG_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1)


@dataclass(slots=True)
class PlaybackClock:
    """A player without a buffer: it starts with the first chunk and never waits on purpose.

    `sent` tells by how much a chunk came after the player had run dry; what a listener would hear
    as a gap. Times are those of a monotonic clock, in seconds.
    """

    dry_at_s: float | None = None

    def sent(self, samples: int, now_s: float) -> float:
        """Seconds of silence before these `samples`; 0.0 when they came in time."""
        if not samples:  # A header: nothing to play yet.
            return 0.0
        late_s = 0.0 if self.dry_at_s is None else max(0.0, now_s - self.dry_at_s)
        starts_s = now_s if self.dry_at_s is None or late_s else self.dry_at_s
        self.dry_at_s = starts_s + samples / SAMPLE_RATE_HZ
        return late_s


class Metrics:
    """The server's figures; the names are those that dashboards rely on."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, words: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(f"speech_{name}", words, buckets=buckets, registry=self.registry)

        def gauge(name: str, words: str) -> Gauge:
            return Gauge(f"speech_{name}", words, registry=self.registry)

        def counter(name: str, words: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"speech_{name}", words, labels, registry=self.registry)

        self.ttfa_seconds = histogram(
            "ttfa_seconds", "Request received to first audio byte", _LATENCY_BUCKETS_S
        )
        self.first_made_seconds = histogram(
            "first_made_seconds",
            "Request received to first byte of audio that the model made; seeded frames are not",
            _LATENCY_BUCKETS_S,
        )
        self.ttfs_seconds = histogram(
            "ttfs_seconds",
            "Request received to first audible sample in a player without buffer",
            _LATENCY_BUCKETS_S,
        )
        self.rtf = histogram("rtf", "Time to generate over duration of audio", _RTF_BUCKETS)
        self.engine_step_seconds = histogram(
            "engine_step_seconds", "One step of the engine", _STEP_BUCKETS_S
        )
        self.decode_batch_size = histogram(
            "decode_batch_size", "Rows in one call of the codec", _BATCH_BUCKETS
        )
        self.decode_seconds = histogram(
            "decode_seconds", "One call of the codec, from its start to its audio", _STEP_BUCKETS_S
        )
        self.event_loop_lag_seconds = histogram(
            "event_loop_lag_seconds", "Lateness of the event loop", _LAG_BUCKETS_S
        )
        self.queue_wait_seconds = histogram(
            "queue_wait_seconds", "Time that requests waited for a place", _WAIT_BUCKETS_S
        )
        self.active_streams = gauge("active_streams", "Streams that are being generated")
        self.queue_depth = gauge("queue_depth", "Requests that wait for a place")
        self.max_streams = gauge("max_streams", "Streams that may be generated at once")
        self.max_queue = gauge("max_queue", "Requests that may wait for a place")
        self.open_sockets = gauge("open_sockets", "WebSockets that are open")
        self.open_connections = gauge(
            "open_connections", "Connections of all kinds, those of WebSockets included"
        )
        self.state = Gauge(
            "speech_state",
            "1 for the state that the server is in",
            ["state"],
            registry=self.registry,
        )
        self.requests = counter(
            "requests", "Requests by transport and outcome", ("transport", "outcome")
        )
        self.connections_refused = counter(
            "connections_refused", "Connections closed before they had sent a request", ["reason"]
        )
        # From 0, so that the first of each is an increase.
        for transport, outcome in itertools.product(get_args(Transport), get_args(Outcome)):
            self.requests.labels(transport, outcome)
        for reason in get_args(Refusal):
            self.connections_refused.labels(reason)
        self.busy_seconds = counter(
            "busy_seconds", "Time in which the engine's thread stepped or decoded"
        )
        self.api_restarts = counter(
            "api_restarts", "API processes that ended by themselves and were started again"
        )
        # Memory, processor time and start of this process, as Prometheus' clients name them. Where
        # the engine is a process of its own, that is not in them.
        ProcessCollector(registry=self.registry)
        self.audio_samples = counter("audio_samples", "Samples handed to clients, at 24 kHz")
        self.misaligned_tokens = counter(
            "misaligned_tokens", "Tokens dropped because their slot was not due"
        )
        self.underruns = counter("underruns", "Chunks that came after a player had run dry")

    def ended(
        self,
        transport: Transport,
        outcome: Outcome,
        *,
        ttfa_ms: float | None = None,
        first_made_ms: float | None = None,
        ttfs_ms: float | None = None,
        rtf: float | None = None,
        misaligned_tokens: int = 0,
    ) -> None:
        """Count one request that has ended; figures that it never reached are None."""
        self.requests.labels(transport, outcome).inc()
        if ttfa_ms is not None:
            self.ttfa_seconds.observe(ttfa_ms / 1_000)
        if first_made_ms is not None:
            self.first_made_seconds.observe(first_made_ms / 1_000)
        if ttfs_ms is not None:
            self.ttfs_seconds.observe(ttfs_ms / 1_000)
        if rtf is not None:
            self.rtf.observe(rtf)
        if misaligned_tokens:
            self.misaligned_tokens.inc(misaligned_tokens)

    def now_in(self, state: str, states: Sequence[str]) -> None:
        """Say which of the `states` the server is in."""
        for each in states:
            self.state.labels(each).set(each == state)

    def sent(self, samples: int, late_s: float) -> None:
        """Count a chunk of audio that was handed to a socket, `late_s` after it was needed."""
        self.audio_samples.inc(samples)
        if late_s > 0:
            self.underruns.inc()

    def render(self) -> bytes:
        """The text that a scrape gets."""
        return generate_latest(self.registry)
