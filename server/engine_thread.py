"""The thread that makes speech: engine step, codec tick, hand-over, in turn.

One thread owns the engine, the planner and the codec. Commands come through a queue; chunks and
ends go to the event loop together, once a round, so that it is woken once however many streams run.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from server import frames
from server.codec_rows import DecodeRow
from server.engine import Generation
from server.errors import ConfigurationError, EngineDiedError
from server.frames import TOKENS_PER_FRAME
from server.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from server.codec_decoder import CodecDecoder, DecodeTicket
    from server.engine import Engine, EngineOutput
    from server.frames import TokenLayout
    from server.metrics import Metrics
    from server.plan import PlannedBatch
    from server.planner import Planner
    from server.speech import FinishReason, SpeechRequest, UtteranceReport
    from server.utterance import ServedUtterance

PARK_S = 30.0  # Of audio that a reader has not taken: its generation pauses,
RESUME_S = 20.0  # and goes on when so much is left.
_FEW_STREAMS = 8  # So many players are kept fed with as little lead-in as can be.
_FEW_RESERVE_S = 0.010
_WAIT_S = 0.005  # Between looks at what time alone makes ready.

_LOG = logging.getLogger("server.engine")


@dataclass(frozen=True, slots=True)
class Submission:
    """A request with its prompt, and when it was asked for."""

    request: SpeechRequest
    prompt_ids: list[int]
    utterance: ServedUtterance
    asked_s: float


@dataclass(frozen=True, slots=True)
class _Cancel:
    name: str


Command = Submission | _Cancel | None  # None: end.
_Event = tuple["ServedUtterance", "bytes | UtteranceReport"]


class EngineThread:
    """Makes the speech of what is submitted. `submit`, `cancel` and `close` are for any thread."""

    def __init__(
        self,
        open_parts: Callable[[], tuple[Engine, CodecDecoder]],
        planner: Planner,
        layout: TokenLayout,
        metrics: Metrics,
        ended: Callable[[str], None],
    ) -> None:
        """Open the engine and the codec on the thread, and start it.

        Args:
            open_parts: gives them, warm; called on the thread, whose they are from then on.
            planner: of the decodes.
            layout: of the engine's tokens.
            metrics: what is counted and timed.
            ended: called on the event loop with the name of each utterance that has ended.

        Raises:
            ServerError: they do not open.
        """
        self.failure: str | None = None
        self._open_parts, self._planner, self._layout = open_parts, planner, layout
        self._metrics, self._ended = metrics, ended
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._streams: dict[str, Stream] = {}
        self._tickets: deque[tuple[PlannedBatch, DecodeTicket]] = deque()
        self._events: list[_Event] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._quiet = False  # The last round had nothing to do but wait.
        self._opened: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()
        if (error := self._opened.get()) is not None:
            raise error

    @property
    def engine(self) -> Engine:
        """The engine; its facts may be read on any thread."""
        return self._engine

    def submit(self, submission: Submission, loop: asyncio.AbstractEventLoop) -> None:
        """Make speech of a request; its utterance hears of it on `loop`."""
        self._loop = loop
        self._commands.put(submission)

    def cancel(self, name: str) -> None:
        """End an utterance; nothing happens if it has ended."""
        self._commands.put(_Cancel(name))

    def close(self) -> None:
        """End everything, and wait for it."""
        self._closing = True
        self._commands.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._engine, self._decoder = self._open_parts()
        except BaseException as error:  # Whatever it is belongs to whoever opens.
            self._opened.put(error)
            return
        self._opened.put(None)
        try:
            while not self._closing:
                self._round()
        except EngineDiedError as error:
            self._fail(str(error))
        except Exception as error:
            _LOG.exception("the engine's thread stopped")
            self._fail(f"{type(error).__name__}: {error}")
        for stream in list(self._streams.values()):
            self._finish(stream, "cancelled")
        self._hand_over()
        self._engine.close()

    def _fail(self, failure: str) -> None:
        """End every utterance with the failure, now and from now on."""
        _LOG.error("the engine has failed: %s", failure)
        for stream in list(self._streams.values()):
            self._finish(stream, "error", failure)
        self.failure = failure
        self._hand_over()
        while (command := self._commands.get()) is not None:
            if isinstance(command, Submission):
                stream = self._stream(command)
                report = stream.report("error", time.monotonic(), failure)
                self._events.append((command.utterance, report))
                self._hand_over()

    def _round(self) -> None:
        """One turn: commands, one engine step, one codec tick, what is done goes out."""
        self._obey()
        stepped = self._engine.busy
        if stepped:
            began_s = time.monotonic()
            outputs = self._engine.step()
            now = time.monotonic()
            self._metrics.engine_step_seconds.observe(now - began_s)
            self._accept(outputs, now)
        else:
            self._planner.idle()
        self._decode()
        delivered = self._deliver()
        now = time.monotonic()
        for stream in list(self._streams.values()):
            self._feed(stream, now)
        self._hand_over()
        self._quiet = not (stepped or delivered)

    def _obey(self) -> None:
        """Carry out what has been asked; wait for it when there is nothing else to do."""
        idle = not self._streams and not self._engine.busy and not self._tickets
        wait_s = None if idle else _WAIT_S if self._quiet else 0.0
        while True:
            try:
                command = self._commands.get(block=wait_s != 0.0, timeout=wait_s)
            except queue.Empty:
                return
            wait_s = 0.0
            if command is None:
                self._closing = True
            elif isinstance(command, Submission):
                self._begin(command)
            elif (stream := self._streams.get(command.name)) is not None:
                self._stop(stream)
                self._finish(stream, "cancelled")

    def _stream(self, submission: Submission) -> Stream:
        return Stream(
            submission.request,
            submission.prompt_ids,
            submission.utterance,
            self._layout,
            submission.asked_s,
            time.monotonic(),
        )

    def _begin(self, submission: Submission) -> None:
        stream = self._stream(submission)
        try:
            self._engine.add(self._generation(stream))
        except ConfigurationError as error:
            report = stream.report("error", time.monotonic(), str(error))
            self._events.append((stream.utterance, report))
            return
        self._streams[stream.name] = stream
        self._planner.open(stream.name, lead_in=stream.lead_in.searching)

    def _generation(self, stream: Stream) -> Generation:
        """What is left to generate: all of it, or what a parked stream has not had yet."""
        whole = stream.codes.codes[: len(stream.codes) // TOKENS_PER_FRAME * TOKENS_PER_FRAME]
        sampling = stream.request.sampling
        limit = min(sampling.max_tokens, stream.guard.max_tokens)
        return Generation(
            stream.name,
            [*stream.prompt_ids, *self._layout.token_ids(whole).tolist()],
            replace(sampling, seed=sampling.seed + len(whole), max_tokens=limit - len(whole)),
        )

    def _accept(self, outputs: list[EngineOutput], now: float) -> None:
        """Take a step's tokens."""
        counts: dict[str, int] = {}
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue
            before = len(stream.codes)
            stream.codes.extend(output.token_ids)
            stream.output_tokens += len(output.token_ids)
            # Where misaligned frames are dropped, only whole frames count: they do not go again.
            if self._engine.facts.slot_rule == "dropped":
                before -= before % TOKENS_PER_FRAME
                counts[stream.name] = (
                    len(stream.codes) // TOKENS_PER_FRAME * TOKENS_PER_FRAME - before
                )
            else:
                counts[stream.name] = len(stream.codes) - before
        self._planner.add(counts, now)
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue
            if output.finish_reason is not None:
                self._generated(stream, output.finish_reason)
            elif len(stream.codes) % TOKENS_PER_FRAME == 0:
                stream.guard.read(stream.codes.codes.reshape(-1, TOKENS_PER_FRAME))

    def _generated(self, stream: Stream, reason: Literal["stop", "length", "error"]) -> None:
        """Nothing more is generated for the stream."""
        stream.reason = reason
        self._planner.end(stream.name)
        if stream.lead_in.searching and len(stream.codes) < TOKENS_PER_FRAME:
            self._speak(stream, stream.lead_in.give_up())

    def _stop(self, stream: Stream) -> None:
        """Free the stream's slot in the engine."""
        if stream.reason is None and not stream.parked:
            self._engine.abort([stream.name])

    def _decode(self) -> None:
        """Start the decodes that are due."""
        for batch in self._planner.tick(time.monotonic()):
            rows = [
                DecodeRow(
                    self._streams[row.stream].codes.codes,
                    row.start,
                    row.latents,
                    row.end,
                    self._streams[row.stream].request.sampling.seed,
                )
                for row in batch.rows
            ]
            self._metrics.decode_batch_size.observe(len(rows))
            self._tickets.append((batch, self._decoder.submit(rows, batch.hop)))

    def _deliver(self) -> bool:
        """Pass on the audio that is done; whether there was any."""
        any_done = False
        while self._tickets and self._tickets[0][1].ready():
            batch, ticket = self._tickets.popleft()
            blocks = ticket.pcm()
            now = time.monotonic()
            wanted = self._planner.delivered(batch, now)
            last_rows = {row.stream: index for index, row in enumerate(batch.rows)}
            for index, (row, samples) in enumerate(zip(batch.rows, blocks, strict=True)):
                stream = self._streams.get(row.stream)
                # An earlier row may have ended the stream, or begun its speech.
                if stream is None or not wanted[index]:
                    continue
                if not row.lead_in:
                    last = last_rows[row.stream] == index and self._planner.done(row.stream)
                    self._hear(stream, samples, now, last=last)
                elif stream.lead_in.searching:
                    self._search(stream, samples)
            any_done = True
        return any_done

    def _search(self, stream: Stream, samples: NDArray[np.int16]) -> None:
        latent = stream.lead_in.search(samples)
        if latent is not None:
            self._speak(stream, latent)

    def _speak(self, stream: Stream, latent: int) -> None:
        """The lead-in ends at `latent`: plan and guard from there."""
        self._planner.speak(stream.name, latent)
        stream.guard.begin(latent * frames.SAMPLES_PER_LATENT)

    def _hear(self, stream: Stream, samples: NDArray[np.int16], now: float, *, last: bool) -> None:
        """Guard and send decoded speech."""
        cut = stream.guard.hear(samples)
        if cut is not None and stream.reason != "stop":
            self._stop(stream)
            stream.reason = cut.reason
            whole = len(stream.codes) // TOKENS_PER_FRAME * frames.SAMPLES_PER_FRAME
            samples = samples[: cut.samples]
            self._send(stream, stream.tail.push(stream.lead_in.speech(samples), last=True), now)
            stream.cut_samples = whole - self._accounted(stream)
            self._finish(stream, cut.reason)
            return
        speech = stream.lead_in.speech(samples)
        self._send(stream, stream.tail.push(speech, last=last), now)
        if last:
            self._finish(stream, stream.reason or "stop")

    def _accounted(self, stream: Stream) -> int:
        return stream.samples + stream.lead_in.trimmed_samples + stream.tail.trimmed_samples

    def _feed(self, stream: Stream, now: float) -> None:
        """What time asks for: silence where a player runs dry, a pause where a reader stalls."""
        slack_s = self._planner.slack_s(stream.name, now)
        few = len(self._streams) < _FEW_STREAMS
        reserve_s = _FEW_RESERVE_S if few else self._planner.pace.jitter_s
        if stream.lead_in.searching:
            self._send(stream, stream.lead_in.due(slack_s, reserve_s), now)
            if self._planner.done(stream.name):
                self._speak(stream, stream.lead_in.give_up())
        elif stream.samples:
            self._send(stream, stream.tail.due(slack_s, reserve_s), now)
        if stream.reason is not None and self._planner.done(stream.name):
            # Every row was delivered before the end was known.
            self._send(stream, stream.tail.push(np.zeros(0, np.int16), last=True), now)
            self._finish(stream, stream.reason)
            return
        self._park(stream)

    def _park(self, stream: Stream) -> None:
        """Pause the generation for a reader that does not take its audio; go on when it does."""
        lead_s = stream.utterance.lead_s
        if stream.reason is None and not stream.parked and lead_s > PARK_S:
            if len(stream.codes) % TOKENS_PER_FRAME == 0:
                self._engine.abort([stream.name])
                stream.parked = True
        elif stream.parked and lead_s < RESUME_S:
            stream.parked = False
            self._engine.add(self._generation(stream))

    def _send(self, stream: Stream, samples: NDArray[np.int16], now: float) -> None:
        if not len(samples):
            return
        stream.times.sent(samples, now)
        stream.samples += len(samples)
        self._planner.sent(stream.name, len(samples), now)
        self._events.append((stream.utterance, samples.astype("<i2", copy=False).tobytes()))

    def _finish(self, stream: Stream, reason: FinishReason, error: str | None = None) -> None:
        """The utterance has ended: forget it and report."""
        self._planner.close(stream.name)
        del self._streams[stream.name]
        if reason == "error" and error is None:
            error = "the engine gave up on this request"
        self._events.append((stream.utterance, stream.report(reason, time.monotonic(), error)))

    def _hand_over(self) -> None:
        """Give the event loop what has been made since the last time."""
        if not self._events or self._loop is None:
            return
        events, self._events = self._events, []
        try:
            self._loop.call_soon_threadsafe(self._pass_on, events)
        except RuntimeError:
            _LOG.info("%d events came after the event loop had ended", len(events))

    def _pass_on(self, events: list[_Event]) -> None:
        for utterance, event in events:
            if isinstance(event, bytes):
                utterance.put(event)
            else:
                utterance.end(event)
                self._ended(utterance.request.id)
