"""A client process of a load test, `python -m speech_assets.bench.client`, for the coordinator.

Orders come as JSON lines on standard input, the first of them says which server. Answers are JSON
lines on standard output; rows follow theirs as an Arrow stream of so many bytes. It ends when
standard input closes, so it does not outlive its coordinator, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import uvloop

from speech_assets.bench.http_client import HttpClient
from speech_assets.bench.load import Load
from speech_assets.bench.part import Part
from speech_assets.bench.rows import row, table
from speech_assets.bench.target import Target
from speech_assets.bench.ws_client import WsClient

if TYPE_CHECKING:
    import io
    from collections.abc import Callable

    from speech_assets.bench.options import Format


def main() -> None:
    """Entry point."""
    # What any library prints must not get among the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Each request in flight is a file.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Unbuffered: a thread that waits within a buffered read upsets the end of the interpreter.
    orders = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
    target = Target(**json.loads(orders.readline()))
    process = _Process(target, orders, answers.write)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(process.run())
        except Exception as error:
            # What standard error has of it is long, and may be read by nobody.
            process.tell_fault(error)
            raise


class _Process:
    def __init__(
        self, target: Target, orders: io.FileIO, write: Callable[[memoryview], int | None]
    ) -> None:
        self._target = target
        self._orders = orders
        self._write = write
        self._load: Load | None = None
        self._part_start_s = 0.0
        # Orders that came before the part that they are about was taken up.
        self._early: list[tuple[str, float]] = []

    async def run(self) -> None:
        client = (WsClient if self._target.api == "ws" else HttpClient)(self._target)
        orders = asyncio.Queue[dict[str, Any]]()
        # A thread of its own: a loop that is busy must not keep the process alive.
        threading.Thread(
            target=_read_orders,
            args=(self._orders, asyncio.get_running_loop(), orders, self._at_once),
            daemon=True,
        ).start()
        self._tell({"event": "ready"})
        while True:
            part = Part(**(await orders.get())["part"])
            load = self._load = Load(part, client, self._tell)
            self._part_start_s = part.start_s
            early, self._early = self._early, []
            for order in early:
                self._at_once(*order)
            try:
                facts = await load.run()
                self._load = None
                self._tell({"event": "ended", **facts})
                self._tell_rows(load, self._target.format)
            finally:
                load.close()

    def tell_fault(self, error: Exception) -> None:
        """Say why there will be no more answers."""
        self._tell({"event": "fault", "words": f"{type(error).__name__}: {error}"})

    def _at_once(self, order: str, start_s: float) -> None:
        """`finish` and `stop` of the part that began at `start_s` do not wait in line."""
        if start_s > self._part_start_s:
            self._early.append((order, start_s))
        elif self._load is not None and start_s == self._part_start_s:
            (self._load.finish if order == "finish" else self._load.stop)()

    def _tell(self, event: dict[str, Any]) -> None:
        self._send(json.dumps(event).encode() + b"\n")

    def _tell_rows(self, load: Load, kind: Format) -> None:
        rows = table([row(exchange, kind) for exchange in load.exchanges()])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        data = sink.getvalue().to_pybytes()
        self._send(json.dumps({"event": "rows", "bytes": len(data)}).encode() + b"\n" + data)

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._write(view) or 0 :]


def _read_orders(
    orders_in: io.FileIO,
    loop: asyncio.AbstractEventLoop,
    orders: asyncio.Queue[dict[str, Any]],
    at_once: Callable[[str, float], None],
) -> None:
    for line in orders_in:
        order = json.loads(line)
        with contextlib.suppress(RuntimeError):  # The loop has ended.
            if order["order"] == "part":
                loop.call_soon_threadsafe(orders.put_nowait, order)
            else:
                loop.call_soon_threadsafe(at_once, order["order"], order["start_s"])
    os._exit(0)  # The coordinator has gone; nobody is there to be told anything.


if __name__ == "__main__":
    main()
