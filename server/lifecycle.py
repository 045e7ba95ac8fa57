"""The process from its start to its exit: load, tell that it is ready, serve, drain, end.

The port is taken and `/ready` answers 503 while the model loads on a thread of its own. A signal or
the end of standard input stops the server: what has begun is finished, new speech is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from server.errors import ConfigurationError, PortError, ServerError, WeightsError
from server.front import OwnFront
from server.listening import listen, url_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.front import Front
    from server.serving import Model, Serving

EXIT_DRAINED = 0
EXIT_CONFIGURATION = 2
EXIT_WEIGHTS = 3
EXIT_PORT = 4
EXIT_ENGINE = 5

DRAIN_S = 30.0  # For what has begun or waits in the queue, after a signal.
ABANDONED_S = 5.0  # For everything, when whoever started us is gone.
TOLD_S = 0.3  # For those who are cut off to be told.
CLOSE_S = 10.0  # For the engine, after the last stream.
_LOOK_EVERY_S = 0.1

_LOG = logging.getLogger("server")


@dataclass(slots=True)
class Lifecycle:
    """One run of the server. `load` gives the model, warm; it is called on another thread.

    `front` is what answers clients; without one, this process does.
    """

    serving: Serving
    load: Callable[[], Model]
    host: str
    port: int
    exit_on_stdin_eof: bool = False
    drain_s: float = DRAIN_S
    front: Front | None = None
    _front: Front = field(init=False)
    _stop: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _drain_until_s: float = field(default=0.0, init=False)
    _at_once: bool = field(default=False, init=False)  # Whoever started us is gone or impatient.

    def __post_init__(self) -> None:
        self._front = self.front or OwnFront(self.serving)

    def run(self) -> int:
        """Serve until something ends it; the exit code that its end deserves."""
        # Standard output belongs to the ready line; libraries that print have standard error.
        sys.stdout.flush()
        ready_line = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        try:
            listener = listen(self.host, self.port)
        except PortError as error:
            _LOG.error("%s", error)
            return EXIT_PORT
        _LOG.info("loading; %s answers 503 until it is ready", url_of(listener))
        with listener, ready_line, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._serve(listener, ready_line))

    async def _serve(self, listener: Any, ready_line: Any) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        if self.exit_on_stdin_eof:
            threading.Thread(
                target=_watch_stdin, args=(loop, self._abandoned), name="lifeline", daemon=True
            ).start()
        await self._front.open(listener)
        loading = self._start_loading(loop)
        while not (loading.done() or self._stop.is_set() or self._front.failure):
            await asyncio.wait((loading,), timeout=_LOOK_EVERY_S)
        if not loading.done():
            code = EXIT_DRAINED
            if self._front.failure is not None:
                code = self._failed(self._front.failure)
            _LOG.info("stopped while loading")
            await self._front.close()
            _exit_now(code)  # The loading thread cannot be stopped.
        if error := loading.exception():
            await self._front.close()
            return exit_code(error)
        model = loading.result()
        code = await self._until_served(model)
        if code is None:
            self._say_ready(listener, ready_line, model)
            code = await self._until_stopped(model)
        await self._drain()
        if streams := self._front.unfinished:
            _LOG.warning("ending with %d streams unfinished", streams)
            model.service.abandon()
            # So that those who wait for a first chunk hear why there is none.
            await asyncio.sleep(TOLD_S)
        await self._front.close()
        if self._at_once:
            _exit_now(code)
        await self._close(model, code)
        _LOG.info("ended")
        return code

    async def _until_served(self, model: Model) -> int | None:
        """Wait until clients are spoken to; the exit code where something else comes first."""
        served = asyncio.create_task(self._front.serve(model))
        while not (served.done() or self._stop.is_set()):
            if self._front.failure is not None:
                return self._failed(self._front.failure)
            await asyncio.wait((served,), timeout=_LOOK_EVERY_S)
        if served.done():
            served.result()
            return None
        served.cancel()
        self._front.finish("draining")
        return EXIT_DRAINED

    def _say_ready(self, listener: Any, ready_line: Any, model: Model) -> None:
        line = {
            "event": "ready",
            "url": url_of(listener),
            "preset": model.names[0],
            "config_sha256": model.config["config_sha256"],
            "pid": os.getpid(),
        }
        print(json.dumps(line), file=ready_line, flush=True)
        _LOG.info("ready: open %s; Ctrl-C ends it", line["url"])

    async def _close(self, model: Model, code: int) -> None:
        """End the engine; whatever hangs in it ends with the process."""
        closing = asyncio.get_running_loop().create_future()

        def close() -> None:
            model.service.close()
            with contextlib.suppress(RuntimeError):  # The loop gave up waiting.
                loop.call_soon_threadsafe(closing.set_result, None)

        loop = asyncio.get_running_loop()
        threading.Thread(target=close, name="close", daemon=True).start()
        try:
            await asyncio.wait_for(asyncio.shield(closing), CLOSE_S)
        except TimeoutError:
            _LOG.error("the engine does not end within %g s; ending without it", CLOSE_S)
            _exit_now(code or EXIT_ENGINE)

    def _start_loading(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Model]:
        loading: asyncio.Future[Model] = loop.create_future()

        def load() -> None:
            try:
                model = self.load()
            # Whatever it is, the process must end with it: BaseException also of a library's exit.
            except BaseException as error:
                loop.call_soon_threadsafe(loading.set_exception, error)
            else:
                loop.call_soon_threadsafe(loading.set_result, model)

        # Not an executor's thread: the interpreter would wait for it at its end.
        threading.Thread(target=load, name="load", daemon=True).start()
        return loading

    async def _until_stopped(self, model: Model) -> int:
        """Wait for a signal or the engine's end; the exit code."""
        while not self._stop.is_set():
            health = model.service.health()
            self._front.tell(health)
            if health.status == "failed":
                return self._failed("the engine has died")
            if self._front.failure is not None:
                return self._failed(self._front.failure)
            try:
                await asyncio.wait_for(self._stop.wait(), _LOOK_EVERY_S)
            except TimeoutError:
                continue
        self._front.finish("draining")
        return EXIT_DRAINED

    def _failed(self, why: str) -> int:
        """Begin to end, because it cannot serve any more; the exit code."""
        _LOG.error("%s; ending", why)
        self._front.finish("failed")
        self._drain_until_s = time.monotonic() + ABANDONED_S
        return EXIT_ENGINE

    async def _drain(self) -> None:
        """Wait until what has begun is delivered, or until time is up."""
        while self._front.is_busy:
            if time.monotonic() > self._drain_until_s:
                return
            await asyncio.sleep(_LOOK_EVERY_S / 2)

    def _signalled(self, number: int) -> None:
        if self._stop.is_set():
            # A second Ctrl-C means at once.
            self._drain_until_s = 0.0
            self._at_once = True
            return
        _LOG.info("%s: draining for at most %g s", signal.Signals(number).name, self.drain_s)
        self._drain_until_s = time.monotonic() + self.drain_s
        self._stop.set()

    def _abandoned(self) -> None:
        self._drain_until_s = 0.0
        self._at_once = True
        self._stop.set()


def _watch_stdin(loop: asyncio.AbstractEventLoop, abandoned: Callable[[], None]) -> None:
    """End the process when standard input does: whoever started it is gone."""
    try:
        while os.read(0, 4_096):
            pass
    except OSError:
        pass  # A standard input that cannot be read is as good as closed.
    _LOG.info("standard input has ended; ending")
    loop.call_soon_threadsafe(abandoned)
    time.sleep(ABANDONED_S)
    # Something holds on: the loop, a library, the engine.
    _exit_now(EXIT_DRAINED)


def _exit_now(code: int) -> None:
    """End this process and its children without asking anything of its threads."""
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in children.read_text(encoding="ascii").split():
                os.kill(int(pid), signal.SIGKILL)
    logging.shutdown()
    os._exit(code)


def exit_code(error: BaseException) -> int:
    """Log why the model did not load; the code that says so."""
    if isinstance(error, ServerError):
        _LOG.error("%s", error)
        if isinstance(error, ConfigurationError):
            return EXIT_CONFIGURATION
        return EXIT_WEIGHTS if isinstance(error, WeightsError) else EXIT_ENGINE
    _LOG.error("the model did not load", exc_info=error)
    return EXIT_ENGINE
