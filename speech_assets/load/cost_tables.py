"""The table of what streams cost, for docs/SCALING.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.results.markdown import NONE_YET, number, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MISSING = "-"
_OF_STEPS = (
    "A step is timed as the engine's thread waits for it; *beside it* is what that thread does in "
    "a round meanwhile (decodes are started, guards, audio on its way), *between rounds* come new "
    "prompts and the hand-over of audio. On a GPU a window of each level is traced: how long "
    "kernels of the language model and of the codec ran for each step, and how long none."
)
_COLUMNS = {
    "step_ms_p50": "step p50, ms",
    "beside_ms_mean": "beside it, ms",
    "between_ms_mean": "between rounds, ms",
    "interval_ms_mean": "step to step, ms",
    "lm_ms": "model's kernels, ms",
    "codec_ms": "codec's kernels, ms",
    "idle_ms": "no kernel, ms",
    "rtf": "RTF",
    "late_chunks": "late chunks",
    "ttfa_ms_p50": "TTFA p50, ms",
    "ttfs_ms_p50": "TTFS p50, ms",
    "host_memory_mib": "host memory, MiB",
    "device_memory_gib": "device memory, GiB",
}


def cost_curve_table(results: Sequence[Mapping[str, Any]]) -> str:
    """A table of each result of kind `cost_curve`, a line a level; what columns mean, below all."""
    parts: list[str] = []
    for result in results:
        heads = ("streams", *_COLUMNS.values(), "cores: engine's thread", "event loop", "others")
        lines = [
            (
                str(row["streams"]),
                *(_cell(row.get(name)) for name in _COLUMNS),
                *(_cell(row["thread_cores"][name]) for name in ("engine", "event_loop", "others")),
            )
            for row in result["rows"]
        ]
        reduced = " (reduced)" if result["reduced"] else ""
        weights = result["config"]["weights"]
        parts.append(
            f"{result['name']}{reduced}, {weights} weights, on {result['device']['name']}, "
            f"{result['started_at'][:10]}:\n\n{table(heads, lines)}"
        )
    return "\n\n".join([*parts, _OF_STEPS]) if parts else NONE_YET


def _cell(value: float | None) -> str:
    return _MISSING if value is None else number(value)
