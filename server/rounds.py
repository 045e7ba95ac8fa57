"""Making speech a round at a time: engine step, codec tick, what is done goes out.

One thread owns the engine, the planner and the codec; all of this runs on it. What has been made
lies in `events` until whoever runs the rounds hands it over.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from server import frames
from server.codec_rows import DecodeRow
from server.engine import Generation
from server.errors import ConfigurationError
from server.frames import TOKENS_PER_FRAME
from server.stream import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.codec_calls import Decoder, Ticket
    from server.engine import Engine, EngineOutput
    from server.frames import TokenLayout
    from server.metrics import Metrics
    from server.plan import PlannedBatch, PlannedRow
    from server.planner import Planner
    from server.speech import FinishReason, SpeechRequest, UtteranceReport
    from server.utterance import AudioSink

PARK_S = 30.0  # Of audio that a reader has not taken: its generation pauses,
RESUME_S = 20.0  # and goes on when so much is left.
_LOOK_AGAIN_S = 0.25  # At a stream that nothing happens to: its reader may have stalled.
_FEW_STREAMS = 8  # So many players are kept fed with as little lead-in as can be.
_FEW_RESERVE_S = 0.010


@dataclass(frozen=True, slots=True)
class Submission:
    """A request with its prompt, how long its text is spoken, and when it was asked for.

    `seeded_codes`, of shape (7 * frames,), are what the utterance begins with: see `lead_ins`.
    """

    request: SpeechRequest
    prompt_ids: list[int]
    spoken_characters: int
    utterance: AudioSink
    asked_s: float
    seeded_codes: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))


Event = tuple["AudioSink", "bytes | UtteranceReport"]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the codec; `done_s` where it was done at once, as on a CPU."""

    batch: PlannedBatch
    ticket: Ticket
    began_s: float
    done_s: float | None


class Rounds:
    """The streams that are being generated, and what is done with them in turn."""

    def __init__(
        self,
        engine: Engine,
        decoder: Decoder,
        planner: Planner,
        layout: TokenLayout,
        metrics: Metrics,
    ) -> None:
        self.events: list[Event] = []
        self._engine, self._decoder, self._planner = engine, decoder, planner
        self._layout, self._metrics = layout, metrics
        self._streams: dict[str, Stream] = {}
        self._calls: deque[_Call] = deque()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until something is asked for."""
        return not self._streams and not self._engine.busy and not self._calls

    def begin(self, submission: Submission) -> None:
        """Take up an utterance."""
        stream = Stream(
            submission.request,
            submission.prompt_ids,
            submission.spoken_characters,
            submission.utterance,
            self._layout,
            submission.asked_s,
            time.monotonic(),
            submission.seeded_codes,
        )
        try:
            self._engine.add(self._generation(stream))
        except ConfigurationError as error:
            self.events.append((stream.utterance, stream.report("error", _now(), str(error))))
            return
        self._streams[stream.name] = stream
        self._planner.open(
            stream.name,
            lead_in=stream.lead_in.searching,
            paced=not stream.request.whole,
            speed=stream.request.speed,
            held_s=stream.request.held_s,
            tokens=len(stream.codes),
        )

    def cancel(self, name: str) -> None:
        """End an utterance and free its slot; nothing happens if it has ended."""
        if (stream := self._streams.get(name)) is not None:
            self._stop(stream)
            self._finish(stream, "cancelled")

    def end_all(self, reason: FinishReason, error: str | None = None) -> None:
        """End every utterance; the engine is not asked for anything any more."""
        for stream in list(self._streams.values()):
            self._finish(stream, reason, error)

    def turn(self) -> bool:
        """One round; whether anything but waiting was done.

        Raises:
            EngineDiedError: the engine died.
        """
        stepped = self._engine.busy
        began_s = _now()
        if stepped:
            outputs = self._engine.step()
            now = _now()
            self._metrics.engine_step_seconds.observe(now - began_s)
            self._accept(outputs, now, now - began_s)
        else:
            self._planner.idle()
        self._decode()
        delivered = self._deliver()
        now = _now()
        for stream in [each for each in self._streams.values() if each.look_at_s <= now]:
            self._feed(stream, now)
        if stepped or delivered:
            self._metrics.busy_seconds.inc(_now() - began_s)
        return stepped or delivered

    def _generation(self, stream: Stream) -> Generation:
        """What is left to generate: all of it, or what a parked stream has not had yet.

        The draw is a function of seed and position, so a parked stream goes on as it would have.
        """
        whole = stream.codes.whole_frames.reshape(-1)
        sampling = stream.request.sampling
        # Seeded tokens are not of those that its client asks for.
        limit = min(sampling.max_tokens + stream.seeded_tokens, stream.guard.max_tokens)
        return Generation(
            stream.name,
            [*stream.prompt_ids, *self._layout.token_ids(whole).tolist()],
            replace(sampling, max_tokens=max(1, limit - len(whole))),
        )

    def _accept(self, outputs: list[EngineOutput], now: float, took_s: float) -> None:
        """Take a step's tokens."""
        counts: dict[str, int] = {}
        ended: list[tuple[Stream, Literal["stop", "length", "error"]]] = []
        may_drop = self._engine.facts.slot_rule == "dropped"
        for output in outputs:
            name = output.request_id
            if (stream := self._streams.get(name)) is None:
                continue
            codes = stream.codes
            before = len(codes)
            codes.extend(output.token_ids)
            stream.output_tokens += len(output.token_ids)
            counts[name] = len(codes) - before
            # Where misaligned frames are dropped, only whole frames count: they do not go again.
            if may_drop:
                counts[name] += before % TOKENS_PER_FRAME - len(codes) % TOKENS_PER_FRAME
            if output.finish_reason is not None:
                ended.append((stream, output.finish_reason))
        self._planner.add(counts, now, took_s)
        for stream, reason in ended:
            self._generated(stream, reason)

    def _generated(self, stream: Stream, reason: Literal["stop", "length", "error"]) -> None:
        """Nothing more is generated for the stream."""
        stream.reason = reason
        stream.look_at_s = 0.0
        if stream.seeded_tokens and stream.output_tokens < TOKENS_PER_FRAME and reason != "error":
            self._finish(stream, reason)  # Seeded frames alone are no speech.
            return
        self._planner.end(stream.name)
        if stream.lead_in.searching and len(stream.codes) < TOKENS_PER_FRAME:
            self._speak(stream, stream.lead_in.give_up())

    def _stop(self, stream: Stream) -> None:
        """Free the stream's slot in the engine."""
        if stream.reason is None and not stream.parked:
            self._engine.abort([stream.name])

    def _decode(self) -> None:
        """Start the decodes that are due."""
        for batch in self._planner.tick(_now()):
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
            began_s = _now()
            ticket = self._decoder.submit(rows, batch.hop)
            self._calls.append(_Call(batch, ticket, began_s, _now() if ticket.ready() else None))

    def _deliver(self) -> bool:
        """Pass on the audio that is done; whether there was any."""
        any_done = False
        while self._calls and self._calls[0].ticket.ready():
            call = self._calls.popleft()
            batch, blocks = call.batch, call.ticket.pcm()
            now = _now()
            self._metrics.decode_seconds.observe((call.done_s or now) - call.began_s)
            wanted = self._planner.delivered(batch, now)
            last_rows = {row.stream: index for index, row in enumerate(batch.rows)}
            for index, (row, samples) in enumerate(zip(batch.rows, blocks, strict=True)):
                stream = self._streams.get(row.stream)
                # An earlier row may have ended the stream, or begun its speech.
                if stream is None or not wanted[index]:
                    continue
                if not row.lead_in:
                    last = last_rows[row.stream] == index and self._planner.done(row.stream)
                    self._hear(stream, row, samples, now, last=last)
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

    def _hear(
        self,
        stream: Stream,
        row: PlannedRow,
        samples: NDArray[np.int16],
        now: float,
        *,
        last: bool,
    ) -> None:
        """Guard and send decoded speech."""
        stream.look_at_s = 0.0
        # Of the codes that are heard, not of all that are there: how far generation is ahead
        # depends on the clock, and where an utterance is cut may not.
        stream.guard.read(stream.codes.whole_frames[: row.stop // frames.LATENTS_PER_FRAME])
        cut = stream.guard.hear(samples)
        ended_itself = stream.reason in ("stop", "error") and (
            row.is_rest or not stream.request.whole
        )
        if cut is not None and not ended_itself:
            self._stop(stream)
            samples = samples[: cut.samples]
            self._send(stream, stream.tail.push(stream.lead_in.speech(samples), last=True), now)
            stream.cut_samples = stream.codes.whole_samples - stream.accounted_samples
            self._finish(stream, cut.reason)
            return
        speech = stream.lead_in.speech(samples)
        self._send(stream, stream.tail.push(speech, last=last), now)
        if last:
            self._finish(stream, stream.reason or "stop")

    def _feed(self, stream: Stream, now: float) -> None:
        """What time asks for: silence where a player runs dry, a pause where a reader stalls."""
        slack_s = self._planner.slack_s(stream.name, now)
        pace = self._planner.pace
        few = len(self._streams) < _FEW_STREAMS
        reserve_s = max(_FEW_RESERVE_S, pace.round_p99_s) if few else pace.jitter_s
        speed = stream.request.speed  # Silence is counted as it is made, what is left as played.
        if stream.lead_in.waiting:
            if not stream.request.whole:
                until_s = self._planner.until_speech_s(stream.name) + stream.request.held_s
                due = stream.lead_in.due(slack_s * speed, reserve_s * speed, until_s * speed)
                self._send(stream, due, now)
            if stream.lead_in.searching and self._planner.done(stream.name):
                self._speak(stream, stream.lead_in.give_up())
        elif stream.samples and not stream.request.whole:
            self._send(stream, stream.tail.due(slack_s * speed, reserve_s * speed), now)
        if stream.reason is not None and self._planner.done(stream.name):
            # Every row was delivered before the end was known.
            self._send(stream, stream.tail.push(np.zeros(0, np.int16), last=True), now)
            self._finish(stream, stream.reason)
            return
        self._park_or_resume(stream, now)
        is_stalled = stream.parked or stream.utterance.lead_s > PARK_S
        if stream.reason is None and not (stream.lead_in.waiting or is_stalled):
            # Until what was sent runs low; audio that comes, and the end, have it looked at, too.
            lasts_s = slack_s - 2 * reserve_s if stream.tail.holds else _LOOK_AGAIN_S
            stream.look_at_s = now + min(lasts_s, _LOOK_AGAIN_S)

    def _park_or_resume(self, stream: Stream, now: float) -> None:
        """Pause the generation for a reader that does not take its audio; go on when it does."""
        lead_s = stream.utterance.lead_s
        if stream.reason is None and not stream.parked and lead_s > PARK_S:
            if len(stream.codes) % TOKENS_PER_FRAME == 0:
                self._engine.abort([stream.name])
                stream.park(now)
        elif stream.parked and lead_s < RESUME_S:
            stream.resume(now)
            try:
                self._engine.add(self._generation(stream))
            except ConfigurationError as error:
                self._finish(stream, "error", str(error))

    def _send(self, stream: Stream, samples: NDArray[np.int16], now: float) -> None:
        if not len(samples):
            return
        stream.sent(samples, now)
        self._planner.sent(stream.name, len(samples), now)
        self.events.append((stream.utterance, samples.astype("<i2", copy=False).tobytes()))

    def _finish(self, stream: Stream, reason: FinishReason, error: str | None = None) -> None:
        """The utterance has ended: forget it and report."""
        self._planner.close(stream.name)
        del self._streams[stream.name]
        if reason == "error" and error is None:
            error = "the engine ended this request with an error; ask again"
        self.events.append((stream.utterance, stream.report(reason, _now(), error)))


def _now() -> float:
    return time.monotonic()
