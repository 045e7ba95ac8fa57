"""What a comparison's figures say of arm B, each in a word and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from speech_assets.ab.figures import MEASURES, Measure
from speech_assets.ab.waiting import time_faults
from speech_assets.quality.resampling import MIN_SENTENCES

Outcome = Literal[
    "better", "worse", "more", "less", "no difference beyond noise", "too few sentences",
    "does not count",
]  # fmt: skip
_NOTED = {"better", "worse", "more", "less"}
VOICE = "speaker_similarity"


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
    is_busy = bool(time_faults(figures))
    return [
        _verdict(measure, figures, counts=not (measure.is_time and is_busy))
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


def summary(value: Mapping[str, Any]) -> str:
    """Verdicts that say something, in a few words: what B is beside A."""
    found = verdicts(value)
    outcomes = {verdict.outcome for verdict in found}
    words = [f"{v.outcome}: {v.title}" for v in found if v.outcome in _NOTED]
    if not words:
        is_few = "too few sentences" in outcomes
        words = ["too few sentences" if is_few else "no different beyond noise"]
    words += ["its times do not count, the machine was busy"] * ("does not count" in outcomes)
    return "; ".join(["the same configuration"] * value["config"]["same_configuration"] + words)


def _verdict(
    measure: Measure, figures: Mapping[str, Mapping[str, Any]], *, counts: bool
) -> Verdict:
    a, b, found = (figures[f"{measure.name}_{which}"] for which in ("a", "b", "difference"))
    outcome = outcome_of(found, less_is_better=measure.less_is_better)
    if not counts:
        outcome = "does not count"
    if measure.name == VOICE:
        return _voice_verdict(measure, a["value"], b["value"], outcome)
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
        "does not count": "does not count, for the server waited for cores",
        "too few sentences": (
            f"{found.get('sentences', 0)} sentences are too few to tell (at least {MIN_SENTENCES})"
        ),
    }.get(outcome, outcome)
    return Verdict(measure.name, measure.title, outcome, f"{measure.title}: {said}: {numbers}.")


def _voice_verdict(measure: Measure, own: float, to_a: float, outcome: Outcome) -> Verdict:
    """Of the voice: A's figure is of two clips of A, B's of the same clip in both arms. So more is
    no gain, and less says that B's voice is another."""
    if outcome == "more":
        outcome = "no difference beyond noise"
    said = {
        "less": "B's voice is further from A's than two clips of A are from each other",
        "too few sentences": f"too few sentences to tell (at least {MIN_SENTENCES})",
    }.get(outcome, "B's voice is no further from A's than two clips of A are from each other")
    numbers = f"the same clip in A and B {to_a:.3g} alike, two clips of A {own:.3g}"
    return Verdict(measure.name, measure.title, outcome, f"{measure.title}: {said}: {numbers}.")


def outcome_of(difference: Mapping[str, Any], *, less_is_better: bool | None) -> Outcome:
    """What B less A says: something only where its 95 % interval does not hold zero.

    A difference of exactly zero in all sentences, whose interval is zero, is none.
    """
    low, high = difference.get("ci_low"), difference.get("ci_high")
    if difference.get("sentences", 0) < MIN_SENTENCES or low is None or high is None:
        return "too few sentences"
    if low <= 0 <= high:
        return "no difference beyond noise"
    if less_is_better is None:
        return "more" if low > 0 else "less"
    return "better" if (high < 0) == less_is_better else "worse"


def _number(measure: Measure, value: float, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    if measure.unit == "share":
        return f"{value * 100:{sign}.2f}"
    return f"{value:{sign}.3g}" if abs(value) < 100 else f"{value:{sign}.0f}"


def _unit(measure: Measure) -> str:
    if measure.unit == "share":
        return "%"
    return "" if measure.unit == "ratio" else measure.unit
