"""What to make of a comparison: what its verdicts mean, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.ab.verdict import verdicts
from speech_assets.ab.waiting import time_faults
from speech_assets.quality.noise import DECIDING
from speech_assets.quality.resampling import MIN_SENTENCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.ab.verdict import Verdict

MEANING = (
    "Better and worse mean that the 95 % interval of B less A leaves out zero; no difference "
    "beyond noise is no proof that there is none."
)


def advice(value: Mapping[str, Any]) -> list[str]:
    """Sentences about the result, in the order in which a reader needs them."""
    found, figures = verdicts(value), value["figures"]
    said = [MEANING]
    if faults := time_faults(figures):
        said.append(
            f"The times do not count: {'; '.join(faults)}. Words, audio and voices do. Run it "
            "again while nothing else runs on the machine."
        )
    if value["config"]["same_configuration"]:
        said.append(
            "Both arms are one configuration: what is said to be better or worse here is noise. "
            "Believe no smaller difference of other arms on this machine."
        )
    elif any(verdict.outcome == "too few sentences" for verdict in found):
        said.append(
            f"It takes {MIN_SENTENCES} sentences or more to tell; give more (`--sentences`, in the "
            "asset's config `sentences`)."
        )
    else:
        said += _decision(found)
    smallest = figures.get(f"smallest_detectable_{DECIDING}_less_a")
    if smallest is not None:
        said.append(
            "A true difference of format-insensitive WER must be "
            f"{100 * smallest['value']:.1f} points for such a set to find it four times in five: "
            "more sentences and seeds find less."
        )
    if value["reduced"]:
        said.append("It is a reduced run: decide by one of all sentences and two seeds.")
    return said


def _decision(found: Sequence[Verdict]) -> list[str]:
    worse = _titles(found, "worse", "less")
    better = _titles(found, "better")
    if worse:
        gain = f" It is better in {better}: whether that is worth it, weigh." if better else ""
        return [
            f"B is worse in {worse}.{gain} Listen to both arms' WAVs, and compare A with itself "
            "once (an A/A) before you blame B: about ten figures are looked at, and one may differ "
            "by chance."
        ]
    if better:
        return [
            f"B is better in {better} and worse in nothing that was looked at. Compare A with "
            "itself once (an A/A), then load-test B: one clip at a time is no load."
        ]
    return ["Nothing differs beyond noise: take B only for what is not measured here."]


def _titles(found: Sequence[Verdict], *outcomes: str) -> str:
    # Of a duration more is no better and less no worse.
    return ", ".join(
        verdict.title
        for verdict in found
        if verdict.outcome in outcomes and verdict.name != "duration_s"
    )
