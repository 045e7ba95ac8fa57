"""The listening socket, and uvicorn made fit for streams of audio."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import resource
import socket
from typing import TYPE_CHECKING

import uvicorn

from server.connection import WRITE_BUFFER_BYTES, Connection
from server.errors import PortError
from server.socket_connection import SocketConnection

if TYPE_CHECKING:
    from collections.abc import Generator

    from fastapi import FastAPI

    from server.limits import Limits
    from server.metrics import Metrics

SEND_BUFFER_BYTES = WRITE_BUFFER_BYTES  # Of the kernel; Linux doubles it.
# Between two sentences of a client that reuses its connection.
KEEP_ALIVE_S = 75
# A player that takes audio as it plays answers a ping only when it has read all that lies before.
PING_S = 60.0
# Larger than any message the session takes, so that it can say why it takes it not.
LARGEST_MESSAGE_BYTES = 4 << 20
_OTHER_FILES = 512  # Weights, the engine's own sockets and pipes, devices.

_LOG = logging.getLogger("server")


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


def http_server(app: FastAPI, limits: Limits, metrics: Metrics) -> uvicorn.Server:
    """A uvicorn server of `app` that leaves signals to whoever runs it."""
    _allow_files(limits.connections)
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        app,
        http=functools.partial(Connection, limits, metrics),  # pyright: ignore[reportArgumentType]
        ws=functools.partial(SocketConnection, limits),  # pyright: ignore[reportArgumentType]
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
    server = _Server(config)
    metrics.open_connections.set_function(lambda: len(server.server_state.connections))
    return server


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _allow_files(connections: int) -> None:
    """Raise this process' limit of open files to what so many connections need."""
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        _LOG.warning(
            "%d open files are allowed, and --limit connections=%d needs %d; raise ulimit -n",
            *(allowed, connections, needed),
        )


_NO_NEWS = (
    # So a raw stream that fails tells its client, and a handshake is refused; a line of our own
    # says why.
    "returned without completing response",
    "returned without completing handshake",
    # Its client is told by close code 1007; a traceback for each such frame fills a disk.
    "Invalid UTF-8 sequence received from client",
)


def _is_news(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    return not any(known in message for known in _NO_NEWS)
