"""API processes apart from the engine: given the model, told how it is, heard, and ended.

They accept from one listening socket, which this process opens and keeps: what has connected and
was not accepted is not lost with any of them. Each is at the other end of a socket pair that has no
name and ends with either side.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Literal, cast

from server.api_child import ApiChild
from server.api_figures import ApiFigures
from server.api_keeper import ApiKeeper
from server.relay import Relay
from server.wire import (
    Answering,
    Cancel,
    Close,
    Figures,
    Finish,
    HealthIs,
    Loaded,
    Open,
    Scrape,
    Speak,
    Unfinished,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from server.relay import RelayedService
    from server.serving import Model, Serving
    from server.speech import Health
    from server.wire import Frame

CLOSE_S = 5.0  # To end when told to.
_HEALTH_S = 0.005  # Changes of health that are this near are told as one.

_LOG = logging.getLogger("server")


class ApiProcesses:
    """`count` processes that answer clients; used on the event loop of the engine's process."""

    def __init__(self, serving: Serving, count: int, argv: Sequence[str]) -> None:
        """Of a server that was started with `argv`, which says all that `serving` is made of."""
        self._serving, self._count, self._argv = serving, count, argv
        self._keepers: list[asyncio.Task[str | None]] = []
        self._children: list[ApiChild] = []
        self._figures = ApiFigures(serving, self._children)
        self._model: Model | None = None
        self._health: Health | None = None
        self._tells: asyncio.TimerHandle | None = None
        self._finish: Finish | None = None
        self._all_answer = asyncio.Event()
        self._closing = asyncio.Event()
        self._failure: str | None = None

    async def open(self, listener: socket.socket) -> None:
        """Start the processes, which answer what comes to `listener`."""
        start = functools.partial(ApiChild.start, self._argv, listener)
        for index in range(self._count):
            keeper = ApiKeeper(start, self, self._closing, self._serving.metrics)
            task = asyncio.create_task(keeper.keep(), name=f"api-{index}")
            task.add_done_callback(self._kept)
            self._keepers.append(task)

    async def serve(self, model: Model) -> None:
        """Begin to speak; returns when all processes do."""
        self._serving.loaded(model)
        self._model, self._health = model, model.service.health()
        for child in self._children:
            if child.is_open:
                self._load(child)
        await self._all_answer.wait()

    def tell(self, health: Health) -> None:
        """Tell all processes how the service is, if they do not know yet."""
        if health != self._health:
            self._health = health
            for child in self._children:
                if child.relay is not None:
                    child.link.send_newest(HealthIs(health))

    def finish(self, state: Literal["draining", "failed"]) -> None:
        """Take no new speech, and let sockets close when what they were asked for is spoken."""
        self._serving.state = state
        self._finish = Finish(state)
        for child in self._children:
            if child.is_open:
                child.link.send(self._finish)

    @property
    def failure(self) -> str | None:
        """Why they can never answer again, if so."""
        return self._failure

    @property
    def unfinished(self) -> int:
        """Streams that are not delivered yet, those included that wait for a place."""
        return sum(c.unfinished.streams for c in self._children if c.unfinished is not None)

    @property
    def is_busy(self) -> bool:
        """Whether anything is open that `finish` lets end."""
        return any(
            child.unfinished is None or child.unfinished.busy
            for child in self._children
            if child.is_open
        )

    async def close(self) -> None:
        """End all processes, whatever is open."""
        self._closing.set()
        for child in self._children:
            if child.is_open:
                child.link.send(Close())
            else:
                child.process.kill()  # It has no client yet.
        if self._keepers:
            _, late = await asyncio.wait(self._keepers, timeout=CLOSE_S)
            for child in self._children if late else ():
                _LOG.error("API process %d does not end; killing it", child.process.pid)
                child.process.kill()
            for keeper in late:
                keeper.cancel()
            await asyncio.wait(self._keepers)

    # Of one process

    def began(self, child: ApiChild) -> None:
        """A process has been started."""
        self._children.append(child)

    def hear(self, child: ApiChild, frame: Frame) -> None:
        """A process has said something."""
        if frame.taken and child.relay is not None:
            child.relay.taken(frame.taken)
        match frame.message:
            case None:
                pass
            case Open():
                child.is_open = True
                if self._model is not None:
                    self._load(child)
                if self._finish is not None:
                    child.link.send(self._finish)
            case Answering():
                child.is_answering = True
                answering = sum(child.is_answering for child in self._children)
                if answering == self._count:
                    self._all_answer.set()
            case Unfinished() as unfinished:
                child.unfinished = unfinished
            case Figures() as figures:
                self._figures.take(child, figures)
            case Scrape() as scrape:
                self._figures.scrape(child, scrape.number)
            case (Speak() | Cancel()) as asked:
                assert child.relay is not None
                child.relay.hear(asked)
            case other:
                raise AssertionError(f"{other} is not for the engine's process")

    def ended(self, child: ApiChild) -> int:
        """A process is gone: free what it had. How many streams that were."""
        self._children.remove(child)
        self._figures.keep(child)
        child.link.close()
        if child.relay is None:
            return 0
        streams = len(child.relay)
        child.relay.close()
        return streams

    def _kept(self, keeper: asyncio.Task[str | None]) -> None:
        if keeper.cancelled():
            return
        if error := keeper.exception():
            _LOG.error("an API process cannot be kept", exc_info=error)
            self._failure = f"an API process cannot be kept: {error}"
        elif (why := keeper.result()) is not None:
            self._failure = why

    def _load(self, child: ApiChild) -> None:
        """Give a process the model."""
        model = self._model
        assert model is not None
        # Here it is the engine's own, which can be told what to make of a request.
        service = cast("RelayedService", model.service)
        child.relay = Relay(service, child.link, self._tell_soon)
        health = model.service.health()
        self.tell(health)  # The others would not hear of it, once it is what is known.
        child.link.send(
            Loaded(
                model.names,
                model.voices.own,
                model.sampling,
                model.config,
                self._serving.started_at,
                health,
            )
        )

    def _tell_soon(self) -> None:
        if self._tells is None:
            loop = asyncio.get_running_loop()
            self._tells = loop.call_later(_HEALTH_S, self._tell_now)

    def _tell_now(self) -> None:
        self._tells = None
        if self._model is not None:
            self.tell(self._model.service.health())
