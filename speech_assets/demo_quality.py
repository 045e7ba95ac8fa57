"""The demo's last part: presets speak and are judged, carry load, are compared; then the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.ab.verdict import verdicts
from speech_assets.load.levels import level_line, row_from
from speech_assets.quality.noise import judged
from speech_assets.results.stored import newest
from speech_assets.step import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from resources.store import Store

REPORT_KEY = "report/index.html"
# One of each kind at least, once: enough to hear what is said, too few to tell small differences.
SHORT_SET = {"sentences": 10, "seeds": "1"}
# Too short to say what a server holds: both levels are shown, however they end, and a busy machine
# is forgiven.
SHORT_LOAD = {
    "levels": "1,2",
    "loads": "generating",
    "duration_s": 10.0,
    "warmup_s": 3.0,
    "until_failure": False,
    "allow_client_limit": True,
}


def quality_steps(presets: Sequence[str]) -> list[Step]:
    """Each preset speaks and is judged; the first is put under load, the second beside the first;
    the report. A profile without presets has none of it."""
    if not presets:
        return []
    steps = [
        Step(
            "judge_samples",
            f"a server of {name} speaks, and Whisper listens",
            name,
            {"ops": {"samples": {"config": SHORT_SET}}},
            is_served=True,
        )
        for name in presets
    ]
    steps += [
        Step(
            "load_test",
            f"a server of {name} under load, two short levels",
            name,
            {"ops": {"load_tests": {"config": SHORT_LOAD}}},
            is_served=True,
        )
        for name in presets[:1]
    ]
    steps += [
        Step(
            "compare_presets",
            f"{name} beside {presets[0]}, seed by seed",
            name,
            {"ops": {"ab": {"config": SHORT_SET}}},
            is_served=True,
        )
        for name in presets[1:2]
    ]
    return [*steps, Step("write_report", "the report")]


def load_lines(store: Store, presets: Sequence[str]) -> list[str]:
    """The newest load test of each preset: a line per level, and what was not a full test of it."""
    lines: list[str] = []
    for name in presets:
        made = newest(store, "load_tests", name)
        if made is None:
            continue
        late = "; the client was late" if made["config"]["client_faults"] else ""
        levels = [row_from(row) for row in made["rows"]]
        lines += [
            f"Load on preset {name}, {made['config']['sweep']['duration_s']:g} s a level, server "
            f"and client on the same cores{late}:",
            *(f"  {level_line(level)}" for level in levels),
        ]
    return lines


def quality_lines(store: Store, presets: Sequence[str]) -> list[str]:
    """The newest WER of each preset, and what its newest comparison found."""
    lines: list[str] = []
    for name in presets:
        made = newest(store, "wer", name)
        if made is None:
            continue
        clips = len(made["rows"])
        lines.append(f"  {name}: {_wer(made)} of {clips} clips; {judged(made).detail}")
    heard = ["Heard by Whisper, words wrong (4.30 for 4:30 is none):", *lines] if lines else []
    compared = [
        line
        for name in presets[1:]
        for made in [_comparison(store, presets[0], name)]
        if made is not None
        for line in [
            f"{made['name']}, B less A:",
            *(f"  {verdict.sentence}" for verdict in verdicts(made)),
        ]
    ]
    return [*heard, *compared]


def _wer(made: Mapping[str, Any]) -> str:
    found = made["figures"]["wer_format_insensitive"]
    low, high = found.get("ci_low"), found.get("ci_high")
    between = "" if low is None or high is None else f" ({low:.0%} to {high:.0%})"
    return f"{found['value']:.0%}{between}"


def _comparison(store: Store, first: str, name: str) -> dict[str, Any] | None:
    return newest(store, "ab", f"{first} vs {name}")
