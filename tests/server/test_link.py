"""What waits for a process that reads nothing, and what it hears when it reads again."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

import uvloop

from server.link import Link
from server.speech import Health
from server.wire import Began, HealthIs, Unpacker

if TYPE_CHECKING:
    from server.wire import Message

SAID = 30_000  # More than the system's buffers take.
WRITE_BUFFER_BYTES = 64 * 1024  # From there on a transport says that it is full.


class WatchedLink(Link):
    """Shows how much its transport holds."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)


def newest(count: int) -> HealthIs:
    return HealthIs(Health("ok", count, 0))


def test_of_what_is_said_again_and_again_the_newest_alone_waits() -> None:
    async def scenario() -> tuple[int, list[Message]]:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        link = WatchedLink(lambda _: None)
        await loop.create_unix_connection(lambda: link, sock=ours)
        most_held = 0
        for count in range(SAID):
            link.send_newest(newest(count))
            await asyncio.sleep(0)
            most_held = max(most_held, link.transport.get_write_buffer_size())
        link.send(Began(7))
        heard: list[Message] = []
        unpacker = Unpacker()
        with theirs:
            async with asyncio.timeout(60):
                while newest(SAID - 1) not in heard[-1:]:
                    data = await loop.sock_recv(theirs, 1 << 20)
                    heard += [each.message for each in unpacker.feed(data) if each.message]
        link.close()
        while ours.fileno() != -1:  # The loop closes what it was given in turns of its own.
            await asyncio.sleep(0)
        return most_held, heard

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        most_held, heard = runner.run(scenario())
    assert 0 < most_held < 2 * WRITE_BUFFER_BYTES
    assert len(heard) < SAID
    assert heard.count(Began(7)) == 1  # What is said once is not lost.


def test_what_is_said_once_is_heard_also_where_the_link_closes_while_it_is_behind() -> None:
    async def scenario() -> list[Message]:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        link = WatchedLink(lambda _: None)
        await loop.create_unix_connection(lambda: link, sock=ours)
        for count in range(SAID):
            link.send_newest(newest(count))
            await asyncio.sleep(0)
        assert link.transport.get_write_buffer_size() > 0
        link.send(Began(7))
        link.close()
        heard: list[Message] = []
        unpacker = Unpacker()
        with theirs:
            async with asyncio.timeout(60):
                while data := await loop.sock_recv(theirs, 1 << 20):
                    heard += [each.message for each in unpacker.feed(data) if each.message]
                await link.lost.wait()
        return heard

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        heard = runner.run(scenario())
    assert heard[-1] == Began(7)
    assert len(heard) < SAID
