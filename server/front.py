"""What answers clients: this process itself, or API processes apart from it (`api_processes`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Protocol

from server.app import create_app
from server.listening import http_server

if TYPE_CHECKING:
    import socket

    import uvicorn

    from server.serving import Model, Serving
    from server.speech import Health


class Front(Protocol):
    """HTTP and WebSocket of the server, from before the model is loaded to the end."""

    async def open(self, listener: socket.socket) -> None:
        """Begin to answer what comes to `listener`: that the model is loading."""
        ...

    async def serve(self, model: Model) -> None:
        """Begin to speak; returns when whoever asks now would be spoken to."""
        ...

    def tell(self, health: Health) -> None:
        """How the service is; told often."""
        ...

    def finish(self, state: Literal["draining", "failed"]) -> None:
        """Take no new speech, and let sockets close when what they were asked for is spoken."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it can never answer again, if so."""
        ...

    @property
    def unfinished(self) -> int:
        """Streams that are not delivered yet, those included that wait for a place."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether anything is open that `finish` lets end."""
        ...

    async def close(self) -> None:
        """End, whatever is open."""
        ...


class OwnFront:
    """HTTP and WebSocket of this process, on its event loop."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, listener: socket.socket) -> None:
        """Begin to answer what comes to `listener`."""
        serving = self._serving
        self._server = http_server(create_app(serving), serving.limits, serving.metrics)
        self._task = asyncio.create_task(self._server.serve([listener]), name="http")

    async def serve(self, model: Model) -> None:
        """Begin to speak."""
        self._serving.loaded(model)

    def tell(self, health: Health) -> None:
        """Do nothing: who asks here asks the service."""

    def finish(self, state: Literal["draining", "failed"]) -> None:
        """Take no new speech, and let sockets close when what they were asked for is spoken."""
        self._serving.state = state
        for session in list(self._serving.sessions):
            session.drain()

    @property
    def failure(self) -> str | None:
        """Never: a server that fails takes the process with it."""
        return None

    @property
    def unfinished(self) -> int:
        """Streams that are not delivered yet, those included that wait for a place."""
        return self._serving.open_deliveries + self._serving.beginning

    @property
    def is_busy(self) -> bool:
        """Whether anything is open that `finish` lets end."""
        return bool(self.unfinished or self._serving.sessions)

    async def close(self) -> None:
        """End, whatever is open."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
