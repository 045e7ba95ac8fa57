"""Makes speech of requests: what the protocols ask of `speech.SpeechService`.

On the event loop are only the text front end (on a worker thread: a first unknown word takes
0.2-0.4 s) and the places. All else is the engine thread's.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from server.engine_thread import EngineThread
from server.lead_ins import LeadIns
from server.passage import Part, Passage, PassagePiece
from server.places import LONGEST_WAIT_S, Admission, Places
from server.planner import Planner
from server.rounds import Submission
from server.speech import Health, SpeechRequest
from server.text_parts import TextParts
from server.utterance import ServedUtterance

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.codec_calls import Decoder
    from server.engine import Engine
    from server.frames import TokenLayout
    from server.metrics import Metrics
    from server.plan import PlannerConfig
    from server.text import TextEncoder
    from server.utterance import MakeUtterance


class EngineService:
    """Speech of one engine and one codec in this process."""

    def __init__(
        self,
        open_parts: Callable[[], tuple[Engine, Decoder]],
        text: TextEncoder,
        layout: TokenLayout,
        planner: PlannerConfig,
        metrics: Metrics,
        *,
        lead_ins: LeadIns | None = None,
        max_streams: int,
        max_queue: int,
        longest_wait_s: float = LONGEST_WAIT_S,
        admission: Admission = "places",
    ) -> None:
        """Open the engine and the codec; blocks until both are warm.

        Utterances are seeded by `lead_ins`. With admission by `pace`, a place is withheld while one
        more stream would be too many.

        Raises:
            ServerError: they do not open.
        """
        self._text = text
        self._lead_ins = lead_ins or LeadIns()
        self._passages: dict[str, Passage] = {}
        planned = Planner(planner)
        self._places = Places(
            max_streams,
            max_queue,
            longest_wait_s,
            steps=planned.pace.steps if admission == "pace" else None,
            waited=metrics.queue_wait_seconds.observe,
        )
        metrics.max_streams.set(max_streams)
        metrics.max_queue.set(max_queue)
        self._thread = EngineThread(open_parts, planned, layout, metrics, self._ended)

    @property
    def engine(self) -> Engine:
        """The engine, for its facts."""
        return self._thread.engine

    async def speak(
        self, request: SpeechRequest, make: MakeUtterance = ServedUtterance
    ) -> ServedUtterance:
        """Begin an utterance, waiting for a place in the bounded queue if need be.

        `make` gives the object that its audio goes to.

        Raises:
            OverloadedError: the queue is full, or no place came free in time.
            BadRequestError: the text cannot be spoken.
        """
        asked_s = time.monotonic()
        # A place first: what is put into phonemes is bounded by the same limits as what is spoken.
        await self._places.take(request.id)
        try:
            parts = TextParts(self._text, request, self.engine.facts.max_model_len)
            first = await asyncio.to_thread(parts.first)
        except BaseException:
            self._places.free(request.id, was_spoken=False)
            raise
        loop = asyncio.get_running_loop()

        def submit(part: Part, piece: ServedUtterance | PassagePiece) -> None:
            asked = piece.request
            seeded = self._lead_ins.pick(asked.voice, asked.sampling.seed)
            submission = Submission(asked, part.prompt_ids, part.letters, piece, asked_s, seeded)
            self._thread.submit(submission, loop)

        if parts.exhausted:
            utterance = make(request, self._thread.cancel)
            submit(first, utterance)
            return utterance
        most = request.sampling.max_tokens
        passage = Passage(
            request,
            parts.next,
            submit,
            self._thread.cancel,
            self._ended,
            make=make,
            asked_s=asked_s,
            most_tokens=most if most < self.engine.facts.max_model_len else None,
        )
        self._passages[request.id] = passage
        passage.begin(first)
        return passage.audio

    def health(self) -> Health:
        """How the service is: degraded while its queue is full."""
        status = "ok"
        if self._thread.failure is not None:
            status = "failed"
        elif self._places.is_full:
            status = "degraded"
        return Health(status, len(self._places.taken), self._places.waiting)

    def abandon(self) -> None:
        """End every utterance and refuse what waits, now; called on the event loop."""
        self._places.refuse_waiting("the server is ending; try again")
        for name in self._places.taken:
            self._thread.cancel(name)
        for passage in self._passages.values():
            passage.cancel()

    def close(self) -> None:
        """End every utterance, the engine and the thread; blocks until they have ended."""
        self._thread.close()

    def _ended(self, name: str) -> None:
        """A request, or a piece of one, has ended; a request gives its place to the next."""
        self._passages.pop(name, None)
        self._places.free(name)
