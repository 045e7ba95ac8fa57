"""Figures of one level, from its rows alone.

Percentiles are nearest-rank, of measured requests that ended `ok`; p95 only of 40 values or more,
p99 only of 200. Fewer say nothing of a tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.bench.exchange import FINE
from speech_assets.bench.percentile import nearest_rank
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

LEAST_FOR = {50: 1, 95: 40, 99: 200}
_PERCENTILES = {
    "ttfb_ms": (50, 95, 99),
    "ttfa_ms": (50, 95, 99),
    "ttfs_ms": (50, 95, 99),
    "ttfs_45_ms": (50,),
    "first_sentence_ms": (50,),
    "half_second_ms": (50,),
    "total_ms": (50,),
    "leading_silence_ms": (50,),
    "longest_gap_ms": (50,),
    "least_margin_ms": (50,),
    "rtf": (50, 95, 99),
    "xrt": (50,),
}
_UNDERRUNS = ("underruns", "underruns_20_ms", "underruns_100_ms", "underruns_in_speech")


def percentiles(
    name: str, values: Sequence[float], percents: Sequence[int], unit: str
) -> dict[str, Figure]:
    """`<name>_p<percent>` for each percent that there are enough values for."""
    return {
        f"{name}_p{percent}": Figure(nearest_rank(values, percent), unit, len(values))
        for percent in percents
        if len(values) >= LEAST_FOR[percent]
    }


def level_figures(
    rows: Sequence[Mapping[str, Any]], warmup_s: float, window_s: float
) -> tuple[dict[str, Figure], dict[str, int]]:
    """Figures of one level's rows, warm-up included; how many requests lack each column's value.

    The window is the `window_s` seconds after `warmup_s`, on the clock of the rows. What is counted
    by the second counts what arrived within it, of whichever request.
    """
    measured = [row for row in rows if not row["warmup"]]
    fine = [row for row in measured if row["outcome"] == "ok"]
    found: dict[str, Figure] = {}
    missing: dict[str, int] = {}
    for name, percents in _PERCENTILES.items():
        values = [row[name] for row in fine if row[name] is not None]
        missing[name] = len(measured) - len(values)
        found |= percentiles(name, values, percents, "ms" if name.endswith("_ms") else "")
    # What a user waits from the moment when he wanted it, however late the client was.
    if late := [
        row["lag_ms"] + row["sent_ms"] + row["ttfa_ms"]
        for row in fine
        if row["planned_s"] is not None
    ]:
        found |= percentiles("ttfa_from_deadline_ms", late, (50, 95, 99), "ms")
    connects = [row["connect_ms"] for row in measured if row["connect_ms"] is not None]
    found |= percentiles("connect_ms", connects, (50, 95), "ms")
    heard = [row for row in measured if row["underruns"] is not None]
    for column in _UNDERRUNS:
        counts = [row[column] or 0 for row in heard]
        found[column] = Figure(sum(counts), "", len(heard))
        name = column.replace("underruns", "requests_with_underrun")
        found[name] = Figure(sum(count > 0 for count in counts), "", len(heard))
    found["underrun_ms"] = Figure(sum(row["underrun_ms"] for row in heard), "ms", len(heard))
    if heard:
        worst = max(row["worst_underrun_ms"] for row in heard)
        found["worst_underrun_ms"] = Figure(worst, "ms", len(heard))
    if fine:
        mean_s = sum(row["audio_s"] for row in fine) / len(fine)
        found["audio_s_mean"] = Figure(mean_s, "s", len(fine))
    ended = ended_within(rows, warmup_s, window_s, ("ok",))
    found["requests_per_s"] = Figure(ended / window_s, "1/s", ended)
    in_flight = _in_flight_mean(rows, warmup_s, window_s)
    found["in_flight_mean"] = Figure(in_flight, "", len(rows))
    audio_s, requests = _audio_within(rows, warmup_s, window_s)
    found["audio_s_per_s"] = Figure(audio_s / window_s, "s/s", requests)
    return found, missing


def ended_within(
    rows: Sequence[Mapping[str, Any]],
    warmup_s: float,
    window_s: float,
    outcomes: Collection[str] = FINE,
) -> int:
    """Requests that ended in one of `outcomes` within the window, whenever they began."""
    ends_s = [_end_s(row) for row in rows if row["outcome"] in outcomes]
    return sum(end_s is not None and warmup_s <= end_s < warmup_s + window_s for end_s in ends_s)


def in_flight_at(rows: Sequence[Mapping[str, Any]], at_s: float) -> int:
    """Requests that had begun by then, ended well later, or were cancelled later."""
    return sum(
        row["outcome"] in FINE
        and (end_s := _end_s(row)) is not None
        and row["dispatched_s"] <= at_s < end_s
        for row in rows
    )


def _in_flight_mean(rows: Sequence[Mapping[str, Any]], warmup_s: float, window_s: float) -> float:
    """Requests in flight, averaged over the window."""
    busy_s = 0.0
    for row in rows:
        end_s = row["ended_s"] if row["ended_s"] is not None else _end_s(row)
        if end_s is not None:
            begin_s = row["dispatched_s"]
            busy_s += max(0.0, min(end_s, warmup_s + window_s) - max(begin_s, warmup_s))
    return busy_s / window_s


def _audio_within(
    rows: Sequence[Mapping[str, Any]], warmup_s: float, window_s: float
) -> tuple[float, int]:
    """Seconds of audio that arrived within the window, and of how many requests."""
    total_s = 0.0
    requests = 0
    for row in rows:
        if not row["samples"] or not row["chunk_samples"]:
            continue
        zero_s = _zero_s(row)
        arrived = sum(
            count
            for at_ms, count in zip(row["chunk_at_ms"], row["chunk_samples"], strict=True)
            if warmup_s <= zero_s + at_ms / 1e3 < warmup_s + window_s
        )
        total_s += arrived * row["audio_s"] / row["samples"]
        requests += arrived > 0
    return total_s, requests


def _end_s(row: Mapping[str, Any]) -> float | None:
    """When a request ended, from the level's start: its last byte, or its cancel."""
    after_ms = row["total_ms"] if row["cancel_ms"] is None else row["cancel_ms"]
    return None if after_ms is None else _zero_s(row) + after_ms / 1e3


def _zero_s(row: Mapping[str, Any]) -> float:
    """Clock zero of a request, from the level's start."""
    return row["dispatched_s"] + row["sent_ms"] / 1e3
