"""Speech as an HTTP response: raw audio, server-sent events, or one whole file.

The status is held until the first chunk exists, so that whatever goes wrong before is a real 4xx or
5xx. A raw stream that fails later is cut off without its closing chunk, and clients see that it is
incomplete. A client that goes away ends its utterance at once; one that takes nothing for
`Limits.stall_s` is cut off.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from server.errors import RequestError
from server.formats import FORMATS, ResponseFormat
from server.rendition import Rendition
from server.timings import timings_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.types import Message, Receive, Scope, Send

    from server.delivery import Delivery
    from server.serving import Serving
    from server.speech import UtteranceReport
    from server.speech_options import SpeechBody

SLICE_BYTES = 64 * 1024  # Of a long body: its reader must take so much within `Limits.stall_s`.
ABORT = "abort"  # Key of the connection's abort in a scope's state; the server puts it there.


class SpeechResponse(Response):
    """Speaks a request's text while the client listens."""

    def __init__(self, serving: Serving, body: SpeechBody, label: str, *, as_events: bool) -> None:
        self.format: ResponseFormat = body.available_format()
        self.background = None
        self._serving = serving
        self._body = body
        self._label = label
        self._as_events = as_events
        self._whole = body.stream is False and not as_events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = asyncio.ensure_future(self._answer(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            answer.cancel()
            await asyncio.wait((answer, gone))
        if answer.cancelled():
            return
        try:
            answer.result()
        except TimeoutError:
            # Closing would wait for the client to take what is buffered, which it does not.
            abort: Callable[[], None] = scope["state"][ABORT]
            abort()

    async def _answer(self, send: Send) -> None:
        try:
            transport = "sse" if self._as_events else "http"
            with (
                await self._serving.begin(
                    self._body.input, self._body, transport, self._label, whole=self._whole
                ) as delivery,
                Rendition(
                    delivery, self.format, self._body.played_speed, whole=self._whole
                ) as rendition,
            ):
                first = await rendition.next()
                if first is None:
                    raise delivery.failure() or AssertionError("an end without a reason")
                try:
                    await self._deliver(delivery, rendition, first, _counted(delivery, send))
                except TimeoutError:
                    delivery.outcome = "stalled"
                    raise
        except RequestError as error:
            headers = {**error.headers(), "x-request-id": self._label}
            response = JSONResponse(error.body(), error.status, headers)
            await response({"type": "http"}, _nothing, send)

    async def _deliver(
        self, delivery: Delivery, rendition: Rendition, first: bytes, send: Send
    ) -> None:
        if self._whole:
            await self._send_whole(delivery, first, send)
            rendition.sent(first)
            return
        media = "text/event-stream" if self._as_events else FORMATS[self.format].content_type
        await self._send(send, self._start(delivery, media))
        audio: bytes | None = first
        while audio is not None:
            await self._send(send, _part(self._framed(audio)))
            rendition.sent(audio)
            audio = await rendition.next()
        failure = delivery.failure()
        if self._as_events:
            event = _error_event(failure) if failure else _done_event(delivery.report)
            await self._send(send, _part(event, last=True))
        elif failure is None:
            await self._send(send, _part(b"", last=True))

    async def _send_whole(self, delivery: Delivery, audio: bytes, send: Send) -> None:
        start = self._start(delivery, FORMATS[self.format].content_type)
        start["headers"].append((b"content-length", b"%d" % len(audio)))
        if report := delivery.report:
            start["headers"].append((b"x-finish-reason", report.finish_reason.encode()))
            start["headers"].append((b"x-speech-frames", b"%d" % report.frames))
        await self._send(send, start)
        for part, is_last in slices(audio):
            await self._send(send, _part(part, last=is_last))

    def _start(self, delivery: Delivery, media: str) -> Message:
        headers = {
            "content-type": media,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # A proxy must not collect a stream.
            "x-request-id": self._label,
            "x-speech-seed": str(delivery.request.sampling.seed),
        }
        if self._body.ignored:
            headers["x-speech-ignored"] = ", ".join(self._body.ignored)
        return {
            "type": "http.response.start",
            "status": 200,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }

    def _framed(self, audio: bytes) -> bytes:
        if not self._as_events:
            return audio
        return _event(
            {
                "type": "speech.audio.delta",
                "audio": base64.b64encode(audio).decode(),
                "response_format": self.format,
            }
        )

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._serving.limits.stall_s):
            await send(message)


def slices(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """`data`, which is not empty, in slices of at most `SLICE_BYTES`, and which is the last."""
    for start in range(0, len(data), SLICE_BYTES):
        end = start + SLICE_BYTES
        yield data[start:end], end >= len(data)


def _counted(delivery: Delivery, send: Send) -> Send:
    """`send`, and what the body takes is known to the delivery."""

    async def counted(message: Message) -> None:
        await send(message)
        delivery.body_bytes += len(message.get("body", b""))

    return counted


async def _disconnected(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _part(body: bytes, *, last: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": not last}


def _event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def _done_event(report: UtteranceReport | None) -> bytes:
    assert report is not None
    return _event(
        {
            "type": "speech.audio.done",
            "usage": {
                "input_tokens": report.input_tokens,
                "output_tokens": report.output_tokens,
                "total_tokens": report.input_tokens + report.output_tokens,
                "input_token_details": {"text_tokens": report.input_tokens, "audio_tokens": 0},
            },
            "finish_reason": report.finish_reason,
            "samples": report.samples,
            "timings": timings_of(report),
        }
    )


def _error_event(error: RequestError) -> bytes:
    return _event({"type": "speech.audio.error", **error.body()})
