"""How sure a rate or a difference of rates is: resampling sentences, and what a set can detect.

A sentence is drawn with all its seeds: what makes it hard, makes it hard with every seed, and clips
taken for independent would make intervals too narrow. A rate is the sum of an amount over the sum
of what it is out of: word errors over words, ratings over clips.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
LEVEL = 0.95
SEED = 0
MIN_SENTENCES = 6
"""With fewer nothing is judged: all of them may point one way by chance more often than an interval
says, for 5 sentences in 2 of 2^5 cases (6 %), for 6 in 2 of 2^6 (3 %)."""
DETECTED = 1.959964 + 0.841621
"""Standard errors of the smallest detectable difference: the normal distribution's quantiles of a
two-sided test at 5 % and of a power of 80 % (H. S. Bloom, "Minimum detectable effects", Evaluation
Review 19, 1995, 547-556)."""

Counts = Mapping[int, tuple[float, float]]
"""Of each sentence, by its id: the amount, and what it is out of."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; none where one sentence, or no sentence, says how they vary.

    `error` is the standard error, the deviation of the resampled values.
    """

    value: float
    sentences: int
    low: float | None = None
    high: float | None = None
    error: float | None = None

    @property
    def smallest_detectable(self) -> float | None:
        """Of a paired difference: the true one that such a set finds four times in five.

        `DETECTED` times the error of this very difference, so that it holds however unevenly the
        sentences change.
        """
        return None if self.error is None else DETECTED * self.error


def counts_of(rows: Iterable[tuple[int, float, float]]) -> dict[int, tuple[float, float]]:
    """Sums of each sentence from rows of clips: the sentence's id, an amount, what it is out of."""
    counts: dict[int, tuple[float, float]] = {}
    for sentence, amount, out_of in rows:
        so_far = counts.get(sentence, (0.0, 0.0))
        counts[sentence] = (so_far[0] + amount, so_far[1] + out_of)
    return counts


def interval(counts: Counts, *, resamples: int = RESAMPLES, seed: int = SEED) -> Estimate:
    """The rate over all sentences and its interval (percentiles of resampled rates).

    Raises:
        ValueError: there is no sentence, or one has nothing that its amount is out of.
    """
    table = _table(counts, sorted(counts))
    return _estimate(_rate(table.sum(0)), _rate(_drawn(table, resamples, seed)), len(table))


def paired_difference(
    ours: Counts, theirs: Counts, *, resamples: int = RESAMPLES, seed: int = SEED
) -> Estimate:
    """Our rate less theirs, over the sentences that both have: each resampling draws one set for
    both, so that how hard the sentences are cancels out.

    Raises:
        ValueError: they share no sentence, or one has nothing that its amount is out of.
    """
    shared = sorted(set(ours) & set(theirs))
    values: list[float] = []
    drawn: list[NDArray[np.float64]] = []
    for side in (ours, theirs):
        table = _table(side, shared)
        values.append(float(_rate(table.sum(0))))
        drawn.append(_rate(_drawn(table, resamples, seed)))
    return _estimate(values[0] - values[1], drawn[0] - drawn[1], len(shared))


def smallest_detectable_difference(
    of_seeds: Sequence[Counts], *, resamples: int = RESAMPLES, seed: int = SEED
) -> float | None:
    """A figure to plan with: the difference of two rates that such a set finds four times in five.

    It takes all sentences to change alike. Where some change much and others not at all, a larger
    difference is needed; of a difference that was measured, `Estimate.smallest_detectable` tells.

    `of_seeds` are the counts of one configuration, apart for each seed; the result has the rate's
    unit. It is `DETECTED` standard errors of the difference of two configurations, each spoken with
    these sentences and as many seeds, which in truth are alike. That error is measured: it is the
    one of the paired difference of two seeds (of all pairs, the root of the mean square), over the
    root of the number of seeds. With one seed nothing shows how seeds differ: the error is taken to
    be that of two sets of sentences that have nothing in common, which is too large. The result is
    no less than one unit of what the rate is out of (one word), and None for one sentence.

    Raises:
        ValueError: there is no seed, the seeds share no sentence, or a sentence is out of nothing.
    """
    if not of_seeds:
        raise ValueError("no seed to take a difference of")
    shared = sorted(set.intersection(*(set(counts) for counts in of_seeds)))
    tables = [_table(counts, shared) for counts in of_seeds]
    if len(shared) < 2:
        return None
    rates = [_rate(_drawn(table, resamples, seed)) for table in tables]
    if len(rates) == 1:
        error = math.sqrt(2) * float(np.std(rates[0]))
    else:
        squares = [float(np.var(one - other)) for one, other in itertools.combinations(rates, 2)]
        error = math.sqrt(float(np.mean(squares)) / len(rates))
    one_unit = 1 / sum(float(table[:, 1].sum()) for table in tables)
    return max(DETECTED * error, one_unit)


def _table(counts: Counts, sentences: Sequence[int]) -> NDArray[np.float64]:
    """Amounts and what they are out of, (sentences, 2)."""
    if not sentences:
        raise ValueError("no sentence to resample")
    table = np.array([counts[sentence] for sentence in sentences], np.float64)
    if not (table[:, 1] > 0).all():
        empty = sentences[int(np.argmin(table[:, 1]))]
        raise ValueError(f"sentence {empty} has nothing that its amount is out of; leave it out")
    return table


def _drawn(table: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Sums over as many sentences drawn with replacement, (resamples, 2).

    Equal numbers of sentences are drawn alike, whatever is counted.
    """
    sentences = len(table)
    draws = np.random.default_rng(seed).multinomial(
        sentences, np.full(sentences, 1 / sentences), size=resamples
    )
    return draws @ table


def _rate(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return sums[..., 0] / sums[..., 1]


def _estimate(
    value: float | NDArray[np.float64], drawn: NDArray[np.float64], sentences: int
) -> Estimate:
    if sentences < 2:
        return Estimate(float(value), sentences)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), sentences, float(low), float(high), float(np.std(drawn)))
