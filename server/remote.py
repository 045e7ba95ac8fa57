"""Speech in an API process: asked of the engine's process, and read as if it were made here."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from server.errors import BadRequestError, OverloadedError
from server.utterance import ServedUtterance
from server.wav import BYTES_PER_SAMPLE
from server.wire import Began, Cancel, Ended, HealthIs, Refused, Speak

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.link import Link
    from server.speech import Health, SpeechRequest
    from server.wire import Audio, Message


class RemoteUtterance(ServedUtterance):
    """Tells how much of it has been taken, so that its maker can pause."""

    def __init__(
        self, request: SpeechRequest, cancel: Callable[[str], None], took: Callable[[int], None]
    ) -> None:
        super().__init__(request, cancel)
        self._took = took

    async def __anext__(self) -> bytes:
        chunk = await super().__anext__()
        self._took(len(chunk) // BYTES_PER_SAMPLE)
        return chunk


class RemoteService:
    """Speech of the engine's process at the other end of `link`."""

    def __init__(self, link: Link, health: Health) -> None:
        self._link = link
        self._health = health
        self._numbers = itertools.count()
        self._utterances: dict[int, RemoteUtterance] = {}
        self._asked: dict[int, asyncio.Future[None]] = {}

    async def speak(self, request: SpeechRequest) -> RemoteUtterance:
        """Begin an utterance, waiting for a place in the bounded queue if need be.

        Raises:
            OverloadedError: the queue is full, or no place came free in time.
            BadRequestError: the text cannot be spoken.
        """
        number = next(self._numbers)
        utterance = RemoteUtterance(
            request,
            lambda _: self._link.send(Cancel(number)),
            lambda samples: self._link.took(number, samples),
        )
        self._utterances[number] = utterance
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._link.send(Speak(number, request))
        try:
            await answer
        except BaseException as error:
            if not isinstance(error, OverloadedError | BadRequestError):
                # Whoever asked is gone; it may have begun meanwhile.
                self._link.send(Cancel(number))
            self._utterances.pop(number, None)
            raise
        finally:
            del self._asked[number]
        return utterance

    def health(self) -> Health:
        """How the engine's process said last that the service is."""
        return self._health

    def abandon(self) -> None:
        """End every utterance and refuse what waits, now."""
        for number in self._utterances:
            self._link.send(Cancel(number))
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(OverloadedError("the server is ending; try again"))

    def close(self) -> None:
        """Do nothing: the engine is another process's."""

    def put(self, audio: Sequence[Audio]) -> None:
        """Audio has come."""
        for number, chunk in audio:
            # Of one that was given up here, some may still be on its way.
            if utterance := self._utterances.get(number):
                utterance.put(chunk)

    def hear(self, message: Message) -> None:
        """Take what the engine's process says of utterances and health."""
        match message:
            case HealthIs():
                self._health = message.health
            case Began():
                self._answer(message.number, None)
            case Refused():
                self._answer(message.number, _error(message))
            case Ended():
                if utterance := self._utterances.pop(message.number, None):
                    utterance.end(message.report)
            case _:
                raise AssertionError(f"{message} is not for an API process")

    def _answer(self, number: int, error: Exception | None) -> None:
        answer = self._asked.get(number)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)


def _error(refused: Refused) -> Exception:
    match refused.kind:
        case "overloaded":
            return OverloadedError(refused.words, retry_after_s=refused.retry_after_s)
        case "bad_request":
            return BadRequestError(refused.words, param=refused.param, code=refused.code)
        case "broken":
            return RuntimeError(refused.words)
