"""One utterance on its way to one client: its audio, its figures, and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from server.errors import RequestError
from server.frames import SAMPLE_RATE_HZ
from server.metrics import PlaybackClock
from server.request_log import RequestLine
from server.timings import Timings, ms_since, timings_of
from server.wav import BYTES_PER_SAMPLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from server.metrics import Outcome, Transport
    from server.serving import Serving
    from server.speech import SpeechRequest, Utterance, UtteranceReport


@dataclass(slots=True)
class Delivery:
    """One utterance on its way to one client; leaving it as a context ends the utterance."""

    _serving: Serving
    request: SpeechRequest
    label: str  # The x-request-id.
    transport: Transport
    started_s: float
    _utterance: Utterance
    format: str = "pcm"
    _chunks: AsyncIterator[bytes] = field(init=False)
    _clock: PlaybackClock = field(default_factory=PlaybackClock, init=False)
    sent_bytes: int = field(default=0, init=False)
    body_bytes: int = field(default=0, init=False)  # With headers and encoding.
    sent_samples: int = field(default=0, init=False)  # Of the model's, that these bytes hold.
    outcome: Outcome | None = field(default=None, init=False)
    _refusal: RequestError | None = field(default=None, init=False)
    _collected_samples: int = field(default=0, init=False)  # Of a whole answer.

    def __post_init__(self) -> None:
        self._chunks = aiter(self._utterance)
        self._serving.open_deliveries += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.open_deliveries -= 1
        self._close()

    async def next(self) -> bytes | None:
        """The next chunk of PCM; None after the last, which `failure` tells from a proper end."""
        chunk = await anext(self._chunks, None)
        if chunk is not None and self.request.whole:
            self._collected_samples += len(chunk) // BYTES_PER_SAMPLE
            played_s = self._collected_samples / SAMPLE_RATE_HZ / self.request.speed
            try:
                self._serving.limits.check_whole(played_s)
            except RequestError as error:
                self._refusal, self.outcome = error, "refused"
                self.cancel()
                return None
        return chunk

    def sent(self, size: int, *, samples: int, playable: int) -> None:
        """Note that `size` bytes of audio have been handed to the socket.

        They go back to `samples` of the model's, and a player can play `playable` (at 24 kHz) more.
        """
        self.sent_bytes += size
        self.sent_samples += samples
        self._serving.metrics.sent(samples, self._clock.sent(playable, time.monotonic()))

    def cancel(self) -> None:
        """Stop the utterance at once."""
        self._utterance.cancel()

    @property
    def report(self) -> UtteranceReport | None:
        """How the utterance went; None until it has ended."""
        return self._utterance.report

    def failure(self) -> RequestError | None:
        """Why nothing (more) comes, when that is no proper end."""
        if self._refusal is not None:
            return self._refusal
        report = self.report
        if report is None or report.finish_reason == "error":
            why = report.error if report else None
            return RequestError.of_server(
                f"speech failed: {why or 'the engine gave no reason'}; try again",
                status=500,
                code="engine_error",
            )
        if report.finish_reason == "cancelled":
            return RequestError.of_server(
                "the server ended this utterance before it was spoken; try again",
                status=503,
                code="cancelled",
                retry_after_s=1,
            )
        if self.sent_bytes == 0 and report.samples == 0:
            return RequestError.of_server(
                "the model gave no audio for this text; try another seed, or other words",
                status=500,
                code="no_audio",
            )
        return None

    def _close(self) -> None:
        """Cancel what still runs, count and log the end."""
        report = self.report
        if report is None:
            self.cancel()
        outcome = self.outcome or (report.finish_reason if report else "cancelled")
        self._serving.metrics.ended(
            self.transport,
            outcome,
            ttfa_ms=report.ttfa_ms if report else None,
            first_made_ms=report.first_made_ms if report else None,
            ttfs_ms=report.ttfs_ms if report else None,
            rtf=report.rtf if report and outcome == report.finish_reason else None,
            misaligned_tokens=report.misaligned_tokens if report else 0,
        )
        RequestLine(
            self.label,
            self.transport,
            self._status,
            outcome,
            format=self.format,
            voice=self.request.voice,
            characters=len(self.request.text),
            open_ms=ms_since(self.started_s),
            samples=self.sent_samples,
            bytes=self.body_bytes,
            code=self._refusal.code if self._refusal else None,
            error=report.error if report else None,
            **(timings_of(report) if report else Timings()),
        ).write()

    @property
    def _status(self) -> int:
        """Of the answer; a client that left before its first audio had none."""
        if self.body_bytes:
            return 200
        if self._refusal is not None:
            return self._refusal.status
        report, is_ready = self.report, self._serving.state == "ready"
        if report is None or (report.finish_reason == "cancelled" and is_ready):
            return 499
        failure = self.failure()
        return failure.status if failure else 200
