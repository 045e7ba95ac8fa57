"""An utterance between the thread that makes it and the event loop that sends it."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

from server.frames import SAMPLE_RATE_HZ
from server.wav import BYTES_PER_SAMPLE

if TYPE_CHECKING:
    from server.speech import SpeechRequest, UtteranceReport


MakeUtterance = Callable[["SpeechRequest", Callable[[str], None]], "ServedUtterance"]
"""Gives the utterance of a request; the other argument ends it by the request's id."""


class AudioSink(Protocol):
    """Where the engine's thread has the audio of an utterance go, by way of the event loop."""

    request: SpeechRequest

    @property
    def lead_s(self) -> float:
        """Seconds of audio that the reader has not taken yet; read on the engine's thread."""
        ...

    def put(self, chunk: bytes) -> None:
        """A chunk has been made."""
        ...

    def end(self, report: UtteranceReport) -> None:
        """Nothing more comes."""
        ...


class ServedUtterance:
    """Chunks as they are made, for one reader on the event loop.

    Only `lead_s` is read on another thread. What is put is never dropped: a reader that takes
    nothing makes `lead_s` grow, by which the maker pauses.
    """

    def __init__(self, request: SpeechRequest, cancel: Callable[[str], None]) -> None:
        self.request = request
        self.report: UtteranceReport | None = None
        self._cancel = cancel
        self._chunks: collections.deque[bytes] = collections.deque()
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._ended: UtteranceReport | None = None
        self._waiting_samples = 0

    @property
    def lead_s(self) -> float:
        """Seconds of audio, as played, that the reader has not taken yet."""
        return self._waiting_samples / SAMPLE_RATE_HZ / self.request.speed

    async def room(self, lead_s: float) -> None:
        """Wait until less than `lead_s` of audio waits for the reader."""
        while self.lead_s >= lead_s:
            self._taken.clear()
            await self._taken.wait()

    def put(self, chunk: bytes) -> None:
        """A chunk has been made."""
        self._chunks.append(chunk)
        self._waiting_samples += len(chunk) // BYTES_PER_SAMPLE
        self._news.set()

    def end(self, report: UtteranceReport) -> None:
        """Nothing more comes; the report is the reader's once it has taken all chunks."""
        self._ended = report
        self._news.set()

    def cancel(self) -> None:
        """Stop making it at once and free its place; harmless when it has ended."""
        if self._ended is None:
            self._cancel(self.request.id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._ended is not None:
                self.report = self._ended
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        chunk = self._chunks.popleft()
        self._waiting_samples -= len(chunk) // BYTES_PER_SAMPLE
        self._taken.set()
        return chunk
