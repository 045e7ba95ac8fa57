"""What a comparison's figures say of arm B, each in a word and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from speech_assets.ab.figures import MEASURES, Measure

Outcome = Literal[
    "better", "worse", "more", "less", "no difference beyond noise", "too few sentences"
]
MIN_SENTENCES = 6
"""With fewer, all of them may point one way by chance more often than the interval says: for 5
sentences in 2 of 2^5 cases (6 %), for 6 in 2 of 2^6 (3 %)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one figure: its measure's name and title, what B is beside A, and why."""

    name: str
    title: str
    outcome: Outcome
    sentence: str


def verdicts(value: Mapping[str, Any]) -> list[Verdict]:
    """A verdict of each figure of the result that has a difference, in the order of `MEASURES`."""
    figures = value["figures"]
    return [
        _verdict(measure, figures)
        for measure in MEASURES
        if f"{measure.name}_difference" in figures
    ]


def opening(value: Mapping[str, Any]) -> str:
    """What was compared, in a sentence or two."""
    config, figures = value["config"], value["figures"]
    clips, sentences = (int(figures[name]["value"]) for name in ("clips", "sentences"))
    said = (
        f"A is {config['a']['label']}, B is {config['b']['label']}: {clips} clips of {sentences} "
        f"sentences each, seeds {', '.join(map(str, value['seeds']))}."
    )
    if config["same_configuration"]:
        said += " Both arms are the same configuration: whatever differs is noise."
    return said


def _verdict(measure: Measure, figures: Mapping[str, Mapping[str, Any]]) -> Verdict:
    a, b, found = (figures[f"{measure.name}_{which}"] for which in ("a", "b", "difference"))
    outcome = outcome_of(found, less_is_better=measure.less_is_better)
    unit = _unit(measure)
    numbers = f"{_number(measure, a['value'])} in A, {_number(measure, b['value'])} in B"
    numbers += f", B less A {_number(measure, found['value'], signed=True)}"
    low, high = found.get("ci_low"), found.get("ci_high")
    if low is not None and high is not None:
        ends = (_number(measure, end, signed=True) for end in (low, high))
        numbers += f" [{', '.join(ends)}]"
    numbers += f" {unit}" if unit else ""
    said = {
        "better": "B is better",
        "worse": "B is worse",
        "more": "B has more",
        "less": "B has less",
        "too few sentences": (
            f"{found['n']} sentences are too few to tell (at least {MIN_SENTENCES})"
        ),
    }.get(outcome, outcome)
    return Verdict(measure.name, measure.title, outcome, f"{measure.title}: {said}: {numbers}.")


def outcome_of(difference: Mapping[str, Any], *, less_is_better: bool | None) -> Outcome:
    """What B less A says: something only where its 95 % interval does not hold zero.

    A difference of exactly zero in all sentences, whose interval is zero, is none.
    """
    low, high = difference.get("ci_low"), difference.get("ci_high")
    if difference["n"] < MIN_SENTENCES or low is None or high is None:
        return "too few sentences"
    if low <= 0 <= high:
        return "no difference beyond noise"
    if less_is_better is None:
        return "more" if low > 0 else "less"
    return "better" if (high < 0) == less_is_better else "worse"


def _number(measure: Measure, value: float, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    if measure.name.startswith("wer"):
        return f"{value * 100:{sign}.2f}"
    return f"{value:{sign}.3g}" if abs(value) < 100 else f"{value:{sign}.0f}"


def _unit(measure: Measure) -> str:
    if measure.name.startswith("wer"):
        return "%"
    return "" if measure.unit == "ratio" else measure.unit
