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
    """A table of the levels in plain text (times in ms), then what each level failed by.

    `n ok` is how many requests its figures are of.
    """
    heads = [run.summary["mode"], "passed", "n ok", "failed", *(name for name, _, _ in _COLUMNS)]
    cells = [heads, *(_cells(level, is_valid=run.valid) for level in run.levels)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
    lines += [
        f"level {level.level:g}: {failure}" for level in run.levels for failure in level.failures
    ]
    if not run.valid:
        lines.append("invalid: the client was the limit; these figures say nothing of the server")
    if run.interrupted:
        lines.append("interrupted: these are the requests that had ended")
    return "\n".join(lines)


def _cells(level: LevelSummary, *, is_valid: bool) -> list[str]:
    passed = "yes" if level.passed else "no"
    return [
        f"{level.level:g}",
        passed if is_valid else "invalid",
        str(level.completed),
        str(level.failed),
        *(
            format(level.figures[name].value, form) if name in level.figures else "-"
            for _, name, form in _COLUMNS
        ),
    ]
