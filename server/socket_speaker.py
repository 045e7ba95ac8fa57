"""What one socket speaks: utterance after utterance, and sentence after sentence."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

from server.errors import RequestError
from server.rendition import Rendition
from server.socket_sender import NORMAL_CLOSURE, SERVICE_RESTART
from server.turn import SentenceMessages

if TYPE_CHECKING:
    from server.delivery import Delivery
    from server.serving import Serving
    from server.socket_sender import SocketSender
    from server.turn import Turn


class SocketSpeaker:
    """Speaks the turns of a socket in order, while others come."""

    def __init__(self, serving: Serving, sender: SocketSender, label: str) -> None:
        """`label` is the socket's x-request-id."""
        self._serving, self._sender, self._label = serving, sender, label
        self._turns: collections.deque[Turn] = collections.deque()  # Not finished; first speaks.
        self._news = asyncio.Event()
        self._closing = False
        self._delivery: Delivery | None = None
        self._beginning: asyncio.Task[Delivery] | None = None
        self._spoke_s = -math.inf

    @property
    def unfinished_turns(self) -> int:
        """Turns that are not finished, the one that is spoken included."""
        return len(self._turns)

    @property
    def waiting_characters(self) -> int:
        """Characters that are not spoken yet."""
        return sum(turn.waiting_characters for turn in self._turns)

    @property
    def silent_s(self) -> float:
        """How long nothing has been spoken; 0 while something is."""
        is_speaking = (
            self._delivery is not None
            or self._beginning is not None
            or any(turn.has_sentence for turn in self._turns)
        )
        return 0.0 if is_speaking else time.monotonic() - self._spoke_s

    def add(self, turn: Turn) -> None:
        """Speak a turn after those before it; its text may still come."""
        self._turns.append(turn)
        self._news.set()

    def cancel(self) -> None:
        """Drop all that is not spoken yet, and be silent at once."""
        for turn in self._turns:
            turn.cancel()
        if self._delivery is not None:
            self._delivery.cancel()
        elif self._beginning is not None:
            self._beginning.cancel()

    def finish(self) -> None:
        """Close the socket as soon as all turns are spoken."""
        self._closing = True
        self._news.set()

    def drop(self) -> None:
        """Count and log what is left of a socket that has ended."""
        for turn in self._turns:
            turn.cancel()
            self._log_dropped(turn)

    async def run(self) -> None:
        """Speak one turn after the other; close the socket when that was asked for."""
        while True:
            while not self._turns:
                if self._closing:
                    is_ending = self._serving.state in ("draining", "failed")
                    await self._sender.close(SERVICE_RESTART if is_ending else NORMAL_CLOSURE)
                    return
                self._news.clear()
                await self._news.wait()
            await self._speak(self._turns[0])
            self._turns.popleft()

    async def _speak(self, turn: Turn) -> None:
        while (sentence := await turn.next_sentence()) is not None:
            turn.spoken += await self._speak_sentence(turn, sentence)
        self._log_dropped(turn)
        done: dict[str, Any] = {
            "type": "session.done",
            "utterance_index": turn.index,
            "total_sentences": turn.spoken,
        }
        await self._sender.send(done | ({"cancelled": True} if turn.cancelled else {}))

    async def _speak_sentence(self, turn: Turn, text: str) -> bool:
        """One sentence: audio.start, audio, audio.done. The first and the last always come.

        Not of a sentence with nothing to speak after others; whether it counts is the result.
        """
        sending = SentenceMessages(self._sender.send, turn, text)
        try:
            delivery = await self._begin(turn, text)
            if delivery is not None:
                with delivery:
                    self._delivery = delivery
                    if turn.cancelled:
                        delivery.cancel()
                    await self._deliver(delivery, turn, sending)
        except RequestError as error:
            self._delivery = None
            if error.code == "nothing_to_speak" and turn.spoken:
                return False  # An emoji at the end, say: what there was to speak is spoken.
            await sending.failed(error)
        finally:
            self._delivery = None
            self._spoke_s = time.monotonic()
        await sending.end()
        return True

    async def _deliver(self, delivery: Delivery, turn: Turn, sending: SentenceMessages) -> None:
        config = turn.config
        with Rendition(
            delivery,
            config.available_format(),
            config.played_speed,
            whole=not config.stream_audio,
        ) as rendition:
            while (audio := await rendition.next()) is not None:
                # What was made before a cancel is no longer wanted.
                if turn.cancelled:
                    continue
                await sending.start()
                await self._sender.send_audio(delivery, audio)
                rendition.sent(audio)
                sending.total_bytes += len(audio)
        # Before a failure, too: some of it may have been sent.
        sending.report = delivery.report
        sending.samples = delivery.sent_samples
        if not turn.cancelled and (failure := delivery.failure()):
            raise failure

    async def _begin(self, turn: Turn, text: str) -> Delivery | None:
        """The delivery of a sentence once it has a place; None when it was cancelled before."""
        label = f"{self._label}-{turn.index}-{turn.spoken}"
        was_asked = False

        async def begin() -> Delivery:
            nonlocal was_asked
            was_asked = True
            return await self._serving.begin(
                *(text, turn.config, "websocket", label),
                # One message a sentence is collected before it is sent.
                whole=not turn.config.stream_audio,
            )

        # A task of its own, so that a cancel can end the wait in the queue and not this speaker.
        self._beginning = asyncio.ensure_future(begin())
        try:
            return await self._beginning
        except asyncio.CancelledError:
            if turn.cancelled and self._beginning.cancelled():
                return None
            if self._beginning.done() and not self._beginning.cancelled():
                # It began just then, and nobody is there to take it.
                with contextlib.suppress(RequestError), self._beginning.result():
                    pass
            raise
        finally:
            self._beginning.cancel()
            self._beginning = None
            if not was_asked:
                self._serving.broken_off("websocket", label, characters=len(text))

    def _log_dropped(self, turn: Turn) -> None:
        """Count and log, as one, what of an utterance was dropped before it began."""
        if turn.dropped_characters:
            label = f"{self._label}-{turn.index}"
            self._serving.broken_off("websocket", label, characters=turn.dropped_characters)
            turn.dropped_characters = 0
