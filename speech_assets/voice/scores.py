"""Scores of spoken clips: error rates and DNSMOS with intervals from resampling sentences.

Rates are over all words of a group: the errors of its clips, over the words of their texts. A
sentence is drawn with all its clips, whatever voice or seed they have, for those share what makes
it hard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speech_assets.results.result import Figure
from speech_assets.voice.held_out import SETS

RESAMPLINGS = 2_000
INTERVAL = (2.5, 97.5)  # Percentiles.


@dataclass(frozen=True, slots=True)
class Scored:
    """One clip: errors and lengths of its transcript; MOS (overall, signal, noise, p808)."""

    id: int
    voice: str
    seed: int
    seconds: float
    reference: str
    transcript: str
    words: int
    word_errors: int
    characters: int
    character_errors: int
    mos: tuple[float, ...] = ()


Sums = NDArray[np.float64]
"""Per sentence or drawn set: word errors, words, character errors, characters, clips, four MOS."""

MEASURES: dict[str, tuple[str, Callable[[Sums], Sums]]] = {
    "wer": ("share", lambda sums: sums[:, 0] / sums[:, 1]),
    "cer": ("share", lambda sums: sums[:, 2] / sums[:, 3]),
    "dnsmos_overall": ("MOS", lambda sums: sums[:, 5] / sums[:, 4]),
    "dnsmos_signal": ("MOS", lambda sums: sums[:, 6] / sums[:, 4]),
    "dnsmos_noise": ("MOS", lambda sums: sums[:, 7] / sums[:, 4]),
    "dnsmos_p808": ("MOS", lambda sums: sums[:, 8] / sums[:, 4]),
}
"""Unit and formula of each measure of rows of `Sums`."""


def figures_of(clips: Sequence[Scored]) -> dict[str, Figure]:
    """Every measure of all clips, of each voice (`wer_heart`), set and seed (`wer_seed_1`).

    Raises:
        ValueError: there are no clips, or some have a MOS and some not.
    """
    if not clips:
        raise ValueError("no clips to score")
    if len({len(clip.mos) for clip in clips}) > 1:
        raise ValueError("some clips have a MOS and some have none: score all of them one way")
    figures = {
        name + suffix: figure
        for suffix, group in _groups(clips).items()
        for name, figure in _measured(group).items()
    }
    seeds = sorted({clip.seed for clip in clips})
    for seed in seeds if len(seeds) > 1 else []:
        of_seed = [clip for clip in clips if clip.seed == seed]
        figures[f"wer_seed_{seed}"] = _measured(of_seed)["wer"]
    return figures | {
        "words": Figure(sum(clip.words for clip in clips), "words", len(clips)),
        "seconds": Figure(round(sum(clip.seconds for clip in clips), 2), "s", len(clips)),
    }


def less_reference(clips: Sequence[Scored], reference: Sequence[Scored]) -> dict[str, Figure]:
    """Each measure of `clips` less that of `reference`, paired by sentence and voice.

    Only what both have is compared; empty when that is nothing.
    """
    shared = {(c.id, c.voice) for c in clips} & {(c.id, c.voice) for c in reference}
    pairs = [
        [clip for clip in side if (clip.id, clip.voice) in shared] for side in (clips, reference)
    ]
    figures: dict[str, Figure] = {}
    for suffix in _groups(pairs[0]) if shared else {}:
        ours, theirs = (_groups(side)[suffix] for side in pairs)
        tables = [np.stack(list(_by_sentence(side).values())) for side in (ours, theirs)]
        draws = _draws(len(tables[0]))
        for name, (unit, of) in MEASURES.items():
            if name.startswith("dnsmos") and not (ours[0].mos and theirs[0].mos):
                continue
            whole = [of(table.sum(0, keepdims=True)) for table in tables]
            drawn = [of(table[draws].sum(1)) for table in tables]
            figures[f"{name}_less_reference{suffix}"] = _figure(
                float(whole[0][0] - whole[1][0]), drawn[0] - drawn[1], unit, len(ours)
            )
    return figures


def _groups(clips: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Clips of all sentences (suffix ""), of each voice and of each set of sentences."""
    groups: dict[str, list[Scored]] = {"": list(clips)}
    for voice in sorted({clip.voice for clip in clips}):
        groups[f"_{voice}"] = [clip for clip in clips if clip.voice == voice]
    for name, ids in SETS.items():
        if found := [clip for clip in clips if clip.id in ids]:
            groups[f"_{name}"] = found
    return groups


def _measured(clips: Sequence[Scored]) -> dict[str, Figure]:
    table = np.stack(list(_by_sentence(clips).values()))
    total, drawn = table.sum(0, keepdims=True), table[_draws(len(table))].sum(1)
    return {
        name: _figure(float(of(total)[0]), of(drawn), unit, len(clips))
        for name, (unit, of) in MEASURES.items()
        if clips[0].mos or not name.startswith("dnsmos")
    }


def _by_sentence(clips: Sequence[Scored]) -> dict[int, Sums]:
    """Sums over the clips of each sentence, in order of its id."""
    sums: dict[int, Sums] = defaultdict(lambda: np.zeros(9))
    for clip in sorted(clips, key=lambda clip: clip.id):
        counts = (clip.word_errors, clip.words, clip.character_errors, clip.characters, 1)
        sums[clip.id] += np.array(counts + (clip.mos or (0.0,) * 4))
    return sums


def _draws(sentences: int) -> NDArray[np.int64]:
    """Sentences of each resampling, (RESAMPLINGS, sentences); the same for equal counts."""
    return np.random.default_rng(0).integers(sentences, size=(RESAMPLINGS, sentences))


def _figure(value: float, drawn: Sums, unit: str, n: int) -> Figure:
    low, high = (float(edge) for edge in np.percentile(drawn, INTERVAL))
    return Figure(round(value, 5), unit, n, round(low, 5), round(high, 5))
