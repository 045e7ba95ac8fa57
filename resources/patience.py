"""How often and how long a thing that fails in passing is tried again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_ASKED_S = 600.0
"""A server that asks to wait longer (Retry-After) is not waited for."""

LEAST_BYTES = 1 << 20
"""Who got so much further did not fail, though the connection broke."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Exponential back-off: half of each wait is chance, so that many do not come back at once."""

    attempts: int = 12  # Without progress: five to ten minutes of waiting in all.
    first_s: float = 1.0
    longest_s: float = 120.0
    connect_s: float = 20.0
    read_s: float = 60.0
    slow_s: float = 300.0
    """A body of which less than `LEAST_BYTES` came in so long is as good as silent."""
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def wait_s(self, failures: int, asked_s: float | None = None) -> float:
        """Seconds to wait after so many failures in a row, never less than the server asked for."""
        doubled_s = min(self.longest_s, self.first_s * 2.0 ** (failures - 1))
        return max(asked_s or 0.0, doubled_s * (0.5 + 0.5 * self.chance()))
