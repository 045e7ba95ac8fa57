"""Results of earlier and later runs by hand, as the measuring commands write them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from load.rows import level_row

from speech_assets.load.summary import load_figures
from speech_assets.quality.clip_scores import ClipScore
from speech_assets.quality.figures import wer_figures
from speech_assets.results.result import Figure, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resources.store import Store
    from speech_assets.load.levels import LevelRow

DEVICE = {"name": "A CPU 9000", "cores": 2}
SWEEP = {"levels": [1.0, 2.0, 4.0], "duration_s": 60.0}
PRESET = "embedded-bf16"


def load_run(day: int, rows: Sequence[LevelRow], **changed: Any) -> dict[str, Any]:
    """A load test of the day of a month."""
    config = {"client_faults": [], "client_shares_cores": True, "sweep": SWEEP}
    return _run("load_tests", day, config, [asdict(r) for r in rows], load_figures(rows), changed)


def rows_of(ttfa_ms: float, *, n: int = 50, streams: float = 2) -> list[LevelRow]:
    """Levels 1, 2 and 4 of the generating load, of which those up to `streams` passed; TTFA p50
    and p95 are as given at level 1, twice that at level 2, and so on."""
    rows = [level_row(level, is_passed=level <= streams) for level in (1.0, 2.0, 4.0)]
    return [
        replace(
            row,
            figures={
                **row.figures,
                "ttfa_ms_p50": {"value": ttfa_ms * row.level, "unit": "ms", "n": n},
                "ttfa_ms_p95": {"value": ttfa_ms * row.level, "unit": "ms", "n": n},
            },
        )
        for row in rows
    ]


def speed_run(day: int, tokens_per_s: float, **changed: Any) -> dict[str, Any]:
    """A decode speed of the day of a month."""
    others = (
        *("ms_per_token_p50", "rtf", "bytes_per_step", "floor_share", "start_s"),
        *("peak_memory_gib", "weights_gib"),
    )
    figures = {name: Figure(1.0, "") for name in others}
    figures["tokens_per_s"] = Figure(tokens_per_s, "tokens/s", 100)
    config = {
        "preset": PRESET,
        "scheme": "bf16",
        "weights": "real",
        "shape": "",
        "engine": {"head": "audio"},
        "measurement": {"streams": 1},
    }
    return _run("decode_speed", day, config, [{}], figures, changed)


def wer_run(day: int, errors: Sequence[int], **changed: Any) -> dict[str, Any]:
    """A WER of sentences of ten words each, of which so many were misheard."""
    clips = [
        ClipScore(
            sentence_id=number,
            kind="plain",
            seed=1,
            text=f"sentence {number}",
            transcript="",
            words=10,
            word_errors=wrong,
            format_insensitive_words=10,
            format_insensitive_word_errors=wrong,
            characters=50,
            character_errors=wrong,
            seconds=3.0,
            finish_reason="stop",
            spoke=True,
            leading_silence_s=0.1,
            flags=(),
        )
        for number, wrong in enumerate(errors)
    ]
    config = {"base": PRESET, "asr": "whisper tiny.en", "code_version": "1"}
    rows = [clip.as_row() for clip in clips]
    return _run("wer", day, config, rows, wer_figures(clips), changed)


def keep(store: Store, *values: dict[str, Any]) -> None:
    """Write results where their commands would."""
    for value in values:
        names = ("kind", "name", "started_at", "device", "command", "config", "rows", "status")
        figures = {name: Figure(**figure) for name, figure in value["figures"].items()}
        result = Result(
            **{name: value[name] for name in (*names, "reduced", "software", "git")},
            figures=figures,
        )
        store.write_json(result.key, result.as_json())


def _run(
    kind: str,
    day: int,
    config: dict[str, Any],
    rows: list[dict[str, Any]],
    figures: dict[str, Figure],
    changed: dict[str, Any],
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "name": PRESET,
        "started_at": f"2026-11-{day:02}T10:00:00Z",
        "device": DEVICE,
        "command": f"python -m speech_assets.work.{kind}",
        "software": {"torch": "2.13.0"},
        "git": {"commit": "a" * 40, "dirty": False},
        **changed,
    }
    given["config"] = {**config, **changed.get("config", {})}
    return Result(kind=kind, rows=rows, figures=figures, **given).as_json()
