"""What a server's own /metrics say of a level: how busy it was, its steps, batches and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BUSY = "engine_thread_busy_share"
_BUSY_BEFORE = "device_busy_share"  # Its name until December 2026, in results that are published.
_MIB = 1 << 20


def server_figures(metrics: Mapping[str, float], window_s: float) -> dict[str, dict[str, Any]]:
    """Figures {value, unit, n} from what counters grew by over the window, and gauges at its end.

    `engine_thread_busy_share` is the share of the window in which the engine's thread stepped or
    decoded: on a CPU that is the device's work, on a GPU it is that or waiting for it. A round is a
    step with what the thread does beside it; `decode_ms_mean` is of a call, on a GPU to its
    hand-over. What the server does not export is not there.
    """
    figures: dict[str, dict[str, Any]] = {}

    def mean(name: str, histogram: str, unit: str, scale: float = 1.0) -> None:
        count = metrics.get(f"{histogram}_count", 0.0)
        if count > 0 and f"{histogram}_sum" in metrics:
            value = metrics[f"{histogram}_sum"] / count * scale
            figures[name] = {"value": value, "unit": unit, "n": int(count)}

    mean("engine_step_ms_mean", "speech_engine_step_seconds", "ms", 1e3)
    mean("decode_batch_rows_mean", "speech_decode_batch_size", "rows")
    mean("decode_ms_mean", "speech_decode_seconds", "ms", 1e3)
    steps = metrics.get("speech_engine_step_seconds_count", 0.0)
    if steps > 0 and "speech_busy_seconds_total" in metrics:
        round_ms = metrics["speech_busy_seconds_total"] / steps * 1e3
        figures["round_ms_mean"] = {"value": round_ms, "unit": "ms", "n": int(steps)}
    busy_s = metrics.get("speech_busy_seconds_total")
    if busy_s is not None and window_s > 0:
        figures[BUSY] = {
            "value": min(1.0, busy_s / window_s),
            "unit": "share",
            "n": 1,
        }
    memory = metrics.get("process_resident_memory_bytes")
    if memory is not None:
        figures["resident_memory_mib"] = {"value": memory / _MIB, "unit": "MiB", "n": 1}
    return figures


def busy_name(figures: Mapping[str, Any]) -> str:
    """The name that the busy share of the engine's thread has in `figures`, of any version."""
    return _BUSY_BEFORE if BUSY not in figures and _BUSY_BEFORE in figures else BUSY
