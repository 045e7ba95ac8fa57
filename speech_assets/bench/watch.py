"""What the coordinator follows while a load runs: its phase, progress, and a hopeless server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from speech_assets.bench.metrics import changes
from speech_assets.bench.percentile import median
from speech_assets.bench.progress import Phase, Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from speech_assets.bench.metrics import Metrics
    from speech_assets.bench.part import Part
    from speech_assets.bench.server_probe import ServerProbe

# So many failures, and nothing else for so long, and a level is given up.
HOPELESS = 20
HOPELESS_AFTER_S = 5.0
_TELL_EVERY_S = 0.25
_FREE_WITHIN_S = 5.0


class Watch:
    """Follows one part.

    `freed_s` is when (monotonic) it had no stream any more after the last were cancelled.
    """

    def __init__(
        self,
        part: Part,
        level: float,
        mode: str,
        probe: ServerProbe,
        tell: Callable[[Progress], None] | None,
        give_up: Callable[[], None],
        *,
        is_estimate: bool = False,
    ) -> None:
        self._part = part
        self._level = level
        self._mode = mode
        self._probe = probe
        self._tell = tell
        self._give_up = give_up
        self._is_estimate = is_estimate
        self._latest: dict[int, dict[str, Any]] = {}
        self._first_bytes_ms: list[float] = []
        self._next_tell_s = 0.0
        self._asked: dict[Phase, Future[Metrics | None]] = {}
        self._phase: Phase | None = None
        self.freed_s: float | None = None
        self.gave_up = ""

    def listen(self, process: int, progress: dict[str, Any]) -> None:
        """Take in what a process tells, and see what time it is."""
        if progress:
            self._first_bytes_ms += progress.pop("first_bytes_ms")
            self._latest[process] = progress
        self._enter(self._now())
        if time.monotonic() >= self._next_tell_s:
            self._next_tell_s = time.monotonic() + _TELL_EVERY_S
            now = self._progress()
            self._look_for_hope(now)
            if self._tell is not None:
                self._tell(now)

    def metrics_changes(self) -> dict[str, float] | None:
        """What the server's metrics changed by from the window's begin to its end."""
        asked = [self._asked.get(phase) for phase in ("measure", "finish")]
        before, after = (None if one is None else one.result() for one in asked)
        return changes(before, after)

    def finished(self) -> None:
        """The last requests have just been cancelled: wait until the server is free of them."""
        self._enter("finish")
        self.freed_s = self._probe.freed_s(_FREE_WITHIN_S)

    def _now(self) -> Phase:
        now_s = time.monotonic()
        if self._is_estimate:
            return "estimate"
        if now_s < self._part.measure_s:
            return "warm-up"
        return "measure" if now_s < self._part.end_s else "finish"

    def _enter(self, phase: Phase) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        # Not awaited here: what the clients tell must be heard meanwhile.
        if phase in ("measure", "finish"):
            self._asked[phase] = self._probe.metrics()

    def _progress(self) -> Progress:
        part = self._part
        latest = list(self._latest.values())
        return Progress(
            level=self._level,
            mode=self._mode,
            phase=self._now(),
            elapsed_s=max(0.0, part.now_s),
            of_s=part.warmup_s + part.duration_s,
            in_flight=sum(one["in_flight"] for one in latest),
            done=sum(one["done"] for one in latest),
            failed=sum(one["failed"] for one in latest),
            ttfb_ms_p50=median(self._first_bytes_ms),
            last_error=next((one["last_error"] for one in latest if one["last_error"]), ""),
        )

    def _look_for_hope(self, now: Progress) -> None:
        is_hopeless = now.failed >= HOPELESS and now.failed == now.done
        if is_hopeless and now.elapsed_s >= HOPELESS_AFTER_S and not self.gave_up:
            self.gave_up = f"given up after {now.failed} failures and no success: {now.last_error}"
            self._give_up()
