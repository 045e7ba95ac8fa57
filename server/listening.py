"""The listening socket, and uvicorn made fit for streams of audio."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.errors import ServerError
from server.response import ABORT

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from fastapi import FastAPI

# About 1.4 s of audio each; Linux doubles the first. With the kernel's own sizes a reader that
# stalls is noticed only minutes of audio later, and as much is sent in vain after a cancel.
SEND_BUFFER_BYTES = 64 * 1024
WRITE_BUFFER_BYTES = 64 * 1024
# Between two sentences of a client that reuses its connection.
KEEP_ALIVE_S = 75
# A player that takes audio as it plays answers a ping only when it has read all that lies before.
PING_S = 60.0
# Larger than any message the session takes, so that it can say why it takes it not.
LARGEST_MESSAGE_BYTES = 4 << 20


class PortError(ServerError):
    """The address cannot be listened on."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to `host` and `port` (0: any that is free), listening soon.

    Raises:
        PortError: it is taken, not allowed, or no address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise PortError(f"--host {host!r} is no address: {error}; try 127.0.0.1") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Sockets that it accepts have the same.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind(address)
        # Now, not when the model is loaded: two servers on one port must not both load.
        listener.listen(2_048)
    except OSError as error:
        listener.close()
        remedy = {
            errno.EADDRINUSE: "another process has it; choose another with --port, or 0 for any",
            errno.EACCES: "ports below 1024 are not for this user; choose another with --port",
            errno.EADDRNOTAVAIL: "this machine has no such address; try --host 127.0.0.1",
        }.get(error.errno or 0, "choose another with --host and --port")
        raise PortError(f"cannot listen on {host} port {port}: {error.strerror}; {remedy}") from (
            error
        )
    return listener


def url_of(listener: socket.socket) -> str:
    """Address by which a client of this machine reaches `listener`."""
    host, port = str(listener.getsockname()[0]), int(listener.getsockname()[1])
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def http_server(app: FastAPI) -> uvicorn.Server:
    """A uvicorn server of `app` that leaves signals to whoever runs it."""
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        app,
        http=_Http,
        ws="websockets-sansio",
        ws_per_message_deflate=False,  # 53 instead of 8 microseconds a chunk, for nothing.
        ws_max_size=LARGEST_MESSAGE_BYTES,
        ws_ping_interval=PING_S / 2,
        ws_ping_timeout=PING_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,  # Streams have been waited for before.
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Http(HttpToolsProtocol):
    """A connection whose requests, and the WebSocket it may become, can abort it."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.app_state = {**self.app_state, ABORT: transport.abort}
        super().connection_made(transport)


def _is_news(record: logging.LogRecord) -> bool:
    # That is how a raw stream that fails tells its client; the request's own line says why.
    return "returned without completing response" not in record.getMessage()
