"""When requests are due, which text each speaks, and which are cancelled: all from a seed."""

from __future__ import annotations

import functools
import itertools
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# When a client that cancels does so: before the first audio as well as in the middle of speech.
CANCEL_S = (0.01, 2.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What request number `request` of a level is, whichever process sends it."""

    request: int
    text: int
    seed: int
    cancel_after_s: float | None


def arrivals(kind: str, rate: float, seed: int, until_s: float) -> Iterator[float]:
    """Absolute times (s, ascending, below `until_s`) of an open load of `rate` requests a second.

    `constant`: the n-th is due at n / rate. `poisson`: exponential times between arrivals.
    `gamma:CV`: gamma-distributed ones with that coefficient of variation; CV 1 is Poisson, above
    it arrivals come in bursts.
    """
    draw = random.Random(seed)
    if kind == "constant":
        yield from itertools.takewhile(
            lambda at: at < until_s, (n / rate for n in itertools.count())
        )
        return
    cv = float(kind.partition(":")[2] or 1)
    shape, scale = 1 / cv**2, cv**2 / rate
    at = 0.0
    while (at := at + draw.gammavariate(shape, scale)) < until_s:
        yield at


def plan(request: int, texts: int, seed: int, cancel_share: float) -> Plan:
    """Request `request` of any level: all texts in a seeded order, again and again.

    The same request has the same text and seed at every level, so that levels compare.
    """
    draw = random.Random(f"{seed}/{request}")
    is_cancelled = draw.random() < cancel_share
    return Plan(
        request,
        _order(texts, seed)[request % texts],
        seed * 1_000_000 + request,
        math.exp(draw.uniform(*map(math.log, CANCEL_S))) if is_cancelled else None,
    )


@functools.cache
def _order(texts: int, seed: int) -> list[int]:
    order = list(range(texts))
    random.Random(seed).shuffle(order)
    return order
