"""Figures of scored clips: of all, beside those of another run, and what their set can tell.

Rates are over all words of all clips, so that a long sentence counts for more than a short one. A
clip in which nothing was heard has all its words wrong; one that was cut, by its length or for a
loop, those that are missing or were added. `n` is the clips that are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from speech_assets.quality.clip_scores import ClipScore
from speech_assets.quality.noise import DECIDING
from speech_assets.quality.resampling import (
    Counts,
    Estimate,
    counts_of,
    interval,
    paired_difference,
    smallest_detectable_difference,
)
from speech_assets.quality.same_speaker import Key
from speech_assets.results.result import Figure

Counted = Callable[[ClipScore], tuple[float, float] | None]
"""What a rate counts of a clip: the amount and what it is out of; None leaves the clip out."""
Taken = Mapping[Key, tuple[float, float]]
"""What it counts of each clip that it takes."""

RATES: dict[str, tuple[str, Counted]] = {
    "wer": ("share", lambda clip: (clip.word_errors, clip.words)),
    "wer_format_insensitive": (
        "share",
        lambda clip: (clip.format_insensitive_word_errors, clip.format_insensitive_words),
    ),
    "cer": ("share", lambda clip: (clip.character_errors, clip.characters)),
    "dnsmos_overall": ("MOS", lambda clip: _rating(clip.dnsmos_overall)),
    "dnsmos_signal": ("MOS", lambda clip: _rating(clip.dnsmos_signal)),
    "dnsmos_noise": ("MOS", lambda clip: _rating(clip.dnsmos_noise)),
    "speaker_similarity": ("cosine", lambda clip: _rating(clip.speaker_similarity)),
}
COMPARED = ("wer", "wer_format_insensitive", "cer", "dnsmos_overall", "speaker_similarity")
"""Rates of which a difference from other runs is given."""
HALF_WRONG = 0.5


def wer_figures(clips: Sequence[ClipScore]) -> dict[str, Figure]:
    """Figures of one preset's clips alone.

    `RATES` with intervals over sentences; how many clips there are, were not spoken (`spoke`), have
    faults of the signal; `share_above_half_wer`, clips more than half of whose words are wrong;
    `wer_seed_spread`, the highest WER of a seed less the lowest (where there are two seeds);
    `smallest_detectable_wer_format_insensitive_difference`, to plan with: from another preset, if
    all sentences change alike; `leading_silence_s_p50` over clips that can be heard, before what
    a server trims; `speaker_left_out_<why>`, clips without a similarity of speakers, where there
    are any.

    Raises:
        ValueError: there are no clips.
    """
    if not clips:
        raise ValueError("no clips to give figures of")
    figures: dict[str, Figure] = {}
    for name, (unit, counted) in RATES.items():
        if taken := _taken(clips, counted):
            figures[name] = _figure(interval(_counts(taken)), unit, len(taken))
    half_wrong = [clip.word_errors > HALF_WRONG * clip.words for clip in clips]
    figures |= {
        "clips": Figure(len(clips), "clips", len(clips)),
        "clips_not_spoken": Figure(sum(not clip.spoke for clip in clips), "clips", len(clips)),
        "flagged_clips": Figure(sum(bool(clip.flags) for clip in clips), "clips", len(clips)),
        "share_above_half_wer": Figure(round(float(np.mean(half_wrong)), 5), "share", len(clips)),
    }
    silences = [c.leading_silence_s for c in clips if c.leading_silence_s is not None]
    if silences:
        median_s = round(float(np.median(silences)), 4)
        figures["leading_silence_s_p50"] = Figure(median_s, "s", len(silences))
    left_out = Counter(clip.speaker_left_out for clip in clips if clip.speaker_left_out)
    for why, count in sorted(left_out.items()):
        figures[f"speaker_left_out_{why}"] = Figure(count, "clips", len(clips))
    of_seeds = _of_seeds(clips, "wer")
    if len(of_seeds) > 1:
        rates = [interval(counts).value for counts in of_seeds]
        figures["wer_seed_spread"] = Figure(
            round(max(rates) - min(rates), 5), "share", len(of_seeds)
        )
    of_seeds = _of_seeds(clips, DECIDING)
    smallest = smallest_detectable_difference(of_seeds) if _share_a_sentence(of_seeds) else None
    if smallest is not None:
        figures[f"smallest_detectable_{DECIDING}_difference"] = Figure(
            round(smallest, 5), "share", len(clips)
        )
    return figures


def difference_figures(
    ours: Sequence[ClipScore], theirs: Sequence[ClipScore], what: str
) -> dict[str, Figure]:
    """`COMPARED` of ours less theirs, named `<rate>_less_<what>`, over the clips that both have.

    The same sentence with the same seed is the same clip; a pair counts where both of it have what
    the rate counts, and n is those. `smallest_detectable_wer_format_insensitive_less_<what>` is
    that of the very difference. Empty when no clip is on both sides.
    """
    figures: dict[str, Figure] = {}
    for name in COMPARED:
        unit, counted = RATES[name]
        one, other = (_taken(side, counted) for side in (ours, theirs))
        shared = sorted(set(one) & set(other))
        if not shared:
            continue
        one, other = ({key: side[key] for key in shared} for side in (one, other))
        difference = paired_difference(_counts(one), _counts(other))
        figures[f"{name}_less_{what}"] = _figure(difference, unit, len(shared))
        smallest = difference.smallest_detectable
        if name == DECIDING and smallest is not None:
            figures[f"smallest_detectable_{name}_less_{what}"] = Figure(
                round(smallest, 5), unit, len(shared), sentences=difference.sentences
            )
    return figures


def yardstick_figures(base: Sequence[ClipScore]) -> dict[str, Figure]:
    """How alike the base preset's own clips are: `speaker_similarity_yardstick`, if it is known."""
    unit, counted = RATES["speaker_similarity"]
    own = _taken(base, counted)
    if not own:
        return {}
    return {"speaker_similarity_yardstick": _figure(interval(_counts(own)), unit, len(own))}


def _taken(clips: Sequence[ClipScore], counted: Counted) -> Taken:
    found = {clip.key: counted(clip) for clip in clips}
    return {key: pair for key, pair in found.items() if pair is not None}


def _counts(taken: Taken) -> Counts:
    return counts_of((sentence, *pair) for (sentence, _, _), pair in taken.items())


def _of_seeds(clips: Sequence[ClipScore], rate: str) -> list[Counts]:
    _, counted = RATES[rate]
    seeds = sorted({clip.seed for clip in clips})
    of_seeds = [[clip for clip in clips if clip.seed == seed] for seed in seeds]
    return [_counts(_taken(of_seed, counted)) for of_seed in of_seeds]


def _share_a_sentence(of_seeds: Sequence[Counts]) -> bool:
    return bool(set.intersection(*(set(counts) for counts in of_seeds)))


def _rating(value: float | None) -> tuple[float, float] | None:
    return None if value is None else (value, 1.0)


def _figure(estimate: Estimate, unit: str, clips: int) -> Figure:
    low, high = estimate.low, estimate.high
    return Figure(
        round(estimate.value, 5),
        unit,
        clips,
        None if low is None else round(low, 5),
        None if high is None else round(high, 5),
        estimate.sentences,
    )
