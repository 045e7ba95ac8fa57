"""One end of the socket between the engine's process and an API process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from server.wire import Unpacker, packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.wire import Audio, Frame, Message


class Link(asyncio.Protocol):
    """Says and hears what `wire` describes, on the event loop.

    What is said in one turn of the loop goes out together at its end: one write a tick, however
    many streams run. What waits for a process that reads nothing is bounded: by its streams, each
    of which pauses when so much of its audio has not been taken, and to one of each message that is
    said again and again, of which only the newest counts.
    """

    def __init__(self, hear: Callable[[Frame], None]) -> None:
        self.lost = asyncio.Event()  # The other process, or its socket, is gone.
        self._hear = hear
        self._transport: asyncio.Transport | None = None
        self._unpacker = Unpacker()
        self._audio: list[Audio] = []
        self._taken: dict[int, int] = {}
        self._messages: list[Message] = []
        self._newest: dict[type[Message], Message] = {}
        self._flushing = False
        self._behind = False  # The other process does not take what it is sent.

    def send(self, message: Message) -> None:
        """Say something; after the audio of this turn."""
        self._messages.append(message)
        self._flush_soon()

    def send_newest(self, message: Message) -> None:
        """Say how something is now; before it is heard, another of its kind takes its place."""
        self._newest[type(message)] = message
        self._flush_soon()

    def put(self, number: int, chunk: bytes) -> None:
        """Hand over the next audio of an utterance."""
        self._audio.append((number, chunk))
        self._flush_soon()

    def took(self, number: int, samples: int) -> None:
        """Tell that an utterance's reader has taken so much of its audio."""
        self._taken[number] = self._taken.get(number, 0) + samples
        self._flush_soon()

    def close(self) -> None:
        """Say what waits, then nothing more."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._unpacker.feed(data):
            self._hear(frame)

    def pause_writing(self) -> None:
        self._behind = True

    def resume_writing(self) -> None:
        self._behind = False
        if self._newest:
            self._flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._behind:
            self._messages += self._newest.values()
            self._newest.clear()
        if self._transport is not None and not self._transport.is_closing():
            data = packed(self._audio, self._taken.items(), self._messages)
            if data:
                self._transport.write(data)
        self._audio.clear()
        self._taken.clear()
        self._messages.clear()
