"""How fast tokens come and how long a decode takes to reach a socket, measured as they happen."""

from __future__ import annotations

from collections import deque

from server import frames
from server.step_times import StepTimes

_STEPS = 256  # steps that tau's p99 is of: 0.7 s of a fast GPU, some seconds of a CPU
_DELIVERIES_S = 10.0
_SMOOTHING = 0.1
_LONGEST_STEP_S = 1.0  # Longer is a pause (a debugger, a suspended machine), not a pace.
_REFRESH_S = 0.25  # Percentiles are of windows that move slowly: sorting them each step is waste.


class Pace:
    """Engine step times and delivery times of the last seconds.

    Args:
        floor_s: least jitter allowance.
        extra_s: part of it for what is not measured here (sockets, the network's own jitter).
        step_s: step time assumed until steps are measured.
        delivery_s: delivery time assumed until deliveries are measured.
    """

    def __init__(
        self, *, floor_s: float, extra_s: float, step_s: float = 0.01, delivery_s: float = 0.02
    ) -> None:
        self._floor_s, self._extra_s = floor_s, extra_s
        self._steps: deque[float] = deque(maxlen=_STEPS)
        self._intervals: deque[float] = deque(maxlen=_STEPS)
        self._deliveries: deque[tuple[float, float]] = deque()
        self._refreshed_s = float("-inf")
        self.steps = StepTimes()
        self.step_s = step_s  # from one step to the next, smoothed
        self.step_p99_s = step_s  # of the engine alone: what else a round does is delivery
        self.interval_p99_s = step_s
        self.delivery_p99_s = delivery_s

    @property
    def frame_s(self) -> float:
        """Time in which a stream's next frame is generated."""
        return self.step_s * frames.TOKENS_PER_FRAME

    @property
    def round_p99_s(self) -> float:
        """How long it can take until players are looked after again: on a CPU a decode lies within.

        The longest decode may be a stream's first chunk, which is in few intervals.
        """
        return max(self.interval_p99_s, self.delivery_p99_s + self.step_p99_s)

    @property
    def arrival_s(self) -> float:
        """How long after its last token a row's audio can take to its player."""
        return self.delivery_p99_s + self._extra_s

    @property
    def jitter_s(self) -> float:
        """How long before a player runs dry its next audio must be ready to decode."""
        return max(self._floor_s, self.arrival_s + 2 * self.step_p99_s)

    def stepped(
        self, interval_s: float, now: float, *, took_s: float | None = None, streams: int = 0
    ) -> None:
        """A token of each stream came `interval_s` after the last; the engine `took_s` for it.

        On a CPU the codec runs between two steps, so that the engine takes less than the interval.
        """
        if 0 < interval_s <= _LONGEST_STEP_S:
            if streams:
                self.steps.stepped(streams, interval_s, now)
            took_s = interval_s if took_s is None else min(took_s, interval_s)
            if not self._steps:
                self.step_s = self.interval_p99_s = interval_s
                self.step_p99_s = took_s
            self._steps.append(took_s)
            self._intervals.append(interval_s)
            self.step_s += _SMOOTHING * (interval_s - self.step_s)
            self._refresh(now)

    def delivered(self, delivery_s: float, now: float) -> None:
        """A decode took `delivery_s` from its planning to the hand-over of its samples."""
        if not self._deliveries:
            self.delivery_p99_s = delivery_s
        self._deliveries.append((now, delivery_s))
        self._refresh(now)
        # A slow delivery counts at once, one in many only until the next refresh.
        self.delivery_p99_s = max(self.delivery_p99_s, delivery_s)

    def _refresh(self, now: float) -> None:
        if now - self._refreshed_s < _REFRESH_S:
            return
        self._refreshed_s = now
        while len(self._deliveries) > 1 and self._deliveries[0][0] < now - _DELIVERIES_S:
            self._deliveries.popleft()
        if self._steps:
            self.step_p99_s = _p99(list(self._steps))
            self.interval_p99_s = _p99(list(self._intervals))
        if self._deliveries:
            self.delivery_p99_s = _p99([delivery for _, delivery in self._deliveries])


def _p99(values: list[float]) -> float:
    """Nearest-rank 99th percentile: the largest of fewer than 100."""
    return sorted(values)[-(-len(values) * 99 // 100) - 1]
