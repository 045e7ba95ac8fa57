"""What the planner is told and what it gives: settings, rows, and batches of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from server import frames
from server.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOPS = (4, 2, 1)  # frames; what a row may be, the cheapest a frame first


@dataclass(frozen=True, slots=True)
class PlannerConfig:
    """How to plan. A preset holds these.

    Attributes:
        form: as the decoder's; "window" rows always have two frames to their right.
        batched: False gives each row a call of its own.
        first_chunk_frames: 1 to 4, or None to choose by pace when a stream first could speak.
        largest_hop: 1, 2 or 4 frames.
        longest_wait_ms: how long a ready row may wait for company.
        fill_rows: ready rows that are company enough.
        steady_right: latents of right context. 8 leaves 1e-4 of the utterance.
        first_right: of the first chunk, and of later rows when slack is short. 7 leaves 4e-3.
        lead_in_right: of near-silence before speech (-75 dBFS of error with 2).
        batch_sizes: what the decoder has graphs for, ascending.
        tick_frames: most frames a tick decodes. A CPU decodes in the engine's thread: keep it low.
        ticks_in_flight: ticks whose samples may be outstanding.
        jitter_floor_ms: least allowance for jitter, of what a player has in hand.
        jitter_extra_ms: part of it for what is not measured here: sockets, the network.
        unpaced_in_batches: whether rows that nobody plays yet share calls. A CPU's convolutions
            round otherwise in a call of one row than of more.
    """

    form: Literal["cropped", "window"] = "cropped"
    batched: bool = True
    first_chunk_frames: int | None = None
    largest_hop: int = 4
    longest_wait_ms: float = 40.0
    fill_rows: int = 32
    steady_right: int = 8
    first_right: int = 7
    lead_in_right: int = 2
    jitter_floor_ms: float = 25.0
    jitter_extra_ms: float = 15.0
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
    tick_frames: int = 512
    ticks_in_flight: int = 2
    unpaced_in_batches: bool = True

    def __post_init__(self) -> None:
        """Raises ConfigurationError where a value cannot work."""
        limits = {
            "form": (self.form, self.form in ("cropped", "window"), "cropped or window"),
            "first_chunk_frames": (
                self.first_chunk_frames,
                self.first_chunk_frames in (None, 1, 2, 3, 4),
                "1 to 4, or none",
            ),
            "largest_hop": (self.largest_hop, self.largest_hop in HOPS, "1, 2 or 4"),
            "longest_wait_ms": (self.longest_wait_ms, self.longest_wait_ms >= 0, "0 or more"),
            "fill_rows": (self.fill_rows, self.fill_rows >= 1, "1 or more"),
            "steady_right": (
                self.steady_right,
                0 <= self.lead_in_right <= self.first_right <= self.steady_right,
                "at least first_right, which is at least lead_in_right, from 0",
            ),
            "batch_sizes": (
                self.batch_sizes,
                self.batch_sizes
                and self.batch_sizes[0] >= 1
                and list(self.batch_sizes) == sorted(set(self.batch_sizes)),
                "ascending sizes from 1",
            ),
            "tick_frames": (
                self.tick_frames,
                self.tick_frames >= self.largest_hop,
                f"{self.largest_hop} (largest_hop) or more",
            ),
            "jitter_floor_ms": (self.jitter_floor_ms, self.jitter_floor_ms >= 0, "0 or more"),
            "jitter_extra_ms": (self.jitter_extra_ms, self.jitter_extra_ms >= 0, "0 or more"),
            "ticks_in_flight": (self.ticks_in_flight, self.ticks_in_flight >= 1, "1 or more"),
        }
        for name, (value, valid, need) in limits.items():
            if not valid:
                raise ConfigurationError(f"{name} is {shown(value)}; set it to {need}")


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row to decode: latents `start` to `stop` of a stream, `end` known."""

    stream: str
    start: int
    latents: int
    end: int
    lead_in: bool  # Decoded to look for the onset, with little right context.
    epoch: int  # Of the stream's plan; `delivered` drops rows of an older one.
    is_rest: bool = False  # Its right context is cut short: the stream ends there.

    @property
    def stop(self) -> int:
        """The latent after its last."""
        return self.start + self.latents


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Rows of one hop for one call of the decoder."""

    hop: int  # frames
    size: int  # rows of the graph that fits
    rows: tuple[PlannedRow, ...]
    tick: int  # of the planner's; batches of one tick are in flight together
    planned_s: float


def hop_of(latents: int) -> int:
    """The smallest hop, in frames, that holds so many latents (1 to 16)."""
    return next(hop for hop in reversed(HOPS) if hop * frames.LATENTS_PER_FRAME >= latents)


def call_sizes(rows: int, sizes: Sequence[int], costs_ms: Mapping[int, float]) -> list[int]:
    """Sizes of the calls that together hold `rows` rows of one hop.

    Args:
        sizes: those that the decoder has, ascending.
        costs_ms: measured time by size, or empty. With them the last call is split in two where two
            smaller ones cost less.
    """
    calls = [sizes[-1]] * (rows // sizes[-1])
    rest = rows % sizes[-1]
    if not rest:
        return calls
    whole = next(size for size in sizes if size >= rest)
    below = [size for size in sizes if size < rest]
    if below and costs_ms:
        other = next(size for size in sizes if size >= rest - below[-1])
        if costs_ms[below[-1]] + costs_ms[other] < costs_ms[whole]:
            return [*calls, below[-1], other]
    return [*calls, whole]
