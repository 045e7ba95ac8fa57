"""One HTTP connection, bounded where uvicorn bounds nothing.

Connections in all, the size of a request's head and trailers, and the time in which the head
comes: a client that connects and sends nothing, or a byte now and then, is told so and closed. So
is one that does not take the end of its answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from server.errors import RequestError
from server.response import ABORT

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from server.limits import Limits
    from server.metrics import Metrics, Refusal

# About 1.4 s of audio. With the system's own size a reader that stalls is noticed only minutes of
# audio later, and as much is sent in vain after a cancel.
WRITE_BUFFER_BYTES = 64 * 1024


class Connection(HttpToolsProtocol):
    """A connection whose requests, and the WebSocket it may become, can abort it."""

    def __init__(self, limits: Limits, metrics: Metrics, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._limits, self._metrics = limits, metrics
        self._head_due: asyncio.TimerHandle | None = None  # While a request's head is expected.
        self._in_head = False
        self._in_request = False  # Its head, body or trailers, answered already or not.
        self._head_bytes = 0
        self._header_bytes = 0  # Of the headers and trailers of a request.
        self._held_bytes = 0  # That have come since the parser last gave something out.
        self._taken_due: asyncio.TimerHandle | None = None  # While an answer's end may wait.
        self._refused = False
        self._is_socket = False  # From then on another protocol has its bytes.

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.app_state = {**self.app_state, ABORT: transport.abort}
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._refuse(
                "too_many",
                RequestError.of_server(
                    f"{self._limits.connections} connections are open, as many as may be; try "
                    "again",
                    status=503,
                    code="too_many_connections",
                    retry_after_s=1,
                ),
            )
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._await_taking(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        was_in_head, was_in_request = self._in_head, self._in_request
        if self._head_due is None and not self._is_answering and not was_in_request:
            self._expect_head()
        self._held_bytes += len(data)
        super().data_received(data)
        if self._refused or self._is_socket:
            return
        # What the parser holds of a head, a trailer or a chunk's size that goes on and on.
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
        if max(self._head_bytes, self._held_bytes) > self._limits.header_bytes:
            self._refuse_size()
        elif was_in_request and not self._is_answering:
            self._await_next()

    def handle_websocket_upgrade(self) -> None:
        if not self._refused:
            self._await_taking(None)
            self._is_socket = True
            super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        self._in_head = self._in_request = True
        self._head_bytes = self._header_bytes = self._held_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer, which comes after the body and is kept as they are."""
        if self._refused:
            return
        self._held_bytes = 0
        self._header_bytes += len(name) + len(value) + len(": \r\n")
        if len(self.url) + self._header_bytes > self._limits.header_bytes:
            self._refuse_size()
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes, self._held_bytes = False, 0, 0
        if self._refused:
            return
        self._head_came()
        if len(self.url) + self._header_bytes > self._limits.header_bytes:
            self._refuse_size()
        else:
            super().on_headers_complete()
            is_asked = bool(self.cycle) and self.cycle.scope is self.scope
            if is_asked and self.scope["http_version"] == "1.0":
                _send_without_chunks(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._held_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_request, self._held_bytes = False, 0
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin the next request, and see to it that this one's answer is taken."""
        # uvicorn closes, now or later, and closing waits for the client to take what is buffered.
        self._await_taking(self._limits.stall_s)
        super().on_response_complete()

    @property
    def _is_answering(self) -> bool:
        # uvicorn calls it a cycle; there is none before the first.
        return bool(self.cycle) and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_due = self.loop.call_later(self._limits.headers_s, self._refuse_pace)

    def _await_next(self) -> None:
        """Wait for the next request after the rest of one that was answered before it had come."""
        if self._in_head:
            if self._head_due is None:
                self._expect_head()
        elif self._head_due is None and self.timeout_keep_alive_task is None:
            # uvicorn has ended it, for something came, and begins it with an answer only.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _head_came(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _await_taking(self, within_s: float | None) -> None:
        """Abort if the last answer's end is not taken within so many seconds; None: no more."""
        if self._taken_due is not None:
            self._taken_due.cancel()
            self._taken_due = None
        if within_s is not None:
            self._taken_due = self.loop.call_later(within_s, self._abort_untaken)

    def _abort_untaken(self) -> None:
        self._taken_due = None
        # A next answer that is on its way has a limit of its own.
        if not self._is_answering and self.transport.get_write_buffer_size():
            self.transport.abort()

    def _refuse_size(self) -> None:
        error = RequestError(
            f"the request's line and headers take more than {self._limits.header_bytes} bytes; "
            "send fewer",
            status=431,
            code="headers_too_large",
        )
        self._refuse("large_headers", error)

    def _refuse_pace(self) -> None:
        error = RequestError(
            f"no whole request came within {self._limits.headers_s:g} s; send its line and headers "
            "at once",
            status=408,
            code="headers_timeout",
        )
        self._refuse("slow_headers", error)

    def _refuse(self, why: Refusal, error: RequestError) -> None:
        """Answer and close, without the application."""
        self._refused = True
        self._head_came()
        self._metrics.connections_refused.labels(why).inc()
        if self._is_answering:
            # Another request's answer is on its way: nothing may be said within it.
            self.transport.abort()
            return
        body = json.dumps(error.body()).encode()
        headers = {
            **error.headers(),
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._await_taking(self._limits.stall_s)
        self.transport.write(STATUS_LINE[error.status] + f"{lines}\r\n".encode() + body)
        self.transport.close()


def _send_without_chunks(cycle: RequestResponseCycle) -> None:
    """Have a request answered to a client of HTTP/1.0, which knows no chunks.

    What has no length is sent as it is, and ends with its connection.
    """
    send, is_unframed = cycle.send, False

    async def send_unframed(message: Any) -> None:
        nonlocal is_unframed
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            if is_unframed := b"content-length" not in names:
                cycle.chunked_encoding = False
        elif is_unframed:
            # uvicorn holds each part against the length that is still due.
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = send_unframed
