"""Makes speech of requests: what the protocols ask of `speech.SpeechService`.

On the event loop are only the text front end (on a worker thread: a first unknown word takes
0.2-0.4 s) and the places: at most `max_streams` utterances are generated at once, at most
`max_queue` wait for one of their places. All else is the engine thread's.
"""

from __future__ import annotations

import asyncio
import collections
import time
from typing import TYPE_CHECKING

from server.engine_thread import EngineThread
from server.frames import REALTIME_TOKENS_PER_S
from server.guards import Guard
from server.planner import Planner
from server.rounds import Submission
from server.speech import BadRequestError, Health, OverloadedError, SpeechRequest
from server.utterance import ServedUtterance

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.codec_decoder import CodecDecoder
    from server.engine import Engine
    from server.frames import TokenLayout
    from server.metrics import Metrics
    from server.plan import PlannerConfig
    from server.text import TextEncoder

LONGEST_WAIT_S = 10.0
"""A request waits so long for a place. Clients that are told to come again do so by themselves."""


# What a character of these kinds is spoken as, in letters: "7" may be "seventy", "$" "dollars".
_DIGIT_LETTERS = 7
_SIGN_LETTERS = 8
_SIGNS = frozenset("$€£¥%&@+=/#°<>")


def spoken_characters(text: str) -> int:
    """Letters that `text` is spoken as, rather more than fewer; guards expect its length by it."""
    return sum(_DIGIT_LETTERS if c.isdigit() else _SIGN_LETTERS if c in _SIGNS else 1 for c in text)


class EngineService:
    """Speech of one engine and one codec in this process."""

    def __init__(
        self,
        open_parts: Callable[[], tuple[Engine, CodecDecoder]],
        text: TextEncoder,
        layout: TokenLayout,
        planner: PlannerConfig,
        metrics: Metrics,
        *,
        max_streams: int,
        max_queue: int,
        longest_wait_s: float = LONGEST_WAIT_S,
    ) -> None:
        """Open the engine and the codec; blocks until both are warm.

        Raises:
            ServerError: they do not open.
        """
        self.max_streams, self.max_queue = max_streams, max_queue
        self._longest_wait_s = longest_wait_s
        self._text = text
        self._active: set[str] = set()
        self._given = 0  # Places given to waiting requests that have not come back to life yet.
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._thread = EngineThread(open_parts, Planner(planner), layout, metrics, self._ended)

    @property
    def engine(self) -> Engine:
        """The engine, for its facts."""
        return self._thread.engine

    async def speak(self, request: SpeechRequest) -> ServedUtterance:
        """Begin an utterance, waiting for a place in the bounded queue if need be.

        Raises:
            OverloadedError: the queue is full, or no place came free in time.
            BadRequestError: the text cannot be spoken.
        """
        asked_s = time.monotonic()
        spoken = spoken_characters(request.text)
        self._check_length(request.text, spoken, prompt_tokens=1)
        # A place first: what is put into phonemes is bounded by the same limits as what is spoken.
        await self._take_place(request.id)
        try:
            prompt_ids = await asyncio.to_thread(self._encode, request)
            self._check_length(request.text, spoken, len(prompt_ids))
        except BaseException:
            self._ended(request.id)
            raise
        utterance = ServedUtterance(request, self._thread.cancel)
        submission = Submission(request, prompt_ids, spoken, utterance, asked_s)
        self._thread.submit(submission, asyncio.get_running_loop())
        return utterance

    def health(self) -> Health:
        """How the service is: degraded while its queue is full."""
        waiting = len(self._waiting)
        status = "ok"
        if self._thread.failure is not None:
            status = "failed"
        elif len(self._active) >= self.max_streams and waiting >= self.max_queue:
            status = "degraded"
        return Health(status, len(self._active), waiting)

    def abandon(self) -> None:
        """End every utterance and refuse what waits, now; called on the event loop."""
        for place in self._waiting:
            if not place.done():
                place.set_exception(OverloadedError("the server is ending; try again"))
        for name in self._active:
            self._thread.cancel(name)

    def close(self) -> None:
        """End every utterance, the engine and the thread; blocks until they have ended."""
        self._thread.close()

    def _check_length(self, text: str, spoken: int, prompt_tokens: int) -> None:
        """Raises BadRequestError where the model's length would cut the speech off."""
        longest = self.engine.facts.max_model_len
        needed = prompt_tokens + round(Guard(spoken).expected_s * REALTIME_TOKENS_PER_S)
        if needed > longest:
            raise BadRequestError(
                f"a text of {len(text)} characters takes about {needed} tokens, its speech "
                f"included, and the model has {longest}: its end would be lost; send it in pieces, "
                "a sentence or two each (the WebSocket cuts them with split_granularity sentence)",
                param="input",
            )

    def _encode(self, request: SpeechRequest) -> list[int]:
        try:
            return self._text.encode(request.text, request.voice)
        except ValueError as error:
            raise BadRequestError(str(error), param="input") from error

    async def _take_place(self, name: str) -> None:
        if len(self._active) + self._given < self.max_streams and not self._waiting:
            self._active.add(name)
            return
        if len(self._waiting) >= self.max_queue:
            raise OverloadedError(
                f"all {self.max_streams} places are taken and {len(self._waiting)} requests wait; "
                "try again"
            )
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self._longest_wait_s):
                await place
        except BaseException as error:
            if place in self._waiting:
                self._waiting.remove(place)
            if place.done() and not place.cancelled() and place.exception() is None:
                self._given -= 1
                self._give_place()  # It came just then.
            if isinstance(error, TimeoutError):
                raise OverloadedError(
                    f"no place came free in {self._longest_wait_s:g} s; try again"
                ) from error
            raise
        self._given -= 1
        self._active.add(name)

    def _ended(self, name: str) -> None:
        self._active.discard(name)
        self._give_place()

    def _give_place(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self._given += 1
                place.set_result(None)
                return
