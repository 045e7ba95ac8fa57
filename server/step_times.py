"""How long a step of the engine takes with so many streams, measured, to tell what one more does.

The engine's thread writes, the event loop reads; each entry is replaced whole.
"""

from __future__ import annotations

from server.frames import REALTIME_TOKENS_PER_S

STEP_BUDGET_S = 0.93 / REALTIME_TOKENS_PER_S
"""A step may take so long, so that streams stay in realtime: 7 % is for what comes in between."""

_FRESH_S = 10.0  # Older measurements are not believed: a slow moment must not keep anybody out.
_SMOOTHING = 0.1


class StepTimes:
    """Time from one step to the next (codec included, where it runs between), by streams."""

    def __init__(self) -> None:
        self._measured: dict[int, tuple[float, float]] = {}  # streams: step, when; seconds.

    def stepped(self, streams: int, interval_s: float, now: float) -> None:
        """A step with so many streams came `interval_s` after the one before."""
        step_s, then = self._measured.get(streams, (interval_s, now))
        if now - then > _FRESH_S:
            step_s = interval_s
        self._measured[streams] = (step_s + _SMOOTHING * (interval_s - step_s), now)

    def expected_s(self, streams: int, now: float) -> float | None:
        """Step time with so many streams, rather more than less; None if nothing tells.

        Measured lately, or in proportion to the nearest fewer that was: a step reads the same
        weights whatever its batch, so it never grows faster than its streams.
        """
        fresh = {
            count: step_s
            for count, (step_s, then) in list(self._measured.items())
            if now - then <= _FRESH_S and count <= streams
        }
        if not fresh:
            return None
        nearest = max(fresh)
        return fresh[nearest] * streams / nearest

    def keep_pace(self, streams: int, now: float) -> bool:
        """Whether so many streams are made in realtime, as far as is known."""
        step_s = self.expected_s(streams, now)
        return step_s is None or step_s <= STEP_BUDGET_S
