"""A delivery's audio as its client asked for it: at another speed, in another format.

Compressing takes milliseconds a chunk. It is done on threads of its own, so that neither the event
loop nor other streams wait for it; FFmpeg does not hold Python's lock meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np

from server.encoder import encoder_of
from server.formats import FORMATS
from server.tempo import Tempo, held_s
from server.wav import BYTES_PER_SAMPLE

if TYPE_CHECKING:
    from concurrent.futures import Future

    from server.delivery import Delivery
    from server.formats import ResponseFormat

_MOST_THREADS = 8
_THREADS = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="encode")


def held_back_s(name: ResponseFormat, speed: float) -> float:
    """Most seconds of played audio that a rendition holds back: what it was given and gives not."""
    return FORMATS[name].held_s + held_s(speed)


class Rendition:
    """One delivery's bytes; to be used as a context, within the delivery's own."""

    def __init__(
        self, delivery: Delivery, name: ResponseFormat, speed: float, *, whole: bool = False
    ) -> None:
        """Of a `whole` one all bytes come at once, with a header that tells the true length."""
        self._delivery = delivery
        self._tempo = Tempo(speed)
        self._encoder = encoder_of(name, whole=whole)
        self._is_plain = FORMATS[name].coding is None and speed == 1.0
        self._running: Future[bytes] | None = None
        self._has_ended = False
        self._samples = 0  # Of the model's; taken and not sent yet.
        self._played = 0  # Samples that the client has been given to play.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is None:
            self._encoder.close()
        else:
            # A thread may still be in it: whoever is last puts out the light.
            self._running.add_done_callback(lambda _: self._encoder.close())

    async def next(self) -> bytes | None:
        """The next bytes to send, never none; None after the last.

        What an encoder holds back comes at a proper end alone: after a failure or a cancel (which
        `Delivery.failure` tells) nothing more does.
        """
        while not self._has_ended:
            chunk = await self._delivery.next()
            if chunk is None:
                self._has_ended = True
                if self._delivery.failure() is not None:
                    return None
            else:
                self._samples += len(chunk) // BYTES_PER_SAMPLE
            audio = await self._render(chunk)
            if audio:
                return audio
        return None

    def sent(self, audio: bytes) -> None:
        """Note that what `next` gave has been handed to the socket."""
        played = self._encoder.playable
        self._delivery.sent(len(audio), samples=self._samples, playable=played - self._played)
        self._samples, self._played = 0, played

    async def _render(self, chunk: bytes | None) -> bytes:
        if self._is_plain:
            return self._encode(chunk)
        self._running = _THREADS.submit(self._encode, chunk)
        # A cancel leaves `_running` set: its thread goes on to the end of this chunk.
        audio = await asyncio.wrap_future(self._running)
        self._running = None
        return audio

    def _encode(self, chunk: bytes | None) -> bytes:
        """The bytes that follow from a chunk of PCM; None is the end."""
        if chunk is None:
            rest = self._encoder.push(self._tempo.end().astype("<i2").tobytes())
            return rest + self._encoder.end()
        if self._tempo.speed == 1.0:
            return self._encoder.push(chunk)
        samples = self._tempo.push(np.frombuffer(chunk, "<i2").astype(np.int16))
        return self._encoder.push(samples.astype("<i2").tobytes())
