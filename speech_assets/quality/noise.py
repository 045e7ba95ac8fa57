"""Whether a preset is understood worse than the base preset, beyond what chance would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from speech_assets.quality.resampling import MIN_SENTENCES

DECIDING = "wer_format_insensitive"
"""Not the plain WER: a "4.30" heard for "4:30" is Whisper's spelling, no fault of the speech. The
smallest detectable difference is of it, too."""


Word = Literal["within noise", "better beyond noise", "worse beyond noise", "too few sentences"]


@dataclass(frozen=True, slots=True)
class Noise:
    """The judgement and what it rests on, in a sentence."""

    is_within: bool
    detail: str


def judged(result: Mapping[str, Any]) -> Noise:
    """What a result of kind `wer` says of its preset beside the base preset.

    Beyond noise is a difference whose whole 95 % interval is above 0. Where there is nothing to
    compare with, or less than `MIN_SENTENCES`, it is not within noise: nothing shows that it is.
    """
    base, figures = result["config"]["base"], result["figures"]
    if base == result["name"]:
        return Noise(True, f"{base} is what the others are compared with")
    figure = figures.get(f"{DECIDING}_less_base")
    if figure is None:
        return Noise(
            False,
            f"nothing to compare with: materialize samples of {base}, then this again (both of the "
            "same sentences and seeds)",
        )
    found = f"format-insensitive WER less {base}'s: {points(figure)} over {figure['n']} clips"
    word, sentences = word_of(figure), figure.get("sentences", 0)
    if word == "too few sentences":
        return Noise(
            False,
            f"{found}; too few to tell: {sentences} of at least {MIN_SENTENCES} sentences",
        )
    smallest = figures.get(f"smallest_detectable_{DECIDING}_less_base")
    beside = (
        f"; a true difference of {100 * smallest['value']:.1f} points is found four times in five"
        if smallest
        else ""
    )
    return Noise(word != "worse beyond noise", f"{found}: {word}{beside}")


def word_of(figure: Mapping[str, Any]) -> Word:
    """What a difference of error rates with its 95 % interval says."""
    low, high = figure.get("ci_low"), figure.get("ci_high")
    if figure.get("sentences", 0) < MIN_SENTENCES or low is None or high is None:
        return "too few sentences"
    if low > 0:
        return "worse beyond noise"
    return "better beyond noise" if high < 0 else "within noise"


def points(figure: Mapping[str, Any]) -> str:
    """A difference of shares in percentage points with its interval: "+1.8 points [-0.1, +4.3]"."""
    low, high = figure.get("ci_low"), figure.get("ci_high")
    between = "" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{100 * figure['value']:+.1f} points{between}"
