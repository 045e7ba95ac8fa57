"""One utterance while it is made: its codes, its audio on the way out, and its times.

Everything here runs on the engine's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server import frames
from server.frames import SAMPLE_RATE_HZ, TOKENS_PER_FRAME
from server.guards import Guard
from server.lead_in import LeadIn
from server.level import BLOCK_SAMPLES, amplitude, block_rms
from server.speech import FinishReason, SpeechRequest, UtteranceReport
from server.tail import Tail, TailConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.frames import TokenLayout
    from server.utterance import AudioSink

_AUDIBLE = amplitude(-40.0)  # TTFS: the first 10 ms above it.
_FIRST_CODES = 512


class CodeBuffer:
    """Codes of one utterance from its token ids, frames kept whole.

    An id of a slot that is not due is a misaligned stream: its frame is dropped, and all up to the
    next id of slot 0. Only an engine that does not enforce the slot rule gives such ids.
    """

    def __init__(self, layout: TokenLayout) -> None:
        self._base = layout.audio_base
        self._codes = np.empty(_FIRST_CODES, np.uint16)
        self._count = 0
        self.misaligned_tokens = 0

    def __len__(self) -> int:
        return self._count

    @property
    def codes(self) -> NDArray[np.uint16]:
        """The codes so far in slot order, uint16 of shape (tokens,)."""
        return self._codes[: self._count]

    @property
    def whole_frames(self) -> NDArray[np.uint16]:
        """The codes of whole frames, uint16 of shape (frames, 7)."""
        whole = self._count // TOKENS_PER_FRAME
        return self._codes[: whole * TOKENS_PER_FRAME].reshape(whole, TOKENS_PER_FRAME)

    @property
    def whole_samples(self) -> int:
        """Samples that the whole frames decode to."""
        return self._count // TOKENS_PER_FRAME * frames.SAMPLES_PER_FRAME

    def extend(self, token_ids: list[int]) -> None:
        """Take the ids of one step."""
        if len(token_ids) == 1 and self._count < len(self._codes):
            # As nearly always: one id, of the slot that is due. Arrays would take 50 times as long.
            slot = self._count % TOKENS_PER_FRAME
            code = token_ids[0] - self._base - frames.CODEBOOK_SIZE * slot
            if 0 <= code < frames.CODEBOOK_SIZE:
                self._codes[self._count] = code
                self._count += 1
                return
        ids = np.array(token_ids, np.int64) - self._base
        while len(ids):
            slots = (self._count + np.arange(len(ids))) % TOKENS_PER_FRAME
            codes = ids - frames.CODEBOOK_SIZE * slots
            wrong = np.flatnonzero((codes < 0) | (codes >= frames.CODEBOOK_SIZE))
            good = int(wrong[0]) if len(wrong) else len(ids)
            self._append(codes[:good])
            if not len(wrong):
                return
            # The frame that was begun is lost with the id that breaks it.
            begun = self._count % TOKENS_PER_FRAME
            self._count -= begun
            ids = ids[good:]
            starts = np.flatnonzero((ids >= 0) & (ids < frames.CODEBOOK_SIZE))
            lost = int(starts[0]) if len(starts) else len(ids)
            self.misaligned_tokens += begun + lost
            ids = ids[lost:]

    def _append(self, codes: NDArray[np.int64]) -> None:
        end = self._count + len(codes)
        if end > len(self._codes):
            larger = np.empty(max(end, 2 * len(self._codes)), np.uint16)
            larger[: self._count] = self.codes
            self._codes = larger
        self._codes[self._count : end] = codes
        self._count = end


@dataclass(slots=True)
class StreamTimes:
    """When an utterance's audio was handed over; seconds of the monotonic clock."""

    asked_s: float
    began_s: float
    first_s: float | None = None
    made_s: float | None = None  # The first that the model made: silence of seeded frames is not.
    audible_s: float | None = None  # As a player without buffer plays it.
    _dry_s: float = 0.0

    def sent(
        self,
        samples: NDArray[np.int16],
        now: float,
        speed: float = 1.0,
        *,
        is_seeded: bool = False,
    ) -> None:
        """Samples were handed over, to be played so much faster; `is_seeded` are seeded frames'."""
        rate_hz = SAMPLE_RATE_HZ * speed
        if self.first_s is None:
            self.first_s = now
        if self.made_s is None and not is_seeded:
            self.made_s = now
        starts_s = max(self._dry_s, now)
        if self.audible_s is None:
            loud = np.flatnonzero(block_rms(samples) >= _AUDIBLE)
            if len(loud):
                self.audible_s = starts_s + int(loud[0]) * BLOCK_SAMPLES / rate_hz
        self._dry_s = starts_s + len(samples) / rate_hz


class Stream:
    """An utterance that is being generated."""

    def __init__(
        self,
        request: SpeechRequest,
        prompt_ids: list[int],
        spoken_characters: int,
        utterance: AudioSink,
        layout: TokenLayout,
        asked_s: float,
        now: float,
        seeded_codes: NDArray[np.uint16] | None = None,
    ) -> None:
        """`seeded_codes`, of shape (7 * frames,), are what it begins with."""
        self.request, self.prompt_ids, self.utterance = request, prompt_ids, utterance
        self.codes = CodeBuffer(layout)
        if seeded_codes is not None and len(seeded_codes):
            self.codes.extend(layout.token_ids(seeded_codes).tolist())
        self.seeded_tokens = len(self.codes)
        self._seeded_samples = self.codes.whole_samples
        self.lead_in = LeadIn(request.lead_in)
        self.tail = Tail(
            TailConfig() if request.tail_s is None else TailConfig(keep_s=request.tail_s)
        )
        self.guard = Guard(spoken_characters)
        self.times = StreamTimes(asked_s, now)
        self.output_tokens = 0
        self.samples = 0
        self.cut_samples = 0
        self.reason: FinishReason | None = None  # Once nothing more is generated.
        self.look_at_s = 0.0  # Time alone asks nothing of it before.
        self._parked_at_s: float | None = None
        self._paused_s = 0.0

    @property
    def name(self) -> str:
        """The request's id, unique in the process."""
        return self.request.id

    @property
    def parked(self) -> bool:
        """Whether its generation pauses, because its reader takes nothing."""
        return self._parked_at_s is not None

    def park(self, now: float) -> None:
        """Its generation pauses."""
        self._parked_at_s = now

    def resume(self, now: float) -> None:
        """Its generation goes on."""
        if self._parked_at_s is not None:
            self._paused_s += now - self._parked_at_s
            self._parked_at_s = None

    def sent(self, samples: NDArray[np.int16], now: float) -> None:
        """Samples were handed over. Seeded silence is first audio, and none that was made."""
        silent = self.lead_in.waiting or self.request.lead_in == "keep"
        is_seeded = silent and self.samples + len(samples) <= self._seeded_samples
        self.times.sent(samples, now, self.request.speed, is_seeded=is_seeded)
        self.samples += len(samples)

    @property
    def accounted_samples(self) -> int:
        """Samples that were sent or trimmed."""
        return self.samples + self.lead_in.trimmed_samples + self.tail.trimmed_samples

    def report(self, reason: FinishReason, now: float, error: str | None = None) -> UtteranceReport:
        """How it went, now that it has ended. Its rtf leaves out pauses for a stalled reader, and
        has seeded frames among its audio."""
        self.resume(now)
        times, made_s = self.times, self.codes.whole_samples / SAMPLE_RATE_HZ
        return UtteranceReport(
            finish_reason=reason,
            frames=len(self.codes.whole_frames),
            samples=self.samples,
            trimmed_samples=self.accounted_samples - self.samples + self.cut_samples,
            misaligned_tokens=self.codes.misaligned_tokens,
            input_tokens=len(self.prompt_ids),
            output_tokens=self.output_tokens,
            ttfa_ms=_ms(times.first_s, times.asked_s),
            first_made_ms=_ms(times.made_s, times.asked_s),
            ttfs_ms=_ms(times.audible_s, times.asked_s),
            total_ms=(now - times.asked_s) * 1e3,
            rtf=(now - times.began_s - self._paused_s) / made_s if made_s else None,
            error=error,
        )


def _ms(then_s: float | None, from_s: float) -> float | None:
    return None if then_s is None else (then_s - from_s) * 1e3
