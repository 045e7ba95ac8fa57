"""A text that is spoken in several pieces, one after the other, as one utterance.

A passage has one place among those that are spoken, and of the engine's slots one at a time: the
next piece begins when the one before is generated, which is while it still plays, for generation is
faster than playing. Its prompt is made meanwhile. So a passage takes no more than any other
request, whatever its length, and works where one stream is all there is. It runs no further ahead
of its reader than any stream: at 20 s of audio that nobody has taken the next piece waits.

Between pieces their silence is cut to what is left of a pause, and filled up to it: see `pieces`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from server.errors import BadRequestError
from server.frames import SAMPLE_RATE_HZ, SAMPLES_PER_FRAME
from server.lead_in import LeadInConfig, samples_of
from server.level import BLOCK_SAMPLES, amplitude, block_rms
from server.rounds import RESUME_S
from server.speech import FinishReason, UtteranceReport
from server.tail import TailConfig
from server.utterance import ServedUtterance
from server.wav import BYTES_PER_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.speech import SpeechRequest
    from server.utterance import MakeUtterance

_LOG = logging.getLogger("server.passage")
_LEAD_IN_S = LeadInConfig().keep_s
_TAIL = TailConfig()
_TAIL_BYTES = samples_of(_TAIL.keep_s) * BYTES_PER_SAMPLE


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a text with its prompt, and the pause between it and the next."""

    text: str
    letters: int
    prompt_ids: list[int]
    pause_s: float


class PassagePiece:
    """One piece for the engine's thread, as a `ServedUtterance` is; its audio is the passage's."""

    def __init__(self, request: SpeechRequest, audio: ServedUtterance, silence: int) -> None:
        """`silence` is the samples that go out before the piece's first."""
        self.request = request
        self.ended: asyncio.Future[UtteranceReport] = asyncio.get_running_loop().create_future()
        self.silence = silence
        self._audio = audio
        self._has_begun = False
        self._last = b""

    @property
    def lead_s(self) -> float:
        """Seconds of audio that the reader has not taken yet."""
        return self._audio.lead_s

    @property
    def quiet_s(self) -> float:
        """Silence at the end of what has been put, to 10 ms; at most what a tail keeps."""
        levels = block_rms(np.frombuffer(self._last, "<i2"))
        loud = np.flatnonzero(levels >= amplitude(_TAIL.quiet_dbfs))
        quiet = len(levels) - 1 - int(loud[-1]) if len(loud) else len(levels)
        return quiet * BLOCK_SAMPLES / SAMPLE_RATE_HZ

    def put(self, chunk: bytes) -> None:
        """A chunk has been made."""
        if not self._has_begun:
            self._has_begun = True
            if self.silence:
                self._audio.put(bytes(self.silence * BYTES_PER_SAMPLE))
        self._audio.put(chunk)
        self._last = (self._last + chunk)[-_TAIL_BYTES:]

    def end(self, report: UtteranceReport) -> None:
        """The piece has ended."""
        if not self.ended.done():
            self.ended.set_result(report)


@dataclass(slots=True)
class _Totals:
    """Reports of the pieces so far, as one."""

    finish_reason: FinishReason = "stop"
    frames: int = 0
    samples: int = 0
    trimmed_samples: int = 0
    inserted_samples: int = 0
    misaligned_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    ttfa_ms: float | None = None
    first_made_ms: float | None = None
    ttfs_ms: float | None = None
    error: str | None = None
    _generated_s: float = field(default=0.0, init=False)

    def add(self, report: UtteranceReport, silence: int) -> None:
        """Take a piece's report; what ended the first piece that did not stop by itself counts."""
        if self.finish_reason == "stop":
            self.finish_reason = report.finish_reason
        if report.finish_reason in ("error", "cancelled"):
            self.finish_reason, self.error = report.finish_reason, report.error
        self.inserted_samples += silence
        self.samples += report.samples + silence
        self.frames += report.frames
        self.trimmed_samples += report.trimmed_samples
        self.misaligned_tokens += report.misaligned_tokens
        self.input_tokens += report.input_tokens
        self.output_tokens += report.output_tokens
        self.ttfa_ms = report.ttfa_ms if self.ttfa_ms is None else self.ttfa_ms
        if self.first_made_ms is None:
            self.first_made_ms = report.first_made_ms
        self.ttfs_ms = report.ttfs_ms if self.ttfs_ms is None else self.ttfs_ms
        made_s = report.frames * SAMPLES_PER_FRAME / SAMPLE_RATE_HZ
        self._generated_s += (report.rtf or 0.0) * made_s

    def report(self, total_ms: float) -> UtteranceReport:
        """The report of the whole."""
        made_s = self.frames * SAMPLES_PER_FRAME / SAMPLE_RATE_HZ
        return UtteranceReport(
            finish_reason=self.finish_reason,
            frames=self.frames,
            samples=self.samples,
            trimmed_samples=self.trimmed_samples,
            misaligned_tokens=self.misaligned_tokens,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            ttfa_ms=self.ttfa_ms,
            first_made_ms=self.first_made_ms,
            ttfs_ms=self.ttfs_ms,
            total_ms=total_ms,
            rtf=self._generated_s / made_s if made_s else None,
            error=self.error,
            inserted_samples=self.inserted_samples,
        )


class Passage:
    """Speaks the parts of a text in turn; its reader has `audio`."""

    def __init__(
        self,
        request: SpeechRequest,
        next_part: Callable[[], Part | None],
        submit: Callable[[Part, PassagePiece], None],
        cancel: Callable[[str], None],
        ended: Callable[[str], None],
        *,
        make: MakeUtterance = ServedUtterance,
        asked_s: float,
        most_tokens: int | None,
    ) -> None:
        """Nothing is spoken before `begin`.

        Args:
            request: of the whole text.
            next_part: gives the parts after the first; called on other threads, one at a time.
            submit: has a piece spoken.
            cancel: ends a piece by its name.
            ended: called with the request's id when all has ended.
            make: gives the object that the audio goes to.
            asked_s: when the speech was asked for, on the monotonic clock.
            most_tokens: that the pieces may take together; None is what each may take.
        """
        self.audio = make(request, lambda _: self.cancel())
        self._request, self._next_part = request, next_part
        self._submit, self._cancel, self._ended = submit, cancel, ended
        self._asked_s, self._most_tokens = asked_s, most_tokens
        self._totals = _Totals()
        self._cancelled = False
        self._speaking: PassagePiece | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, first: Part) -> None:
        """Speak from `first` on."""
        self._task = asyncio.create_task(self._run(first), name=f"passage-{self._request.id}")
        # Not in the task: one that is cancelled before its first step never runs.
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Stop at once: what is spoken ends, and nothing more begins."""
        self._cancelled = True
        if self._speaking is not None:
            self._cancel(self._speaking.request.id)
        elif self._task is not None:
            self._task.cancel()

    async def _run(self, first: Part) -> None:
        try:
            await self._speak_all(first)
        except BadRequestError as error:
            self._totals.finish_reason, self._totals.error = "error", str(error)
        except Exception as error:  # Whatever it is, the reader waits for an end.
            _LOG.exception("passage %s stopped", self._request.id)
            self._totals.finish_reason = "error"
            self._totals.error = f"{type(error).__name__}: {error}"

    def _finish(self, task: asyncio.Task[None]) -> None:
        if self._speaking is not None:
            self._cancel(self._speaking.request.id)
        if task.cancelled() or self._cancelled:
            self._totals.finish_reason = "cancelled"
        self.audio.end(self._totals.report((time.monotonic() - self._asked_s) * 1e3))
        self._ended(self._request.id)

    async def _speak_all(self, first: Part) -> None:
        part: Part | None = first
        number = silence = 0
        while part is not None:
            coming = asyncio.create_task(asyncio.to_thread(self._next_part))
            try:
                piece = self._piece(part, number, silence)
                report = await self._spoken(part, piece)
                if report.finish_reason in ("error", "cancelled") or not self._has_tokens():
                    return
                if not report.samples:
                    raise BadRequestError(f"the model gave no audio for {part.text[:40]!r}")
                silence = samples_of(max(0.0, part.pause_s - piece.quiet_s - _LEAD_IN_S))
                part = await coming
                number += 1
                await self.audio.room(RESUME_S)
            finally:
                coming.cancel()
                # Its error, if nobody waits for it any more, is nobody's.
                coming.add_done_callback(_forget)

    async def _spoken(self, part: Part, piece: PassagePiece) -> UtteranceReport:
        self._speaking = piece
        self._submit(part, piece)
        report = await piece.ended
        self._speaking = None
        self._totals.add(report, piece.silence if report.samples else 0)
        if self._cancelled:
            raise asyncio.CancelledError  # It came just then.
        return report

    def _piece(self, part: Part, number: int, silence: int) -> PassagePiece:
        request, sampling = self._request, self._request.sampling
        if self._most_tokens is not None:
            left = max(1, self._most_tokens - self._totals.output_tokens)
            sampling = replace(sampling, max_tokens=left)
        made = replace(
            request,
            id=f"{request.id}/{number}",
            text=part.text,
            sampling=replace(sampling, seed=piece_seed(sampling.seed, number)),
            lead_in="trim" if number else request.lead_in,
            # Nobody waits for a later piece: it is made as its seed says, whatever the clock does.
            whole=request.whole or number > 0,
            tail_s=max(0.0, min(_TAIL.keep_s, part.pause_s - _LEAD_IN_S)),
        )
        return PassagePiece(made, self.audio, silence)

    def _has_tokens(self) -> bool:
        if self._most_tokens is None or self._totals.output_tokens < self._most_tokens:
            return True
        self._totals.finish_reason = "length"
        return False


def piece_seed(seed: int, number: int) -> int:
    """The seed of a passage's piece: that of the request for the first, else made of both."""
    if not number:
        return seed
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _forget(task: asyncio.Task[Part | None]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
