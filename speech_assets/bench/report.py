"""The table that a run ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speech_assets.bench.level import LevelSummary
    from speech_assets.bench.run import BenchRun

_COLUMNS = (
    ("TTFA p50", "ttfa_ms_p50", ".0f"),
    ("p95", "ttfa_ms_p95", ".0f"),
    ("TTFS p50", "ttfs_ms_p50", ".0f"),
    ("p95", "ttfs_ms_p95", ".0f"),
    ("RTF p50", "rtf_p50", ".3f"),
    ("p95", "rtf_p95", ".3f"),
    ("underruns", "underruns", ".0f"),
    ("audio s/s", "audio_s_per_s", ".2f"),
)


def report(run: BenchRun) -> str:
    """A table of the levels in plain text (times in ms), then what each level failed by."""
    heads = [run.summary["mode"], "passed", "ok", "failed", *(name for name, _, _ in _COLUMNS)]
    cells = [heads, *(_cells(level) for level in run.levels)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
    lines += [
        f"level {level.level:g}: {failure}" for level in run.levels for failure in level.failures
    ]
    if run.interrupted:
        lines.append("interrupted: these are the requests that had ended")
    return "\n".join(lines)


def _cells(level: LevelSummary) -> list[str]:
    return [
        f"{level.level:g}",
        "yes" if level.passed else "no",
        str(level.completed),
        str(level.failed),
        *(
            format(level.figures[name].value, form) if name in level.figures else "-"
            for _, name, form in _COLUMNS
        ),
    ]
