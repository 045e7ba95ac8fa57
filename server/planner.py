"""Which rows to decode now: a pure function of tokens, clock and what players were sent.

A stream's next row is as long a hop as its player's slack allows: the largest for which generating
what is missing takes no longer than the slack less a jitter allowance. That one rule gives the
ramp from a short first chunk to four frames, the retreat when slack shrinks, and no underrun while
generation is faster than playback. Rows wait for company until one is pressing.

Latents are the unit: 512 samples, four a frame. A row needs `right` latents beyond it (see
codec_decoder for what each number leaves of an error), none after the utterance's end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from server.hop_rule import HopRule, StreamState
from server.pace import Pace
from server.plan import PlannedBatch, PlannedRow, PlannerConfig, call_sizes, hop_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Planner:
    """Plans the decodes of all streams. Times are seconds of one monotonic clock."""

    def __init__(
        self,
        config: PlannerConfig | None = None,
        costs_ms: Mapping[int, Mapping[int, float]] | None = None,
    ) -> None:
        """`costs_ms` are measured times by hop and batch size; without, a larger batch is cheaper.

        With them a batch is split in two where two smaller graphs cost less.
        """
        self.config = config or PlannerConfig()
        self.pace = Pace(
            floor_s=self.config.jitter_floor_ms / 1e3, extra_s=self.config.jitter_extra_ms / 1e3
        )
        self._rule = HopRule(self.config)
        self._costs_ms = costs_ms or {}
        self._streams: dict[str, StreamState] = {}
        self._epochs = 0
        self._stepped_s: float | None = None
        self._tick = 0
        self._ticks: dict[int, int] = {}  # batches outstanding of each tick in flight

    def __len__(self) -> int:
        return len(self._streams)

    def open(
        self,
        stream: str,
        *,
        lead_in: bool,
        paced: bool = True,
        speed: float = 1.0,
        held_s: float = 0.0,
        tokens: int = 0,
    ) -> None:
        """Take up a stream. With `lead_in` its start is decoded only to find where speech begins,
        until `speak`.

        One that is not `paced` is played by nobody yet: its rows are as long as rows can be, and
        begin where they always would, so that its audio does not depend on the clock. `speed` and
        `held_s` are as a request's: how its player uses up what it is sent. So many `tokens` are
        there already.

        Raises:
            ValueError: a stream of this name is open.
        """
        if stream in self._streams:
            raise ValueError(f"stream {stream!r} is open; close it first or give another name")
        self._streams[stream] = StreamState(
            stream, self._epoch(), lead_in, paced, speed, held_s, tokens
        )

    def add(self, tokens: Mapping[str, int], now: float, took_s: float | None = None) -> None:
        """One engine step, which `took_s`, gave so many aligned codes to each of these streams."""
        most = 0
        for name, count in tokens.items():
            stream = self._streams.get(name)
            if stream is not None:
                stream.tokens += count
            most = max(most, count)
        if most:
            if self._stepped_s is not None:
                each_s = None if took_s is None else took_s / most
                self.pace.stepped(
                    (now - self._stepped_s) / most, now, took_s=each_s, streams=len(tokens)
                )
            self._stepped_s = now

    def idle(self) -> None:
        """The engine has nothing to do: the time to its next step is not a step's."""
        self._stepped_s = None

    def end(self, stream: str) -> None:
        """No more tokens come for the stream; an incomplete frame is dropped."""
        if (state := self._streams.get(stream)) is not None:
            state.ended = True
            state.due_tokens = 0

    def speak(self, stream: str, latent: int) -> None:
        """The lead-in ends at `latent`: plan from there again, in full quality.

        Rows of the lead-in that are being decoded no longer count.
        """
        if (state := self._streams.get(stream)) is not None:
            state.lead_in, state.epoch = False, self._epoch()
            state.next, state.in_flight, state.ready_s = latent, 0, None
            state.due_tokens = 0

    def sent(self, stream: str, samples: int, now: float) -> None:
        """So many samples were handed to the stream's socket."""
        if (state := self._streams.get(stream)) is not None:
            state.sent(samples, now)
            state.due_s = -math.inf

    def slack_s(self, stream: str, now: float) -> float:
        """How long the stream's player can go on with what it was sent; 0 of an unknown one."""
        state = self._streams.get(stream)
        return 0.0 if state is None else max(0.0, state.dry_s - now)

    def until_speech_s(self, stream: str) -> float:
        """In what time the first chunk of speech can be at the stream's player, by the pace of now.

        While the onset is searched, as if it lay right behind what was searched; 0 of an unknown
        stream.
        """
        state = self._streams.get(stream)
        return 0.0 if state is None else self._rule.until_speech_s(state, self.pace)

    def done(self, stream: str) -> bool:
        """Whether an ended stream has nothing left to plan or to deliver (or is not open)."""
        state = self._streams.get(stream)
        return state is None or (state.ended and state.next >= state.whole and state.in_flight == 0)

    def close(self, stream: str) -> None:
        """Forget a stream, finished or cancelled: nothing of it is planned or delivered again."""
        self._streams.pop(stream, None)

    def delivered(self, batch: PlannedBatch, now: float) -> list[bool]:
        """A batch's samples are there: for each row, whether they are still wanted.

        Batches are delivered in the order in which they were planned. A row of the lead-in can
        still end the lead-in that later rows of its own batch belong to.
        """
        left = self._ticks[batch.tick] - 1
        self._ticks[batch.tick] = left
        if not left:
            del self._ticks[batch.tick]
        self.pace.delivered(now - batch.planned_s, now)
        wanted: list[bool] = []
        for row in batch.rows:
            state = self._streams.get(row.stream)
            if state is None or state.epoch != row.epoch:
                wanted.append(False)
                continue
            state.in_flight -= row.latents
            state.due_s = -math.inf  # Samples may be held back: the player's slack is another.
            wanted.append(True)
        return wanted

    def tick(self, now: float) -> list[PlannedBatch]:
        """Batches to decode now, most urgent first; call it once an engine step.

        Empty while nothing is ready, while what is ready can wait for company, or while enough
        ticks are in flight.
        """
        if len(self._ticks) >= self.config.ticks_in_flight:
            return []
        pressing_s = self.pace.jitter_s + 2 * self.pace.frame_s
        ready: list[tuple[float, StreamState, int]] = []
        oldest_s = now
        for stream in self._streams.values():
            if stream.ready_s is None and stream.tokens < stream.due_tokens and now < stream.due_s:
                continue  # Nearly all of hundreds of streams, nearly always.
            latents = self._rule.next_latents(stream, now, self.pace)
            if latents:
                if stream.ready_s is None:
                    stream.ready_s = now
                oldest_s = min(oldest_s, stream.ready_s)
                slack_s = self._rule.slack_s(stream, now)
                ready.append((slack_s, stream, latents))
        if not ready:
            return []
        ready.sort(key=lambda entry: entry[0])
        least_s = ready[0][0]
        patience_s = min(
            self.config.longest_wait_ms / 1e3,
            least_s - self.pace.jitter_s - self.pace.delivery_p99_s,
        )
        company = len(ready) >= self.config.fill_rows
        if least_s >= pressing_s and not company and now - oldest_s < patience_s:
            return []
        self._tick += 1
        batches = self._batches(self._rows(ready, now), now)
        self._ticks[self._tick] = len(batches)
        return batches

    def _rows(
        self, ready: Iterable[tuple[float, StreamState, int]], now: float
    ) -> list[PlannedRow]:
        """Rows of the ready streams within the tick's frames: all that each has of one hop.

        Of one hop, because calls go by hop and a stream's samples must come in order.
        """
        rows: list[PlannedRow] = []
        room = self.config.tick_frames
        for _, stream, first in ready:
            latents, hop = first, hop_of(first)
            while latents and hop_of(latents) == hop <= room:
                room -= hop
                rows.append(
                    PlannedRow(
                        stream=stream.name,
                        start=stream.next,
                        latents=latents,
                        end=self._rule.end(stream, latents),
                        lead_in=stream.lead_in,
                        epoch=stream.epoch,
                        is_rest=self._rule.is_rest(stream, latents),
                    )
                )
                stream.next += latents
                stream.in_flight += latents
                stream.spoken = not stream.lead_in
                stream.ready_s = None
                latents = self._rule.next_latents(stream, now, self.pace)
            if latents and stream.ready_s is None:
                stream.ready_s = now
        return rows

    def _batches(self, rows: list[PlannedRow], now: float) -> list[PlannedBatch]:
        """Rows by hop, each group in calls whose sizes the decoder has."""
        groups: dict[int, list[PlannedRow]] = {}
        for row in rows:
            groups.setdefault(hop_of(row.latents), []).append(row)
        calls: list[tuple[int, int, list[PlannedRow]]] = []
        for hop, group in groups.items():
            shared = [row for row in group if self._shares_calls(row)]
            first = 0
            for size in call_sizes(
                len(shared), self.config.batch_sizes, self._costs_ms.get(hop, {})
            ):
                calls.append((hop, size, shared[first : first + size]))
                first += size
            calls += [(hop, 1, [row]) for row in group if not self._shares_calls(row)]
        return [PlannedBatch(hop, size, tuple(held), self._tick, now) for hop, size, held in calls]

    def _shares_calls(self, row: PlannedRow) -> bool:
        config = self.config
        return config.batched and (config.unpaced_in_batches or self._streams[row.stream].paced)

    def _epoch(self) -> int:
        self._epochs += 1
        return self._epochs
