"""How long a stream's next row is, and when it is ready: the hop rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server import frames
from server.plan import HOPS, PlannerConfig

if TYPE_CHECKING:
    from server.pace import Pace

_LATENTS = frames.LATENTS_PER_FRAME
_FRAME_S = frames.SAMPLES_PER_FRAME / frames.SAMPLE_RATE_HZ
_LATENT_S = frames.SAMPLES_PER_LATENT / frames.SAMPLE_RATE_HZ
_WINDOW_RIGHT = frames.WINDOW_RIGHT_FRAMES * _LATENTS  # A window has no other context.
_FIRST_PIECE = 2  # latents of the first lead-in row: 43 ms, so that something is sent early
_UNPACED_WAIT_S = 1.0  # Players come first, but not for ever.
_PLAN_AGAIN_S = 0.25  # A plan to wait is checked as often: the pace may have changed.
_NEVER = 1 << 62
# Tokens of a frame after which so many of its latents are known.
_TOKENS_OF_LATENTS = [
    next(n for n in range(frames.TOKENS_PER_FRAME) if frames.latents_ready(n) >= latents)
    for latents in range(_LATENTS)
]


@dataclass(slots=True)
class StreamState:
    """What the planner knows of a stream."""

    name: str
    epoch: int
    lead_in: bool
    paced: bool = True  # somebody plays it while it is made
    speed: float = 1.0  # how much faster it is played than spoken
    held_s: float = 0.0  # seconds, as played, that an encoder keeps of what is sent next
    tokens: int = 0
    ended: bool = False
    next: int = 0  # first latent that is not planned
    spoken: bool = False  # the first chunk is planned
    first_chunk: int = 0  # its latents, once they are chosen
    in_flight: int = 0  # latents planned and not delivered
    dry_s: float = -math.inf  # when the player runs dry, by what it was sent
    ready_s: float | None = None  # since when a row is ready
    # Nothing changes for the stream before it has so many tokens, or before this time.
    due_tokens: int = 0
    due_s: float = math.inf

    @property
    def whole(self) -> int:
        """Latents of whole frames: an incomplete frame is dropped at the end, so never emitted."""
        return self.tokens // frames.TOKENS_PER_FRAME * _LATENTS

    @property
    def known(self) -> int:
        """Latents with all their codes."""
        return self.whole if self.ended else frames.latents_ready(self.tokens)

    def slack_s(self, now: float) -> float:
        """How long the player can go on with what was sent and what is being decoded."""
        return max(self.dry_s, now) + self.in_flight * _LATENT_S / self.speed - now

    def sent(self, samples: int, now: float) -> None:
        """So many samples of speech were sent; the first of a stream stay in its encoder."""
        seconds = samples / frames.SAMPLE_RATE_HZ / self.speed
        kept = min(seconds, self.held_s)
        self.held_s -= kept
        # A player that ran dry has waited: what it is sent plays from now.
        self.dry_s = max(self.dry_s, now) + seconds - kept


class HopRule:
    """Chooses a stream's next row: the longest hop that the player can wait for."""

    def __init__(self, config: PlannerConfig) -> None:
        window = config.form == "window"
        self._steady = _WINDOW_RIGHT if window else config.steady_right
        self._first = _WINDOW_RIGHT if window else config.first_right
        self._lead_in = _WINDOW_RIGHT if window else config.lead_in_right
        self._first_piece = _LATENTS if window else _FIRST_PIECE
        self._largest = config.largest_hop * _LATENTS
        self._first_chunk_frames = config.first_chunk_frames
        # Full context first; only the shortest hop ever goes without, and only if it must.
        self._choices = [
            (hop * _LATENTS, self._steady) for hop in HOPS if hop <= config.largest_hop
        ]
        self._choices.append((_LATENTS, self._first))

    def next_latents(self, stream: StreamState, now: float, pace: Pace) -> int:
        """Latents of the stream's next row if it is ready, else 0, and then when to look again."""
        left = stream.whole - stream.next
        if not stream.paced:
            return self._longest(stream, left)
        if stream.ended:
            return _rest(stream, left, self._largest)
        span = stream.known - stream.next
        if stream.lead_in:
            piece = _LATENTS if stream.next else self._first_silence(stream, pace)
            latents = min(span - self._lead_in, left, self._largest)
            if latents >= piece:
                return latents - latents % piece if stream.next else min(latents, _LATENTS)
            return _wait_for(stream, piece + self._lead_in, math.inf)
        if not stream.spoken:
            latents = self._first_chunk(stream, pace)
            if min(span - self._first, left) >= latents:
                return latents
            return _wait_for(stream, latents + self._first, math.inf)
        spare_s = stream.slack_s(now) - pace.jitter_s
        for latents, right in self._choices:
            missing = max(0, latents + right - span)
            wait_s = missing / _LATENTS * pace.frame_s
            if not missing and left >= latents:
                return latents
            if wait_s <= spare_s:
                spare_s = min(spare_s - wait_s, _PLAN_AGAIN_S)
                return _wait_for(stream, latents + right, now + spare_s)
        return _wait_for(stream, _LATENTS + self._first, math.inf)

    def until_speech_s(self, stream: StreamState, pace: Pace) -> float:
        """In what time the first chunk of speech can be at the player."""
        missing = 0
        if not (stream.spoken or stream.ended):
            chunk = stream.first_chunk or self._first_latents(stream, pace)
            missing = max(0, stream.next + chunk + self._first - stream.known)
        return missing / _LATENTS * pace.frame_s + pace.arrival_s

    def slack_s(self, stream: StreamState, now: float) -> float:
        """How long the stream's ready row can wait."""
        if not stream.paced:
            return _UNPACED_WAIT_S - (now - (now if stream.ready_s is None else stream.ready_s))
        return stream.slack_s(now) if stream.spoken else -math.inf

    def end(self, stream: StreamState, latents: int) -> int:
        """Where what the row of `latents` may know of the stream ends.

        All that is known; where audio may not depend on the clock, what is always known then: of a
        frame that is cut off at the end nothing.
        """
        return stream.known if stream.paced else min(stream.whole, self._full(stream, latents))

    def is_rest(self, stream: StreamState, latents: int) -> bool:
        """Whether the row of `latents` is ready only because nothing more comes."""
        return stream.ended and stream.whole < self._full(stream, latents)

    def _full(self, stream: StreamState, latents: int) -> int:
        """Where the full context of the stream's next row ends."""
        return stream.next + latents + (self._lead_in if stream.lead_in else self._steady)

    def _longest(self, stream: StreamState, left: int) -> int:
        """Latents of the next row of a stream that nobody plays yet: whole pieces, full context."""
        piece, right = self._largest, self._steady
        if stream.lead_in:
            piece, right = _LATENTS, self._lead_in
        if stream.ended:
            return _rest(stream, left, piece)
        if left >= piece + right:
            return piece
        return _wait_for(stream, piece + right, math.inf)

    def _first_silence(self, stream: StreamState, pace: Pace) -> int:
        """Latents of the first lead-in row: what lasts until speech can follow it at once.

        Less is held back until there is more (`LeadIn.due`), and a whole row more comes later than
        a latent. Where no row is long enough, the shortest: several are needed.
        """
        if self._first_piece == _LATENTS:
            return _LATENTS
        beyond = self._first_latents(stream, pace) + self._first - self._lead_in
        until_s = beyond / _LATENTS * pace.frame_s + pace.arrival_s + stream.held_s
        needed = math.ceil(until_s * stream.speed / _LATENT_S)
        return max(needed, self._first_piece) if needed <= _LATENTS else self._first_piece

    def _first_chunk(self, stream: StreamState, pace: Pace) -> int:
        """Latents of the first chunk, chosen once a stream: the row after it must come in time."""
        if not stream.first_chunk:
            stream.first_chunk = self._first_latents(stream, pace)
        return stream.first_chunk

    def _first_latents(self, stream: StreamState, pace: Pace) -> int:
        wait_s = pace.frame_s * (1 + (self._steady - self._first) / _LATENTS) + pace.jitter_s
        spoken_s = (wait_s + stream.held_s) * stream.speed
        count = self._first_chunk_frames or min(4, math.ceil(spoken_s / _FRAME_S))
        return min(count * _LATENTS, self._largest)


def _rest(stream: StreamState, left: int, most: int) -> int:
    """Latents of the next row of a stream that has ended: nothing more needs waiting for."""
    stream.due_tokens, stream.due_s = (0 if left > 0 else _NEVER), math.inf
    return max(0, min(left, most))


def _wait_for(stream: StreamState, span: int, due_s: float) -> int:
    """Look at the stream again when it has `span` latents from its next one on, or at `due_s`."""
    whole, rest = divmod(stream.next + span, _LATENTS)
    stream.due_tokens = whole * frames.TOKENS_PER_FRAME + _TOKENS_OF_LATENTS[rest]
    stream.due_s, stream.ready_s = due_s, None
    return 0
