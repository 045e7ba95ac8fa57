"""Tables of published load tests and ladders, for README and docs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.load.server_figures import busy_name
from speech_assets.results.markdown import NONE_YET, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MISSING = "-"


def load_tests_table(results: Sequence[Mapping[str, Any]]) -> str:
    """The largest level that each preset holds on each device, and how it sounds there."""
    heads = (
        "preset", "device", "streams, generating", "one level less", "streams, listening",
        "one level less", "generating, lowest level: TTFA p50, ms",
        "generating, largest level that passed: TTFA p50, ms", "its TTFS p95, ms", "its RTF p95",
        "its audio, s/s", "its engine thread busy", "s a level", "date",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in results:
        figures, config = result["figures"], result["config"]
        unbounded = config.get("no_level_failed", ())
        rows.append(
            (
                result["name"] + _caveats(result),
                result["device"]["name"],
                *_streams(figures, "generating", unbounded),
                *_streams(figures, "listening", unbounded),
                _number(figures, "first_level_ttfa_ms_p50"),
                _number(figures, "ttfa_ms_p50"),
                _number(figures, "ttfs_ms_p95"),
                _number(figures, "rtf_p95"),
                _number(figures, "audio_s_per_s"),
                _share(figures, busy_name(figures)),
                f"{config['sweep']['duration_s']:g}",
                result["started_at"][:10],
            )
        )
    return table(heads, rows)


def ladder_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Every step of every ladder: its outcome, and why."""
    heads = (
        "step", "switch", "outcome", "streams, generating", "TTFA p50, ms", "TTFS p50, ms",
        "RTF p50", "why",
    )  # fmt: skip
    parts: list[str] = []
    for result in results:
        rows = [
            (
                step["name"],
                _changed(step),
                step["outcome"],
                _cell(step["max_realtime_streams"]),
                _cell(step["ttfa_ms_p50"]),
                _cell(step["ttfs_ms_p50"]),
                _cell(step["rtf_p50"]),
                step["why"] if step["switch"] else "",
            )
            for step in result["rows"]
        ]
        sweep = result["config"]["sweep"]
        title = (
            f"{result['name']}{_caveats(result)}, from preset {result['config']['preset']['name']}"
            f" on {result['device']['name']}, {result['started_at'][:10]}; "
            f"{sweep['duration_s']:g} s a level, {len(result['seeds'])} seed(s):"
        )
        parts.append(f"{title}\n\n{table(heads, rows)}")
    return "\n\n".join(parts) if parts else NONE_YET


def levels_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every level of one load test: a row of the rows that a result holds."""
    heads = (
        "load", "level", "seed", "passed", "TTFA p50, ms", "TTFS p50, ms", "RTF p50", "RTF p95",
        "completed", "failed", "with underrun", "why not",
    )  # fmt: skip
    cells = [
        (
            str(row["load"]),
            f"{row['level']:g}",
            str(row["seed"]),
            "yes" if row["passed"] else "no",
            *(
                _number(row["figures"], name)
                for name in ("ttfa_ms_p50", "ttfs_ms_p50", "rtf_p50", "rtf_p95")
            ),
            str(row["completed"]),
            str(row["failed"]),
            _number(row["figures"], "requests_with_underrun"),
            "; ".join(row["failures"]),
        )
        for row in rows
    ]
    return table(heads, cells)


def _streams(figures: Mapping[str, Any], load: str, unbounded: Sequence[str]) -> tuple[str, str]:
    name = f"max_realtime_streams_{load}"
    if name not in figures:
        return _MISSING, _MISSING
    at_least = "at least " if load in unbounded else ""
    return (
        f"{at_least}{figures[name]['value']:g}",
        f"{figures[f'{name}_with_margin']['value']:g}",
    )


def _caveats(result: Mapping[str, Any]) -> str:
    """What a reader must know before the figures: a short run, or a client that was late."""
    caveats = ["reduced"] * bool(result["reduced"])
    caveats += ["client late"] * bool(result["config"].get("client_faults"))
    return f" ({', '.join(caveats)})" if caveats else ""


def _number(figures: Mapping[str, Any], name: str) -> str:
    return _cell(figures[name]["value"]) if name in figures else _MISSING


def _share(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures[name]['value']:.0%}" if name in figures else _MISSING


def _cell(value: float | None) -> str:
    if value is None:
        return _MISSING
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _changed(step: Mapping[str, Any]) -> str:
    """The switch and its value, and what the table's author says of it."""
    changed = {step["switch"]: step["value"]} if step["switch"] else step.get("settings", {})
    switches = [f"`{name}` = {_shown(value)}" for name, value in changed.items()]
    return "; ".join(filter(None, (", ".join(switches), step["note"])))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
