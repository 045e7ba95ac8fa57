"""A delivery's bytes: what is flushed when, what is counted, and what a cancel leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from decoded import decode

from server.encoder import encoder_of
from server.formats import FORMATS, ResponseFormat
from server.rendition import Rendition, held_back_s
from server.tempo import held_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.errors import RequestError

CHUNK = np.rint(
    8_000 * np.sin(2 * np.pi * 150 * np.arange(2_048) / 24_000) * np.hanning(2_048)
).astype("<i2")
PCM = CHUNK.tobytes()


class Deliveries:
    """What a rendition asks of a delivery: its chunks, whether they failed, and what was sent."""

    def __init__(self, chunks: Sequence[bytes], failure: RequestError | str | None = None) -> None:
        self._chunks = iter(chunks)
        self._failure = failure
        self.sent_parts: list[tuple[int, int, int]] = []

    async def next(self) -> bytes | None:
        return next(self._chunks, None)

    def failure(self) -> RequestError | str | None:
        return self._failure

    def sent(self, size: int, *, samples: int, playable: int) -> None:
        self.sent_parts.append((size, samples, playable))


def read(
    delivery: Deliveries, name: ResponseFormat, speed: float = 1.0, *, whole: bool = False
) -> list[bytes]:
    async def read_all() -> list[bytes]:
        parts: list[bytes] = []
        with Rendition(delivery, name, speed, whole=whole) as rendition:
            while (audio := await rendition.next()) is not None:
                parts.append(audio)
                rendition.sent(audio)
        return parts

    return asyncio.run(read_all())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("speed", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("whole", [False, True])
def test_all_that_was_taken_is_given_and_counted_once(
    name: ResponseFormat, speed: float, whole: bool
) -> None:
    delivery = Deliveries([PCM] * 20)
    parts = read(delivery, name, speed, whole=whole)
    assert all(parts)
    assert len(parts) == 1 if whole else len(parts) > 5
    sizes, samples, playable = zip(*delivery.sent_parts, strict=True)
    assert list(sizes) == [len(part) for part in parts]
    assert sum(samples) == 20 * 2_048
    seconds = sum(playable) / 24_000
    assert seconds == pytest.approx(20 * 2_048 / 24_000 / speed, abs=0.1)
    heard = decode(name, b"".join(parts))
    assert len(heard) / 24_000 == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize("name", FORMATS)
def test_after_a_failure_or_a_cancel_nothing_is_flushed(name: ResponseFormat) -> None:
    whole = b"".join(read(Deliveries([PCM] * 20), name, 1.5))
    cut = b"".join(read(Deliveries([PCM] * 20, "cancelled"), name, 1.5))
    assert 0 < len(cut) < len(whole)
    if name != "opus":  # Its pages have another serial number.
        assert whole.startswith(cut)
    assert read(Deliveries([PCM] * 20, "cancelled"), name, whole=True) == []


def test_a_client_that_goes_while_a_chunk_is_encoded_closes_the_encoder_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_thread, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    class Slow:
        """An encoder that takes as long as the test wants."""

        def __init__(self) -> None:
            self._encoder = encoder_of("mp3")
            self.playable = 0

        def push(self, pcm: bytes) -> bytes:
            in_thread.set()
            assert go_on.wait(60)
            order.append("encoded")
            return self._encoder.push(pcm)

        def end(self) -> bytes:
            raise AssertionError("it was flushed")

        def close(self) -> None:
            order.append("closed")
            self._encoder.close()
            closed.set()

    monkeypatch.setattr("server.rendition.encoder_of", lambda *_, **__: Slow())

    async def leave() -> None:
        async def listen() -> None:
            with Rendition(Deliveries([PCM]), "mp3", 1.0) as rendition:
                await rendition.next()

        listener = asyncio.create_task(listen())
        await asyncio.to_thread(in_thread.wait, 60)
        listener.cancel()
        # The event loop is free at once, whatever the thread is at.
        await asyncio.wait((listener,))
        assert order == []
        go_on.set()
        await asyncio.to_thread(closed.wait, 60)

    asyncio.run(leave())
    assert order == ["encoded", "closed"]


def test_what_is_held_back_is_the_formats_and_the_tempos() -> None:
    assert held_back_s("pcm", 1.0) == 0
    assert held_back_s("mp3", 1.0) == FORMATS["mp3"].held_s
    assert held_back_s("mp3", 0.5) == FORMATS["mp3"].held_s + held_s(0.5)
