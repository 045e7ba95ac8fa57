"""One utterance of a WebSocket: the text that comes in, and the messages around its audio."""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from server.frames import SAMPLE_RATE_HZ
from server.serving import timings_of
from server.wav import CHANNELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from server.protocol import RequestError, SessionConfig
    from server.sentences import SentenceCutter
    from server.speech import UtteranceReport


@dataclass(slots=True)
class Turn:
    """One utterance: its text so far, cut up, and how far it is spoken."""

    index: int
    config: SessionConfig
    cutter: SentenceCutter
    sentences: collections.deque[str] = field(default_factory=collections.deque[str])
    news: asyncio.Event = field(default_factory=asyncio.Event)  # Set when anything here changes.
    complete: bool = False  # No more text comes.
    cancelled: bool = False
    spoken: int = 0

    @property
    def waiting_characters(self) -> int:
        """Characters that are not spoken yet."""
        return self.cutter.waiting + sum(map(len, self.sentences))

    def add(self, sentences: list[str]) -> None:
        """Put sentences to those that wait."""
        self.sentences.extend(sentences)
        self.news.set()

    def end(self, *, with_rest: bool) -> None:
        """No more text comes; what has no end of its own yet is spoken or dropped."""
        rest = self.cutter.flush()
        if rest and with_rest:
            self.sentences.append(rest)
        self.complete = True
        self.news.set()

    def cancel(self) -> None:
        """Drop all that is not spoken yet."""
        self.cancelled = True
        self.sentences.clear()
        self.end(with_rest=False)

    async def next_sentence(self) -> str | None:
        """The next sentence to speak; None when there will be no more."""
        while not self.sentences:
            if self.complete:
                return None
            self.news.clear()
            await self.news.wait()
        return self.sentences.popleft()


@dataclass(slots=True)
class SentenceMessages:
    """The messages around the audio of one sentence, paired whatever happens."""

    send: Callable[[dict[str, Any]], Awaitable[None]]
    turn: Turn
    text: str
    total_bytes: int = 0  # Headers included.
    samples: int = 0
    report: UtteranceReport | None = None
    has_started: bool = False
    has_failed: bool = False

    @property
    def _place(self) -> dict[str, int]:
        return {"utterance_index": self.turn.index, "sentence_index": self.turn.spoken}

    async def start(self) -> None:
        """Send audio.start unless that was done; it comes with the first audio."""
        if self.has_started:
            return
        self.has_started = True
        config = self.turn.config
        chosen = config.available_format()
        message: dict[str, Any] = {
            "type": "audio.start",
            **self._place,
            "sentence_text": self.text,
            "format": chosen,
        }
        if config.stream_audio and chosen == "pcm":
            message |= {"sample_rate": SAMPLE_RATE_HZ, "channels": CHANNELS}
        await self.send(message)

    async def failed(self, error: RequestError) -> None:
        """Tell why the audio ends here, or never came."""
        await self.start()
        self.has_failed = True
        partial = {"partial_audio": True, "action": "discard"} if self.total_bytes else {}
        await self.send(error_message(error) | self._place | partial)

    async def end(self) -> None:
        """Send audio.done with what is known of the sentence."""
        await self.start()
        message: dict[str, Any] = {
            "type": "audio.done",
            **self._place,
            "total_bytes": self.total_bytes,
            "error": self.has_failed,
        }
        if (report := self.report) is None:
            message["finish_reason"] = "error" if self.has_failed else "cancelled"
        else:
            message |= {
                "finish_reason": "cancelled" if self.turn.cancelled else report.finish_reason,
                "samples": self.samples,
                "frames": report.frames,
                "trimmed_samples": report.trimmed_samples,
                "timings": timings_of(report),
            }
        await self.send(message)


def error_message(error: RequestError) -> dict[str, Any]:
    """The message that tells a client what went wrong."""
    message: dict[str, Any] = {
        "type": "error",
        "message": error.message,
        "code": error.code,
        "param": error.param,
    }
    if error.retry_after_s is not None:
        message["retry_after_s"] = error.retry_after_s
    return message
