"""Figures of scored clips: of all, beside those of another run, and what their set can tell.

Rates are over all words of all clips, so that a long sentence counts for more than a short one. A
clip that was not spoken has all its words wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from speech_assets.quality.clip_scores import ClipScore
from speech_assets.quality.resampling import (
    Counts,
    Estimate,
    counts_of,
    interval,
    paired_difference,
    smallest_detectable_difference,
)
from speech_assets.results.result import Figure

Counted = Callable[[ClipScore], tuple[float, float] | None]
"""What a rate counts of a clip: the amount and what it is out of; None leaves the clip out."""

RATES: dict[str, tuple[str, Counted]] = {
    "wer": ("share", lambda clip: (clip.word_errors, clip.words)),
    "wer_format_insensitive": ("share", lambda clip: (clip.loose_word_errors, clip.loose_words)),
    "cer": ("share", lambda clip: (clip.character_errors, clip.characters)),
    "dnsmos_overall": ("MOS", lambda clip: _rating(clip.dnsmos_overall)),
    "dnsmos_signal": ("MOS", lambda clip: _rating(clip.dnsmos_signal)),
    "dnsmos_noise": ("MOS", lambda clip: _rating(clip.dnsmos_noise)),
}
COMPARED = ("wer", "wer_format_insensitive", "cer", "dnsmos_overall")
"""Rates of which a difference from other runs is given."""
HALF_WRONG = 0.5


def wer_figures(clips: Sequence[ClipScore]) -> dict[str, Figure]:
    """Figures of one preset's clips alone.

    `RATES` with intervals over sentences; how many clips there are, were not spoken (`spoke`), have
    faults of the signal; `share_above_half_wer`, clips more than half of whose words are wrong;
    `wer_seed_spread`, the highest WER of a seed less the lowest (where there are two seeds);
    `smallest_detectable_wer_difference`; `leading_silence_s_p50` over clips that can be heard.

    Raises:
        ValueError: there are no clips.
    """
    if not clips:
        raise ValueError("no clips to give figures of")
    figures: dict[str, Figure] = {}
    for name, (unit, counted) in RATES.items():
        if counts := _counts(clips, counted):
            figures[name] = _figure(interval(counts), unit, len(clips))
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
    _, counted = RATES["wer"]
    of_seeds = [_counts(of_seed, counted) for of_seed in _by_seed(clips)]
    if len(of_seeds) > 1:
        rates = [interval(counts).value for counts in of_seeds]
        figures["wer_seed_spread"] = Figure(
            round(max(rates) - min(rates), 5), "share", len(of_seeds)
        )
    smallest = smallest_detectable_difference(of_seeds) if _share_a_sentence(of_seeds) else None
    if smallest is not None:
        figures["smallest_detectable_wer_difference"] = Figure(
            round(smallest, 5), "share", len(clips)
        )
    return figures


def difference_figures(
    ours: Sequence[ClipScore], theirs: Sequence[ClipScore], what: str
) -> dict[str, Figure]:
    """`COMPARED` of ours less theirs, named `<rate>_less_<what>`, over the clips that both have.

    The same sentence with the same seed is the same clip; n is those. Empty when there are none.
    """
    shared = {clip.key for clip in ours} & {clip.key for clip in theirs}
    sides = [[clip for clip in side if clip.key in shared] for side in (ours, theirs)]
    figures: dict[str, Figure] = {}
    for name in COMPARED:
        unit, counted = RATES[name]
        one, other = (_counts(side, counted) for side in sides)
        if set(one) & set(other):
            difference = paired_difference(one, other)
            figures[f"{name}_less_{what}"] = _figure(difference, unit, len(shared))
    return figures


def _counts(clips: Sequence[ClipScore], counted: Counted) -> Counts:
    found = [(clip.sentence_id, counted(clip)) for clip in clips]
    return counts_of((sentence, *pair) for sentence, pair in found if pair is not None)


def _by_seed(clips: Sequence[ClipScore]) -> list[list[ClipScore]]:
    seeds = sorted({clip.seed for clip in clips})
    return [[clip for clip in clips if clip.seed == seed] for seed in seeds]


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
    )
