"""rows.parquet: one row a request, from which every figure can be recomputed."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speech_assets.bench.audio import decode
from speech_assets.bench.exchange import FINE
from speech_assets.bench.onset import (
    AUDIBLE_DBFS,
    BLOCK_S,
    SECOND_DBFS,
    SECOND_WINDOW_S,
    first_loud,
    first_sentence_end,
    is_audible,
    onset,
    second_onset,
)
from speech_assets.bench.player import play

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.bench.audio import Audio
    from speech_assets.bench.exchange import Exchange
    from speech_assets.bench.options import Format

_MS = (
    *("ttfb_ms", "ttfa_ms", "ttfs_ms", "ttfs_45_ms", "first_sentence_ms", "half_second_ms"),
    "total_ms",
)
SCHEMA = pa.schema(
    [
        ("level", pa.float64()),
        ("mode", pa.string()),
        ("request", pa.int64()),
        ("process", pa.int32()),
        ("text", pa.int32()),
        ("seed", pa.int64()),
        ("warmup", pa.bool_()),
        # Seconds from the level's start; a closed loop plans nothing.
        ("planned_s", pa.float64()),
        ("dispatched_s", pa.float64()),
        ("ended_s", pa.float64()),
        # From when it was due to its dispatch; from there to clock zero (connecting included).
        ("lag_ms", pa.float64()),
        ("sent_ms", pa.float64()),
        ("connect_ms", pa.float64()),
        ("status", pa.int32()),
        ("outcome", pa.string()),
        ("error", pa.string()),
        *((name, pa.float64()) for name in _MS),
        ("audio_s", pa.float64()),
        ("samples", pa.int64()),
        ("bytes", pa.int64()),
        ("rtf", pa.float64()),
        ("xrt", pa.float64()),
        ("underruns", pa.int32()),
        ("underruns_20_ms", pa.int32()),
        ("underruns_100_ms", pa.int32()),
        # Those after the first audible sample: the others prolong the silence before speech.
        ("underruns_in_speech", pa.int32()),
        ("underrun_ms", pa.float64()),
        ("worst_underrun_ms", pa.float64()),
        ("least_margin_ms", pa.float64()),
        ("leading_silence_ms", pa.float64()),
        ("longest_gap_ms", pa.float64()),
        ("finish_reason", pa.string()),
        ("cancel_ms", pa.float64()),
        ("reported_samples", pa.int64()),
        ("reported_frames", pa.int64()),
        ("reported_trimmed_samples", pa.int64()),
        ("chunk_at_ms", pa.list_(pa.float64())),
        ("chunk_samples", pa.list_(pa.int64())),
    ]
)
# Types of what is certainly no audio, `application/problem+json` and the like among them.
_NO_AUDIO = re.compile(r"(text|image|multipart|message)/|[^;]*(json|xml|javascript)\b")
HALF_SECOND_S = 0.5


def row(exchange: Exchange, kind: Format) -> dict[str, Any]:
    """The row of a request, without what only its level knows (level, mode, process, warmup).

    Its times of day are still those of the monotonic clock.
    """
    try:
        return _row(exchange, kind)
    # What a decoder makes of hostile bytes is one request's garbage, not the end of all rows.
    except Exception as error:
        exchange.failed("garbage", f"it cannot be decoded: {type(error).__name__}: {error}")
        received, exchange.arrivals = exchange.received, []
        return {**_row(exchange, kind), "bytes": received}


def _row(exchange: Exchange, kind: Format) -> dict[str, Any]:
    pieces = [data for _, data in exchange.arrivals]
    audio = decode(kind, pieces) if pieces else None
    _judge(exchange, audio)
    found: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    found |= {
        "request": exchange.request,
        "text": exchange.text,
        "seed": exchange.seed,
        "planned_s": exchange.planned_s,
        "dispatched_s": exchange.dispatched_s,
        "ended_s": exchange.ended_s,
        "connect_ms": exchange.connect_ms,
        "status": exchange.status,
        "outcome": exchange.outcome,
        "error": exchange.error,
        "bytes": sum(map(len, pieces)),
        "samples": len(audio.samples) if audio else 0,
        "audio_s": audio.seconds if audio else 0.0,
        "finish_reason": exchange.finish_reason,
        "reported_samples": exchange.reported_samples,
        "reported_frames": exchange.reported_frames,
        "reported_trimmed_samples": exchange.reported_trimmed,
        "chunk_at_ms": [],
        "chunk_samples": [],
    }
    if exchange.dispatched_s is not None:
        found["lag_ms"] = (exchange.dispatched_s - exchange.due_s) * 1e3
        if exchange.sent_s is not None:
            found["sent_ms"] = (exchange.sent_s - exchange.dispatched_s) * 1e3
    if exchange.sent_s is not None:
        if exchange.cancelled_s is not None:
            found["cancel_ms"] = (exchange.cancelled_s - exchange.sent_s) * 1e3
        if audio:
            at_ms = [(at_s - exchange.sent_s) * 1e3 for at_s, _ in exchange.arrivals]
            found |= _heard(audio, at_ms)
    return found


def _judge(exchange: Exchange, audio: Audio | None) -> None:
    """Look at what a request that went well on the wire has brought.

    What it brought says more than that its connection broke, too.
    """
    if exchange.outcome == "disconnected" and audio and audio.problem:
        outcome, error = audio.problem
        if outcome == "header_per_chunk":
            exchange.failed(outcome, f"{error}; then {exchange.error}")
        return
    if exchange.outcome != "ok":
        return
    if _NO_AUDIO.match(exchange.content_type.strip().lower()):
        exchange.failed(
            "garbage", f"the answer is {exchange.content_type}: {exchange.body[:200]!r}"
        )
    elif exchange.content_encoding.strip().lower() not in ("", "identity"):
        exchange.failed(
            "garbage",
            f"the audio is packed as {exchange.content_encoding}, which was not asked for",
        )
    elif audio is None:
        exchange.failed("silent", "the answer has no audio at all")
    elif audio.problem:
        exchange.failed(*audio.problem)
    elif not is_audible(audio.samples, audio.rate_hz):
        exchange.failed("silent", f"nothing can be heard in {audio.seconds:.2f} s of audio")


def _heard(audio: Audio, at_ms: Sequence[float]) -> dict[str, Any]:
    """What a listener has of it. `at_ms`: arrivals, from clock zero."""
    found: dict[str, Any] = {"ttfb_ms": at_ms[0], "total_ms": at_ms[-1]}
    gaps = [later - earlier for earlier, later in itertools.pairwise(at_ms)]
    found["longest_gap_ms"] = max(gaps, default=None)
    chunks = [(at, n) for at, n in zip(at_ms, audio.playable, strict=True) if n]
    if not chunks:
        return found
    times, counts = [at for at, _ in chunks], [n for _, n in chunks]
    playback = play(times, counts, audio.rate_hz)
    found |= {
        "ttfa_ms": times[0],
        "rtf": at_ms[-1] / 1e3 / audio.seconds,
        "underruns": playback.underruns_above(0),
        "underruns_20_ms": playback.underruns_above(20),
        "underruns_100_ms": playback.underruns_above(100),
        "underrun_ms": sum(playback.underruns_ms),
        "worst_underrun_ms": max(playback.underruns_ms, default=0.0),
        "least_margin_ms": playback.least_margin_ms,
        "half_second_ms": _arrived(chunks, round(HALF_SECOND_S * audio.rate_hz)),
        "chunk_at_ms": times,
        "chunk_samples": counts,
    }
    if times[-1] > times[0]:
        later_s = sum(counts[1:]) / audio.rate_hz
        found["xrt"] = later_s / ((times[-1] - times[0]) / 1e3)
    if (first := onset(audio.samples, audio.rate_hz)) is not None:
        block = round(audio.rate_hz * BLOCK_S)
        loud = first_loud(audio.samples, first, block, AUDIBLE_DBFS)
        found["ttfs_ms"] = playback.audible_ms(first, loud)
        found["underruns_in_speech"] = playback.underruns_after(first)
        found["leading_silence_ms"] = first / audio.rate_hz * 1e3
        end = first_sentence_end(audio.samples, audio.rate_hz)
        found["first_sentence_ms"] = _arrived(chunks, end)
    if (second := second_onset(audio.samples, audio.rate_hz)) is not None:
        window = round(audio.rate_hz * SECOND_WINDOW_S)
        loud = first_loud(audio.samples, second, window, SECOND_DBFS)
        found["ttfs_45_ms"] = playback.audible_ms(second, loud)
    return found


def _arrived(chunks: Sequence[tuple[float, int]], samples: int) -> float | None:
    """When the first `samples` samples were there, in ms."""
    there = 0
    for at_ms, count in chunks:
        there += count
        if there >= samples:
            return at_ms
    return None


def failed(outcome: str) -> bool:
    """Whether a request of this outcome counts as a failure."""
    return outcome not in FINE


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the schema."""
    return pa.Table.from_pylist(list(rows), SCHEMA)
