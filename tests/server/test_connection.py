"""A connection whose client does not take the end of an answer; the network is the test's."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from server.connection import Connection
from server.limits import Limits
from server.metrics import Metrics
from server.socket_connection import SocketConnection

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Network(asyncio.Transport):
    """A transport that has everything taken but `left` bytes."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        self.aborted = asyncio.Event()
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: Any) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.left

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def abort(self) -> None:
        self.aborted.set()

    def resume_reading(self) -> None: ...

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def connected(network: Network, stall_s: float) -> Connection:
    limits = Limits(stall_s=stall_s)
    sockets = functools.partial(SocketConnection, limits)
    config = uvicorn.Config(answer, log_config=None, lifespan="off", ws=sockets)
    config.load()
    made = Connection(
        *(limits, Metrics()),
        config=config,
        server_state=ServerState(),
        app_state={},
    )
    made.connection_made(network)
    return made


def test_an_answers_end_that_is_not_taken_in_time_ends_the_connection() -> None:
    async def check() -> None:
        network = Network(left=10)
        connected(network, 0.001).data_received(REQUEST)
        await asyncio.wait_for(network.aborted.wait(), 60)

    asyncio.run(check())


def test_a_refusal_that_is_not_taken_in_time_ends_the_connection() -> None:
    async def check() -> None:
        network = Network(left=10)
        connected(network, 0.001).data_received(REQUEST[:-2] + b"X: " + b"x" * 40_000)
        await asyncio.wait_for(network.aborted.wait(), 60)

    asyncio.run(check())


def test_a_connection_whose_answers_are_taken_stays() -> None:
    async def check() -> None:
        network = Network(left=0)
        connection = connected(network, 0.0)
        for _ in range(3):
            connection.data_received(REQUEST)
            # Longer than all that is due now: timers run in order.
            await asyncio.sleep(0.01)
        assert not network.aborted.is_set()
        connection.connection_lost(None)

    asyncio.run(check())


def test_a_handshake_that_comes_in_parts_makes_a_socket_that_no_timer_closes() -> None:
    async def check() -> None:
        network = Network(left=0)
        connection = connected(network, 60.0)
        for part in (HANDSHAKE[:40], HANDSHAKE[40:]):
            connection.data_received(part)
        assert isinstance(network.protocol, SocketConnection)
        # That of a connection which waits for its next request would end the socket.
        assert connection.timeout_keep_alive_task is None
        network.protocol.connection_lost(None)

    asyncio.run(check())
