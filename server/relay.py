"""Speech for one API process, in the engine's process: begins, hands over, and cancels it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from server.errors import BadRequestError, OverloadedError
from server.utterance import ServedUtterance
from server.wav import BYTES_PER_SAMPLE
from server.wire import Began, Cancel, Ended, Refused, Speak

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.link import Link
    from server.speech import SpeechRequest, UtteranceReport
    from server.utterance import MakeUtterance
    from server.wire import Taken

_LOG = logging.getLogger("server")


class RelayedUtterance(ServedUtterance):
    """Goes on to an API process; its lead is what the reader there has not taken."""

    def __init__(
        self,
        request: SpeechRequest,
        cancel: Callable[[str], None],
        link: Link,
        number: int,
        ended: Callable[[int], None],
    ) -> None:
        super().__init__(request, cancel)
        self._link, self._number, self._has_ended = link, number, ended

    def put(self, chunk: bytes) -> None:
        """A chunk has been made."""
        self._waiting_samples += len(chunk) // BYTES_PER_SAMPLE
        self._link.put(self._number, chunk)

    def taken(self, samples: int) -> None:
        """The reader has taken so much."""
        self._waiting_samples -= samples
        self._taken.set()

    def end(self, report: UtteranceReport) -> None:
        """Nothing more comes."""
        super().end(report)
        self._link.send(Ended(self._number, report))
        self._has_ended(self._number)


class RelayedService(Protocol):
    """The service whose speech is relayed."""

    async def speak(self, request: SpeechRequest, make: MakeUtterance) -> ServedUtterance:
        """Begin an utterance that `make` gives."""
        ...


class Relay:
    """The utterances of one API process."""

    def __init__(self, service: RelayedService, link: Link, changed: Callable[[], None]) -> None:
        """Relay speech of `service`; `changed` is called when its health may have changed."""
        self._service, self._link, self._changed = service, link, changed
        self._beginning: dict[int, asyncio.Task[None]] = {}
        self._speaking: dict[int, RelayedUtterance] = {}

    def __len__(self) -> int:
        return len(self._beginning) + len(self._speaking)

    def hear(self, message: Speak | Cancel) -> None:
        """Begin or cancel an utterance."""
        number = message.number
        if isinstance(message, Speak):
            task = asyncio.create_task(self._begin(number, message.request), name="begin")
            self._beginning[number] = task
            # Not at the task's own end: one that is cancelled at once never runs.
            task.add_done_callback(lambda _: self._has_begun(number))
            self._changed()
        elif utterance := self._speaking.get(number):
            utterance.cancel()
        elif task := self._beginning.get(number):
            task.cancel()

    def taken(self, taken: Sequence[Taken]) -> None:
        """Readers have taken audio."""
        for number, samples in taken:
            # The rest of one that has ended is taken, too.
            if utterance := self._speaking.get(number):
                utterance.taken(samples)

    def close(self) -> None:
        """End all: the process is gone."""
        for utterance in self._speaking.values():
            utterance.cancel()
        for task in self._beginning.values():
            task.cancel()

    async def _begin(self, number: int, request: SpeechRequest) -> None:
        def make(request: SpeechRequest, cancel: Callable[[str], None]) -> ServedUtterance:
            made = RelayedUtterance(request, cancel, self._link, number, self._has_ended)
            self._speaking[number] = made
            return made

        try:
            await self._service.speak(request, make)
        except OverloadedError as error:
            words, retry_after_s = str(error), error.retry_after_s
            self._link.send(Refused(number, "overloaded", words, retry_after_s=retry_after_s))
        except BadRequestError as error:
            param, code = error.param, error.code
            self._link.send(Refused(number, "bad_request", str(error), param=param, code=code))
        except Exception as error:
            _LOG.exception("an utterance did not begin")
            self._link.send(Refused(number, "broken", f"{type(error).__name__}: {error}"))
        else:
            self._link.send(Began(number))

    def _has_begun(self, number: int) -> None:
        del self._beginning[number]
        self._changed()

    def _has_ended(self, number: int) -> None:
        del self._speaking[number]
        self._changed()
