"""Nearest-rank percentiles: always a value that was measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def nearest_rank(values: Sequence[float], percent: float) -> float:
    """The smallest of `values` that at least `percent` % of them do not exceed.

    Raises:
        ValueError: there is none.
    """
    if not values:
        raise ValueError("no percentile of nothing")
    # Rounded first: 0.07 x 100 is above 7 in floats.
    rank = math.ceil(round(len(values) * percent / 100, 9))
    return sorted(values)[max(rank, 1) - 1]


def median(values: Sequence[float]) -> float | None:
    """The nearest-rank median; None of nothing."""
    return nearest_rank(values, 50) if values else None
