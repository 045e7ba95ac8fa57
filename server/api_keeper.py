"""One API process that is always there: started, heard, and started again when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from typing import TYPE_CHECKING, Protocol

from server.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.api_child import ApiChild
    from server.metrics import Metrics
    from server.wire import Frame

FIRST_PAUSE_S = 0.1  # Before one that died is started again,
LONGEST_PAUSE_S = 5.0  # and when that has not helped.
STEADY_S = 10.0  # One that has lived so long was no false start.
FALSE_STARTS = 5  # In a row, without ever having listened: another will not help.
LOOK_S = 1.0  # As often as each sends its figures unasked.
# In a row without figures: the process hangs, and its clients with it. Counted and not timed: where
# this process' own loop was held up, nobody was silent.
SILENT_LOOKS = 60

_LOG = logging.getLogger("server")


class Owner(Protocol):
    """Whose processes are kept."""

    def began(self, child: ApiChild) -> None:
        """A process has been started."""
        ...

    def hear(self, child: ApiChild, frame: Frame) -> None:
        """A process has said something."""
        ...

    def ended(self, child: ApiChild) -> int:
        """A process is gone: free what it had. How many streams that were."""
        ...


class ApiKeeper:
    """Keeps one process; used on the event loop of the engine's process."""

    def __init__(
        self,
        start: Callable[[], ApiChild],
        owner: Owner,
        closing: asyncio.Event,
        metrics: Metrics,
    ) -> None:
        """What `start` gives is `owner`'s, until `closing` is set."""
        self._start, self._owner = start, owner
        self._closing, self._metrics = closing, metrics

    async def keep(self) -> str | None:
        """Have the process running until the end; why it cannot be kept, if so."""
        pause_s, false_starts = FIRST_PAUSE_S, 0
        while not self._closing.is_set():
            began_s = time.monotonic()
            has_opened = await self._run()
            if self._closing.is_set():
                break
            false_starts = 0 if has_opened else false_starts + 1
            if false_starts == FALSE_STARTS:
                return (
                    f"an API process has died {FALSE_STARTS} times while it started: see what it or"
                    " the system logged before, and start the server again"
                )
            self._metrics.api_restarts.inc()
            if time.monotonic() - began_s > STEADY_S:
                pause_s = FIRST_PAUSE_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return None

    async def _run(self) -> bool:
        """Run one process to its end; whether it ever listened."""
        try:
            child = self._start()
        except OSError as error:
            _LOG.error("no API process can be started: %s", error)
            return False
        child.link = Link(lambda frame: self._owner.hear(child, frame))
        self._owner.began(child)
        streams = 0
        try:
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: child.link, sock=child.socket)
            if self._closing.is_set():
                child.process.kill()
            lost = asyncio.create_task(child.link.lost.wait())
            hangs = asyncio.create_task(_hangs(child))
            await asyncio.wait((lost, hangs, child.ended), return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
            hangs.cancel()
        finally:
            streams = self._owner.ended(child)
            # Without its link it is of no use, if it is there at all.
            if not self._closing.is_set():
                child.process.kill()
        code = await child.ended
        if not self._closing.is_set():
            _LOG.error(
                "API process %d has died (%s), %d streams with it; starting another",
                child.process.pid,
                signal.Signals(-code).name if code < 0 else f"exit code {code}",
                streams,
            )
        return child.is_open


async def _hangs(child: ApiChild) -> None:
    """Return once a process that listened has been silent for too long."""
    while child.silent_looks < SILENT_LOOKS:
        await asyncio.sleep(LOOK_S)
        if child.is_open:
            child.silent_looks += 1
    _LOG.error(
        "API process %d has said nothing for %g s; killing it",
        child.process.pid,
        SILENT_LOOKS * LOOK_S,
    )
