"""Whether a level passes: every condition, and each one that failed in words."""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING, Any

from server.frames import SAMPLES_PER_FRAME
from speech_assets.bench.figures import ended_within, in_flight_at
from speech_assets.bench.percentile import nearest_rank
from speech_assets.bench.rows import failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.bench.options import Mode

TOLERANCE = 0.02  # Of offered requests that may be missing from those that ended in the window.
REALTIME_RTF = 1.0
# What the client itself needs between two requests is in this, and no stream of a small load.
_MISSING_STREAMS, _MISSING_SHARE = 0.5, 0.1


def failures(
    rows: Sequence[Mapping[str, Any]],
    mode: Mode,
    offered: int,
    warmup_s: float,
    window_s: float,
    *,
    was_restarted: bool,
) -> list[str]:
    """The conditions that a level does not meet; empty when it passes.

    All that was offered has started, none was dropped; all is complete and audible, as long as the
    server says, and nothing from before the window failed within it or later; no underrun; in a
    closed loop RTF p95 below 1, in an open one as much ends as begins; the server is still the
    same process.
    """
    measured = [row for row in rows if not row["warmup"]]
    outcomes = collections.Counter(row["outcome"] for row in measured)
    found: list[str] = []
    started = len(measured) - outcomes["dropped"]
    if not measured:
        found.append("no request was measured")
    if started < offered:
        found.append(f"{offered - started} of {offered} requests were never sent")
    for outcome, count in sorted(outcomes.items()):
        if failed(outcome):
            words = next(row["error"] for row in measured if row["outcome"] == outcome)
            found.append(f"{count} of {len(measured)} requests: {outcome} ({words or 'no words'})")
    found += _hung(rows, warmup_s)
    found += [*_inconsistent(measured), *_underruns(measured)]
    if mode == "closed":
        found += _too_slow(measured)
    else:
        found += _behind(rows, offered - outcomes["dropped"], warmup_s, window_s)
    if was_restarted:
        found.append("the server was restarted since the level began, or does not answer any more")
    return found


def missing_streams(in_flight_mean: float, streams: int) -> list[str]:
    """Whether a closed loop had clearly less in flight than it says, for whatever reason."""
    if streams - in_flight_mean <= max(_MISSING_STREAMS, _MISSING_SHARE * streams):
        return []
    return [f"only {in_flight_mean:.2f} of {streams} streams were in flight on average"]


def _hung(rows: Sequence[Mapping[str, Any]], warmup_s: float) -> list[str]:
    """Requests that began before the window, and took a place in it until they failed."""
    late = [
        row
        for row in rows
        if row["warmup"]
        and failed(row["outcome"])
        and row["ended_s"] is not None
        and row["ended_s"] >= warmup_s
    ]
    counts = collections.Counter(row["outcome"] for row in late)
    return [
        f"{count} requests from before the window failed in it or later: {outcome} "
        f"({next(row['error'] for row in late if row['outcome'] == outcome)})"
        for outcome, count in sorted(counts.items())
    ]


def _inconsistent(measured: Sequence[Mapping[str, Any]]) -> list[str]:
    wrong = sum(
        row["reported_frames"] is not None
        and row["outcome"] == "ok"
        and (
            row["samples"] != row["reported_samples"]
            or row["samples"] + row["reported_trimmed_samples"]
            != SAMPLES_PER_FRAME * row["reported_frames"]
        )
        for row in measured
    )
    if not wrong:
        return []
    return [f"{wrong} requests: samples and reported trims are not {SAMPLES_PER_FRAME:,} a frame"]


def _underruns(measured: Sequence[Mapping[str, Any]]) -> list[str]:
    late = [row for row in measured if row["underruns"]]
    if not late:
        return []
    events = sum(row["underruns"] for row in late)
    worst_ms = max(row["worst_underrun_ms"] for row in late)
    return [
        f"{events} underruns in {len(late)} of {len(measured)} requests, worst {worst_ms:.1f} ms"
    ]


def _too_slow(measured: Sequence[Mapping[str, Any]]) -> list[str]:
    rtfs = [row["rtf"] for row in measured if row["outcome"] == "ok" and row["rtf"] is not None]
    # Of few requests this is the largest: the stricter reading.
    if not rtfs or (p95 := nearest_rank(rtfs, 95)) < REALTIME_RTF:
        return []
    return [f"RTF p95 {p95:.3f} of {len(rtfs)} requests is not below {REALTIME_RTF:g}"]


def _behind(
    rows: Sequence[Mapping[str, Any]], due: int, warmup_s: float, window_s: float
) -> list[str]:
    """Whether fewer requests ended in the window, cancelled ones among them, than were due in it.

    By 2 %, or by what chance does to the number in flight: three times the square root of it.
    """
    ended = ended_within(rows, warmup_s, window_s)
    in_flight = in_flight_at(rows, warmup_s)
    allowed = max(TOLERANCE * due, 3 * math.sqrt(max(in_flight, 1)))
    if due - ended <= allowed:
        return []
    return [
        f"{due} requests were due in the window and {ended} ended in it: "
        "the server falls behind (or the warm-up is shorter than a request)"
    ]
