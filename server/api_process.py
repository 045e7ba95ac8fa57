"""One API process: HTTP, WebSocket and framing, with speech that the engine's process makes.

It is started by `api_processes` with the arguments of the server itself, the listening socket and
one end of a socket pair. It ends when it is told to, and at once when the other end is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvloop

from server.errors import RequestError
from server.front import OwnFront
from server.lifeline import end_with_parent, leave_signals_to_parent
from server.link import Link
from server.remote import RemoteService
from server.scrape import added, families_of, rendered
from server.serving import Model
from server.voices import Voices
from server.wire import (
    Answering,
    Close,
    Collect,
    Figures,
    Finish,
    Loaded,
    Open,
    Scrape,
    Scraped,
    Unfinished,
)

if TYPE_CHECKING:
    from server.serving import Serving
    from server.wire import Family, Frame, Message

EXIT_LOST = 1  # Nobody is there to read it.
FIGURES_EVERY_S = 1.0
"""So much of what is counted is lost with a process that is killed."""
SCRAPE_S = 5.0
_LOOK_EVERY_S = 0.05


@dataclass(slots=True)
class ApiProcess:
    """This process, while it answers clients."""

    serving: Serving
    link_fd: int
    listener_fd: int
    _link: Link = field(init=False)
    _front: OwnFront = field(init=False)
    _service: RemoteService | None = field(default=None, init=False)
    _closing: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _ending: asyncio.Task[None] | None = field(default=None, init=False)
    _scrapes: dict[int, asyncio.Future[list[list[Family]]]] = field(
        default_factory=dict[int, "asyncio.Future[list[list[Family]]]"], init=False
    )
    _scrape_numbers: itertools.count[int] = field(default_factory=itertools.count, init=False)

    def run(self) -> int:
        """Answer clients until the engine's process ends it; the exit code."""
        end_with_parent()
        leave_signals_to_parent()
        with (
            socket.socket(fileno=self.link_fd) as ours,
            socket.socket(fileno=self.listener_fd) as listener,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return runner.run(self._serve(ours, listener))

    async def _serve(self, ours: socket.socket, listener: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        self._link = Link(self._hear)
        self._front = OwnFront(self.serving)
        self.serving.scrape = self._scrape
        await loop.create_unix_connection(lambda: self._link, sock=ours)
        await self._front.open(listener)
        self._link.send(Open())
        figures = asyncio.create_task(self._send_figures_often(), name="figures")
        closing = asyncio.create_task(self._closing.wait())
        lost = asyncio.create_task(self._link.lost.wait())
        await asyncio.wait((closing, lost), return_when=asyncio.FIRST_COMPLETED)
        if not closing.done():
            # The engine is gone. Streams break off, so that none of them looks complete.
            os._exit(EXIT_LOST)
        for task in (figures, lost, self._ending):
            if task is not None:
                task.cancel()
        await self._front.close()
        self._link.close()
        return 0

    def _hear(self, frame: Frame) -> None:
        if frame.audio and self._service is not None:
            self._service.put(frame.audio)
        match frame.message:
            case None:
                pass
            case Loaded() as loaded:
                self._load(loaded)
            case Collect() as collect:
                self._send_figures(collect.number)
            case Scraped() as scraped:
                if (scrape := self._scrapes.get(scraped.number)) and not scrape.done():
                    scrape.set_result(scraped.processes)
            case Finish() as finish:
                self._front.finish(finish.state)
                self._ending = asyncio.create_task(self._tell_unfinished(), name="ending")
            case Close():
                self._closing.set()
            case other:
                self._of_speech(other)

    def _of_speech(self, message: Message) -> None:
        assert self._service is not None, message
        self._service.hear(message)

    def _load(self, loaded: Loaded) -> None:
        self._service = RemoteService(self._link, loaded.health)
        self.serving.started_at = loaded.started_at
        voices = Voices(loaded.voices)
        self.serving.loaded(
            Model(self._service, loaded.names, voices, loaded.sampling, loaded.config)
        )
        self._link.send(Answering())

    async def _tell_unfinished(self) -> None:
        told: Unfinished | None = None
        while True:
            now = Unfinished(self._front.unfinished, self._front.is_busy)
            if now != told:
                self._link.send(now)
                told = now
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _send_figures_often(self) -> None:
        while True:
            await asyncio.sleep(FIGURES_EVERY_S)
            self._send_figures()

    def _send_figures(self, number: int | None = None) -> None:
        figures = Figures(families_of(self.serving.metrics.registry), number)
        if number is None:
            self._link.send_newest(figures)
        else:
            self._link.send(figures)

    async def _scrape(self) -> bytes:
        """The metrics of all processes.

        Raises:
            RequestError: the engine's process does not answer.
        """
        number = next(self._scrape_numbers)
        answer = self._scrapes[number] = asyncio.get_running_loop().create_future()
        self._link.send(Scrape(number))
        try:
            async with asyncio.timeout(SCRAPE_S):
                return rendered(added(await answer))
        except TimeoutError as error:
            raise RequestError.of_server(
                f"the figures did not come together within {SCRAPE_S:g} s; ask again",
                status=503,
                code="not_ready",
            ) from error
        finally:
            del self._scrapes[number]
