"""One utterance of a WebSocket: the text that comes in, and the messages around its audio."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from server.formats import FORMATS
from server.surrogates import joined, without_half
from server.timings import timings_of
from server.wav import CHANNELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from server.errors import RequestError
    from server.sentences import SentenceCutter
    from server.socket_messages import SessionConfig
    from server.speech import UtteranceReport


@dataclass(slots=True)
class Turn:
    """One utterance: its text so far, cut up, and how far it is spoken."""

    index: int
    config: SessionConfig
    cutter: SentenceCutter
    news: asyncio.Event = field(default_factory=asyncio.Event)  # Set when anything here changes.
    complete: bool = False  # No more text comes.
    cancelled: bool = False
    spoken: int = 0
    dropped_characters: int = 0  # Of text that will not be spoken, and has no line in the log yet.
    _speaks_rest: bool = False  # What has no end of its own is spoken, now that none comes.
    _half: str = ""  # Of a UTF-16 pair, the other half of which may come.

    @property
    def waiting_characters(self) -> int:
        """Characters that are not spoken yet."""
        return self.cutter.waiting

    @property
    def has_sentence(self) -> bool:
        """Whether `next_sentence` would give one at once."""
        return self.cutter.has_piece or (self._speaks_rest and self.cutter.waiting > 0)

    def add(self, text: str) -> None:
        """Take text that goes on where the last ended, and be it within a UTF-16 pair."""
        text, self._half = without_half(self._half + text)
        self.cutter.add(joined(text))
        self.news.set()

    def end(self, *, with_rest: bool) -> None:
        """No more text comes; what has no end of its own yet is spoken or dropped."""
        if self._half:
            self.cutter.add(joined(self._half))
            self._half = ""
        self.complete, self._speaks_rest = True, with_rest
        self.news.set()

    def cancel(self) -> None:
        """Drop all that is not spoken yet."""
        self.cancelled = True
        self.end(with_rest=False)
        self.dropped_characters += len(self.cutter.flush())

    async def next_sentence(self) -> str | None:
        """The next sentence to speak; None when there will be no more.

        Cut only now: a message of thousands of sentences must not hold up the event loop.
        """
        while (sentence := self.cutter.next()) is None:
            if self.complete:
                rest = self.cutter.flush()
                if self._speaks_rest:
                    return rest or None
                self.dropped_characters += len(rest)
                return None
            self.news.clear()
            await self.news.wait()
        return sentence


@dataclass(slots=True)
class SentenceMessages:
    """The messages around the audio of one sentence, paired whatever happens."""

    send: Callable[[dict[str, Any]], Awaitable[None]]
    turn: Turn
    text: str
    total_bytes: int = 0  # Headers included.
    samples: int = 0  # Of the model's, before speed and format.
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
        chosen = FORMATS[config.available_format()]
        message: dict[str, Any] = {
            "type": "audio.start",
            **self._place,
            "sentence_text": self.text,
            "format": chosen.name,
        }
        if config.stream_audio and chosen.is_raw:
            message |= {"sample_rate": chosen.rate_hz, "channels": CHANNELS}
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
        report = self.report
        if self.has_failed:
            message["finish_reason"] = "error"
        elif report is None or self.turn.cancelled:
            message["finish_reason"] = "cancelled"
        else:
            message["finish_reason"] = report.finish_reason
        if report is not None:
            message |= {
                "samples": self.samples,
                "frames": report.frames,
                "trimmed_samples": report.trimmed_samples,
                "inserted_samples": report.inserted_samples,
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
