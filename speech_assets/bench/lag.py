"""How late an event loop is: it is to wake every 5 ms, and each wake that it missed counts."""

from __future__ import annotations

import asyncio
import time

EVERY_S = 0.005


class LagMeter:
    """Lateness (ms) of each wake due at a multiple of 5 ms.

    A loop that stood still for 200 ms has missed 40 wakes, each of them later than the next: all
    are counted, as a request due in that time would have been as late.
    """

    def __init__(self) -> None:
        self.lags_ms: list[float] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with nothing counted."""
        self.lags_ms = []
        self._task = asyncio.create_task(self._run(), name="lag")

    def stop(self) -> list[float]:
        """End; what was measured."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return self.lags_ms

    async def _run(self) -> None:
        due_s = time.monotonic() + EVERY_S
        while True:
            await sleep_until(due_s)
            now_s = time.monotonic()
            while due_s <= now_s:
                self.lags_ms.append((now_s - due_s) * 1e3)
                due_s += EVERY_S


async def sleep_until(at_s: float) -> None:
    """Sleep until the monotonic clock says `at_s`, never less: timers may fire a little early."""
    while (left_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(left_s)
