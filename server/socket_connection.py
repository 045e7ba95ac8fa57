"""One WebSocket's connection: uvicorn's, with messages in parts and an end to every wait."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.server import ServerProtocol

from server.errors import RequestError

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGISendEvent
    from websockets.http11 import Response
    from websockets.typing import StatusLike

    from server.limits import Limits

MORE = "speech.more"
"""Key of a `websocket.send` of bytes: true if the next one goes on with its message."""


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket on which a long message is sent as frames that are waited for one by one.

    As one frame it would lie in the write buffer whole: nothing would tell a slow reader from none,
    and a ping would wait behind all of it. To the client it is one message.
    """

    def __init__(self, limits: Limits, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # uvicorn's own, but for what it says when it refuses.
        self.conn = _Handshake(
            max_size=self.config.ws_max_size, logger=logging.getLogger("uvicorn.error")
        )
        self._limits = limits
        self._within = False  # A message whose last part has not come.
        self._is_refused = False  # Before there was an application to ask.
        self._taken_due: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._taken_due is not None:
            self._taken_due.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come; answer a head that is HTTP but none of a handshake, and close."""
        super().data_received(data)
        if self.conn.handshake_exc is None or self.handshake_initiated or self._is_refused:
            return
        # uvicorn waits for more of it, for ever.
        self._is_refused = True
        refusal = b"".join(self.conn.data_to_send())
        if not refusal:
            words = f"Failed to open a WebSocket connection: {self.conn.handshake_exc}"
            refusal = self.conn.reject(HTTPStatus.BAD_REQUEST, words).serialize()
        self.transport.write(refusal)
        self.transport.close()
        self._await_taking()

    async def run_asgi(self) -> None:
        """Run the application; what it said last must be taken within the limit."""
        await super().run_asgi()
        if not self.disconnected:
            self._await_taking()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # Who reads not even a ping would never take the close either.

    async def send(self, message: ASGISendEvent) -> None:
        """Send what the application says, a message of audio maybe in parts."""
        data, more = message.get("bytes"), bool(message.get(MORE))
        if data is None or not (more or self._within):
            await super().send(message)
            return
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        try:
            send = self.conn.send_continuation if self._within else self.conn.send_binary
            send(data, fin=not more)
        except InvalidState as error:  # The client has said that it closes.
            raise ClientDisconnected from error
        self._within = more
        self.transport.write(b"".join(self.conn.data_to_send()))

    def _await_taking(self) -> None:
        # What closes waits for the client to take what is buffered.
        self._taken_due = self.loop.call_later(self._limits.stall_s, self.transport.abort)


class _Handshake(ServerProtocol):
    """A handshake whose refusals have the body of every other refusal."""

    def reject(self, status: StatusLike, text: str) -> Response:
        """The answer with OpenAI's error of that status and text."""
        response = super().reject(status, "")
        if response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            error = RequestError(
                " ".join(text.split()), status=response.status_code, code="invalid_handshake"
            )
        else:
            error = RequestError.of_server("the server failed; its log says more")
        response.body = json.dumps(error.body()).encode()
        for name, value in (
            ("Content-Length", str(len(response.body))),
            ("Content-Type", "application/json"),
        ):
            del response.headers[name]
            response.headers[name] = value
        return response
