"""Drawing columns from rows of scores: top-p without a full sort, noise by seed and position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Columns with less than this share of the best one's weight are sorted only when the others do not
# hold top_p: of 4,097 columns of trained speech a few hundred are left.
_FLOOR = np.float32(1e-4)


def draw(
    scores: NDArray[np.float32],
    temperature: NDArray[np.float32],
    top_p: NDArray[np.float32],
    at: NDArray[np.float64],
) -> NDArray[np.int64]:
    """A column a row of scores (n, columns): the smallest best set that holds `top_p`, at `at`.

    `at` are uniform in [0, 1); columns with a score of -inf are never drawn.
    """
    scaled = (scores - scores.max(-1, keepdims=True)) / temperature[:, None]
    weights = np.exp(scaled)
    totals = weights.sum(-1)
    columns = np.empty(len(scores), np.int64)
    for n, (row, total, share, point) in enumerate(zip(weights, totals, top_p, at, strict=True)):
        best = _best(row, float(share * total))
        sums = np.cumsum(row[best], dtype=np.float64)
        last = min(int(np.searchsorted(sums, share * total)), len(best) - 1)
        columns[n] = best[min(int(np.searchsorted(sums, point * sums[last], "right")), last)]
    return columns


def _best(row: NDArray[np.float32], mass: float) -> NDArray[np.int64]:
    """Columns of the largest weights, largest first, enough of them to hold `mass`."""
    likely = np.flatnonzero(row > _FLOOR)  # The best column has weight 1.
    values = row[likely]
    if float(values.sum(dtype=np.float64)) >= mass:
        return likely[np.argsort(-values, kind="stable")]
    best = np.argsort(-row, kind="stable")
    return best[: int(np.count_nonzero(row))]


def uniform(seed: NDArray[np.uint64], position: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1), one for each (seed, position): SplitMix64's mixing, applied twice."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    value = _mix(_mix(seed + golden) ^ (position * golden))
    return (value >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
