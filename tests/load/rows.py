"""Rows of levels by hand, as a load test has them."""

from __future__ import annotations

from typing import Any

from speech_assets.load.levels import LevelRow


def level_row(level: float, *, is_passed: bool = True, **changed: Any) -> LevelRow:
    """A level of the generating load, by default one that passed."""
    figures = {
        "ttfa_ms_p50": {"value": 100.0 * level, "unit": "ms", "n": 50},
        "rtf_p50": {"value": 0.4 * level, "unit": "", "n": 50},
        "rtf_p95": {"value": 0.45 * level, "unit": "", "n": 50},
        "requests_with_underrun": {"value": 0 if is_passed else 10, "unit": "requests", "n": 50},
    }
    given: dict[str, Any] = {
        "load": "generating",
        "level": level,
        "seed": 1,
        "passed": is_passed,
        "failures": () if is_passed else ("3 underruns in 2 of 50 requests",),
        "offered": 50,
        "started": 50,
        "completed": 50,
        "failed": 0,
        "dropped": 0,
        "window_s": 60.0,
        "client_valid": True,
        "figures": figures,
        **changed,
    }
    return LevelRow(**given)
