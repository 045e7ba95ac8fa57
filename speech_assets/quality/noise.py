"""Whether a preset is understood worse than the base preset, beyond what chance would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DECIDING = "wer_format_insensitive_less_base"
"""Not the plain WER's: a "4.30" heard for "4:30" is Whisper's spelling, no fault of the speech."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The judgement and what it rests on, in a sentence."""

    is_within: bool
    detail: str


def judged(result: Mapping[str, Any]) -> Noise:
    """What a result of kind `wer` says of its preset beside the base preset.

    Beyond noise is a difference whose whole 95 % interval is above 0. Where there is nothing to
    compare with, or one sentence only, it is not within noise: nothing shows that it is.
    """
    base, figures = result["config"]["base"], result["figures"]
    if base == result["name"]:
        return Noise(True, f"{base} is what the others are compared with")
    figure = figures.get(DECIDING)
    if figure is None:
        return Noise(
            False,
            f"nothing to compare with: materialize samples of {base}, then this again (both of the "
            "same sentences and seeds)",
        )
    low, high = figure.get("ci_low"), figure.get("ci_high")
    found = f"WER whatever the format, less {base}'s: {points(figure)} over {figure['n']} clips"
    if low is None or high is None:
        return Noise(False, f"{found}; one sentence tells nothing, ask for more")
    smallest = figures.get("smallest_detectable_wer_difference")
    beside = (
        f"; the set detects a difference of {100 * smallest['value']:.1f} points of WER"
        if smallest
        else ""
    )
    if low > 0:
        return Noise(False, f"{found}: worse beyond noise{beside}")
    word = "better beyond noise" if high < 0 else "within noise"
    return Noise(True, f"{found}: {word}{beside}")


def points(figure: Mapping[str, Any]) -> str:
    """A difference of shares in percentage points with its interval: "+1.8 points [-0.1, +4.3]"."""
    low, high = figure.get("ci_low"), figure.get("ci_high")
    between = "" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{100 * figure['value']:+.1f} points{between}"
