"""One client process' share of a load: requests sent when they are due, and what came of them."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any, Protocol

from speech_assets.bench.exchange import FINE, Exchange
from speech_assets.bench.lag import LagMeter, sleep_until
from speech_assets.bench.percentile import nearest_rank
from speech_assets.bench.schedule import plan
from speech_assets.bench.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from speech_assets.bench.part import Part
    from speech_assets.bench.schedule import Plan

# Between failures of one stream of a closed loop, doubled with each: a server that refuses at once
# would otherwise be asked a thousand times a second.
BACK_OFF_S = (0.05, 1.0)
_TELL_EVERY_S = 0.2
_LOOK_EVERY_S = 0.02


class Client(Protocol):
    """What sends a request."""

    async def speak(self, plan: Plan, exchange: Exchange) -> None:
        """Send it, and read its answer into `exchange`."""
        ...


class Load:
    """Runs one part.

    Exchanges are kept in a file until the load has ended: decoding them meanwhile would make the
    client late, and memory is not enough for minutes of hundreds of streams.
    """

    def __init__(self, part: Part, client: Client, tell: Callable[[dict[str, Any]], None]) -> None:
        self._part = part
        self._client = client
        self._tell = tell
        self._tasks: set[asyncio.Task[None]] = set()
        self._spool = Spool()
        self._faults: list[str] = []
        self._started = 0
        self._in_flight = 0
        self._recorded_in_flight = 0
        self._measured = 0
        self._measured_in_flight = 0
        self._done = 0
        self._failed = 0
        self._last_error = ""
        self._first_bytes_ms: list[float] = []
        self._finish = asyncio.Event()  # All processes' measured requests have ended.
        self._stop = asyncio.Event()  # Whatever is in flight.

    def finish(self) -> None:
        """All processes are done: end what is in flight."""
        self._finish.set()

    def stop(self) -> None:
        """Interrupted: end at once. What has ended is kept."""
        self._stop.set()

    async def run(self) -> dict[str, Any]:
        """Run to the end; how late this process was, its share of a core, what was cut off."""
        part = self._part
        lag = LagMeter()
        # Collecting everything that imports have made takes tens of milliseconds each time.
        gc.collect()
        gc.freeze()
        try:
            await sleep_until(part.start_s)
            if part.load == "closed":
                for stream in range(part.streams):
                    self._begin(self._stream(stream))
            else:
                self._begin(self._arrivals())
            teller = asyncio.create_task(self._tell_often())
            await self._until(part.measure_s)
            lag.start()
            cpu_s, began_s = time.process_time(), time.monotonic()
            await self._until(part.end_s)
            wall_s = time.monotonic() - began_s
            cpu_share = (time.process_time() - cpu_s) / wall_s if wall_s > 0 else 0.0
            while not self._stop.is_set() and not self._is_complete():
                await self._until(time.monotonic() + _LOOK_EVERY_S)
            lags_ms = lag.stop()
            self._tell({"event": "complete"})
            if not self._stop.is_set():
                await _first(self._finish, self._stop)
            teller.cancel()
            cut = self._in_flight
            cancelled_s = time.monotonic()
            for task in self._tasks:
                task.cancel()
            for end in await asyncio.gather(*self._tasks, return_exceptions=True):
                if isinstance(end, Exception):
                    raise end
        finally:
            lag.stop()
            gc.unfreeze()
        return {
            "lag_ms_p99": nearest_rank(lags_ms, 99) if lags_ms else None,
            "lag_ms_max": max(lags_ms, default=None),
            "cpu_share": cpu_share,
            "cut": cut,
            "cut_s": cancelled_s,
            "unfinished": self._measured_in_flight,
            "faults": self._faults,
        }

    def exchanges(self) -> Iterator[Exchange]:
        """What was recorded, in order of its end."""
        return self._spool.exchanges()

    def close(self) -> None:
        """Drop what was recorded."""
        self._spool.close()

    async def _until(self, at_s: float) -> None:
        """Sleep until then, or until stopped."""
        left_s = at_s - time.monotonic()
        if left_s > 0 and not self._stop.is_set():
            try:
                async with asyncio.timeout(left_s):
                    await self._stop.wait()
            except TimeoutError:
                pass

    def _is_complete(self) -> bool:
        """Whether all that began before the window's end has ended, the warm-up's requests too.

        One of these that hangs takes a stream from the load through all of the window.
        """
        return not self._recorded_in_flight and self._measured >= self._part.least

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # One that failed is kept: its error is a fault of this program and ends the run.
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)
        else:
            self._stop.set()

    async def _stream(self, stream: int) -> None:
        """One place of a closed loop: the next request is due when the one before has ended."""
        part = self._part
        await sleep_until(part.start_s + part.stagger_s(stream))
        wait_s = BACK_OFF_S[0]
        while True:
            number = part.first_request + part.process + self._started * part.processes
            self._started += 1
            exchange = await self._request(number, None, time.monotonic())
            if exchange.outcome in FINE:
                wait_s = BACK_OFF_S[0]
            else:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, BACK_OFF_S[1])

    async def _arrivals(self) -> None:
        """An open load: each request is sent when it is due, whatever is outstanding."""
        part = self._part
        for number, due_s in part.due():
            await sleep_until(due_s)
            self._started += 1
            # This task is one of them.
            if len(self._tasks) > part.in_flight_cap:
                self._drop(number, due_s)
            else:
                self._begin(self._arrival(number, due_s))

    async def _arrival(self, number: int, due_s: float) -> None:
        await self._request(number, due_s, due_s)

    def _drop(self, number: int, due_s: float) -> None:
        planned = self._plan(number)
        exchange = Exchange(number, planned.text, planned.seed, due_s, due_s)
        exchange.failed("dropped", f"{self._part.in_flight_cap} requests were in flight")
        if due_s < self._part.end_s:
            self._keep(exchange)

    def _plan(self, number: int) -> Plan:
        part = self._part
        return plan(number, part.texts, part.seed, part.cancel_share)

    async def _request(self, number: int, planned_s: float | None, due_s: float) -> Exchange:
        part = self._part
        planned = self._plan(number)
        exchange = Exchange(number, planned.text, planned.seed, planned_s, due_s)
        exchange.dispatched_s = time.monotonic()
        began_s = exchange.dispatched_s if planned_s is None else planned_s
        is_measured = began_s >= part.measure_s and (
            began_s < part.end_s or self._measured < part.least
        )
        is_recorded = is_measured or began_s < part.measure_s
        self._measured += is_measured
        self._measured_in_flight += is_measured
        self._recorded_in_flight += is_recorded
        self._in_flight += 1
        try:
            await self._client.speak(planned, exchange)
        # One request's surprise is its own end, not that of all the others.
        except Exception as error:
            exchange.failed("garbage", f"{type(error).__name__}: {error}")
        # Not in a `finally`: one that is cut off has not ended.
        exchange.ended_s = time.monotonic()
        self._in_flight -= 1
        self._measured_in_flight -= is_measured
        self._recorded_in_flight -= is_recorded
        if is_recorded:
            self._keep(exchange)
        return exchange

    def _keep(self, exchange: Exchange) -> None:
        if exchange.client_limit:
            self._fault(f"it ran out of what it needs to connect ({exchange.client_limit})")
        try:
            self._spool.keep(exchange)
        except OSError as error:
            self._fault(
                f"its temporary file in {self._spool.folder} cannot grow ({error.strerror}); "
                "free that disk, or name another folder in TMPDIR"
            )
            self._stop.set()
            return
        self._done += 1
        if exchange.outcome not in FINE:
            self._failed += 1
            self._last_error = f"{exchange.outcome}: {exchange.error}"
        if exchange.arrivals and exchange.sent_s is not None:
            self._first_bytes_ms.append((exchange.arrivals[0][0] - exchange.sent_s) * 1e3)

    def _fault(self, words: str) -> None:
        """Note why this client, not the server, was the limit."""
        if words not in self._faults:
            self._faults.append(words)

    async def _tell_often(self) -> None:
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            told, self._first_bytes_ms = self._first_bytes_ms, []
            self._tell(
                {
                    "event": "progress",
                    "in_flight": self._in_flight,
                    "done": self._done,
                    "failed": self._failed,
                    "last_error": self._last_error,
                    "first_bytes_ms": told,
                }
            )


async def _first(*events: asyncio.Event) -> None:
    """Wait for the first of some events."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
