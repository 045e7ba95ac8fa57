"""Speech over a WebSocket: text goes in while audio comes out, many utterances on one socket.

vLLM-Omni's messages, and `session.cancel`. Two tasks share a socket: one reads, so that text, a
cancel or the client's end is noticed at once; one speaks, utterance after utterance and sentence
after sentence. An utterance is all text up to `input.done`; how it is cut into sentences is the
configuration's `split_granularity`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocketDisconnect, WebSocketDisconnected, WebSocketState

from server.frames import SAMPLE_RATE_HZ
from server.protocol import (
    LONGEST_INPUT,
    InputDone,
    InputText,
    RequestError,
    SessionCancel,
    SessionClose,
    SessionConfig,
    check_model,
    parse_message,
    request_id,
)
from server.response import ABORT
from server.sentences import SentenceCutter
from server.turn import SentenceMessages, Turn, error_message
from server.wav import BYTES_PER_SAMPLE, CHANNELS, wav_header

if TYPE_CHECKING:
    from fastapi import WebSocket

    from server.serving import Delivery, Serving

NORMAL_CLOSURE = 1000
POLICY_VIOLATION = 1008
SERVICE_RESTART = 1012


class SpeechSession:
    """One WebSocket from its opening to its end."""

    def __init__(self, serving: Serving, websocket: WebSocket) -> None:
        self._serving = serving
        self._socket = websocket
        self._label = request_id(websocket.headers)
        self._config: SessionConfig | None = None
        self._turns: collections.deque[Turn] = collections.deque()  # Not finished; first speaks.
        self._open: Turn | None = None  # The one that text goes to.
        self._next_index = 0
        self._news = asyncio.Event()
        self._closing = False
        self._delivery: Delivery | None = None
        self._beginning: asyncio.Task[Delivery] | None = None
        self._spoke_s = -math.inf  # When speech last ended.

    async def run(self) -> None:
        """Serve the socket until either side ends it."""
        await self._socket.accept(headers=[(b"x-request-id", self._label.encode())])
        self._serving.sessions.add(self)
        self._serving.metrics.open_sockets.inc()
        reader = asyncio.create_task(self._read(), name="socket-read")
        speaker = asyncio.create_task(self._speak(), name="socket-speak")
        try:
            await asyncio.wait((reader, speaker), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, speaker):
                task.cancel()
            await asyncio.wait((reader, speaker))
            self._serving.sessions.discard(self)
            self._serving.metrics.open_sockets.dec()
        for task in (reader, speaker):
            if not task.cancelled() and (error := task.exception()):
                if isinstance(error, TimeoutError):
                    self._socket.scope["state"][ABORT]()
                elif not isinstance(error, WebSocketDisconnect | WebSocketDisconnected):
                    raise error

    def drain(self) -> None:
        """Take no more utterances; close as soon as those that are complete are spoken."""
        if self._open is not None:
            self._open.end(with_rest=False)
            self._open = None
        self._closing = True
        self._news.set()

    @property
    def _is_speaking(self) -> bool:
        return (
            self._delivery is not None
            or self._beginning is not None
            or any(turn.sentences for turn in self._turns)
        )

    # Reading

    async def _read(self) -> None:
        """Take messages until the client ends the session, by a message or by going away."""
        limits = self._serving.limits
        while True:
            patience_s = limits.config_s if self._config is None else limits.idle_s
            try:
                text = await self._receive(patience_s)
            except TimeoutError:
                if self._is_speaking or time.monotonic() - self._spoke_s < patience_s:
                    continue
                what = "session.config" if self._config is None else "message"
                error = RequestError(f"no {what} within {patience_s:g} s; closing", code="timeout")
                await self._send(error_message(error))
                await self._close(POLICY_VIOLATION)
                return
            try:
                await self._take(text)
            except RequestError as error:
                self._serving.refused("websocket", error)
                await self._send(error_message(error))
                if self._config is None:
                    await self._close(POLICY_VIOLATION)
                    return

    async def _receive(self, patience_s: float) -> str:
        async with asyncio.timeout(patience_s):
            message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", NORMAL_CLOSURE))
        text = message.get("text")
        # Bytes cannot be a message; as text they fail as JSON does.
        return text if text is not None else ""

    async def _take(self, text: str) -> None:
        """Act on one message.

        Raises:
            RequestError: it was not understood, or not now; nothing has changed.
        """
        limit = self._serving.limits.message_characters
        if len(text) > limit:
            raise RequestError(
                f"the message has {len(text)} characters, more than {limit}; send text in pieces",
                code="message_too_large",
            )
        message = parse_message(text)
        if self._closing and not isinstance(message, SessionCancel):
            raise RequestError("the session is closing; open another", code="closing")
        match message:
            case SessionConfig():
                await self._configure(message)
            case SessionClose():
                # Read on until the speaker closes: a client that goes away must be noticed.
                self.drain()
            case _ if self._config is None:
                raise RequestError(
                    f"{message.type} came before session.config; send that first",
                    code="no_config",
                )
            case InputText():
                self._add_text(self._config, message.text)
            case InputDone():
                (self._open or self._new_turn(self._config)).end(with_rest=True)
                self._open = None
            case SessionCancel():
                self._cancel()

    async def _configure(self, config: SessionConfig) -> None:
        if self._open is not None:
            raise RequestError(
                "session.config came within an utterance; send input.done or session.cancel first",
                code="utterance_open",
            )
        # What cannot be is told now, not at the first sentence.
        config.available_format()
        model = self._serving.ready_model()
        check_model(config.model, model.names)
        if config.voice and config.speaker and config.voice != config.speaker:
            raise RequestError(
                f"voice {config.voice!r} and speaker {config.speaker!r} differ; send one of them",
                param="speaker",
                code="invalid_value",
            )
        config = config.model_copy(update={"voice": config.voice or config.speaker})
        voice = model.voices.resolve(config.voice)
        self._config = config
        if config.session_ready:
            await self._send(
                {
                    "type": "session.ready",
                    "model": model.names[0],
                    "voice": voice,
                    "format": config.available_format(),
                    "sample_rate": SAMPLE_RATE_HZ,
                    "channels": CHANNELS,
                    "ignored": config.ignored,
                }
            )

    def _add_text(self, config: SessionConfig, text: str) -> None:
        limit = self._serving.limits.waiting_characters
        waiting = sum(turn.waiting_characters for turn in self._turns) + len(text)
        if waiting > limit:
            raise RequestError(
                f"{waiting} characters would wait to be spoken, more than {limit}; this text was "
                "not taken, send it again when audio.done has come",
                code="too_much_text",
            )
        if text:
            turn = self._open or self._new_turn(config)
            self._open = turn
            turn.add(turn.cutter.feed(text))

    def _new_turn(self, config: SessionConfig) -> Turn:
        limit = self._serving.limits.waiting_utterances
        if len(self._turns) >= limit:
            raise RequestError(
                f"{limit} utterances wait to be spoken; begin another when session.done has come",
                code="too_many_utterances",
            )
        turn = Turn(self._next_index, config, SentenceCutter(config.split_granularity))
        self._next_index += 1
        self._turns.append(turn)
        self._news.set()
        return turn

    def _cancel(self) -> None:
        """Drop all that is not spoken yet, and be silent at once."""
        for turn in self._turns:
            turn.cancel()
        self._open = None
        if self._delivery is not None:
            self._delivery.cancel()
        elif self._beginning is not None:
            self._beginning.cancel()

    # Speaking

    async def _speak(self) -> None:
        """Speak one turn after the other; close the socket when that was asked for."""
        while True:
            while not self._turns:
                if self._closing:
                    is_ending = self._serving.state in ("draining", "failed")
                    await self._close(SERVICE_RESTART if is_ending else NORMAL_CLOSURE)
                    return
                self._news.clear()
                await self._news.wait()
            await self._speak_turn(self._turns[0])
            self._turns.popleft()

    async def _speak_turn(self, turn: Turn) -> None:
        while (sentence := await turn.next_sentence()) is not None:
            await self._speak_sentence(turn, sentence)
            turn.spoken += 1
        done: dict[str, Any] = {
            "type": "session.done",
            "utterance_index": turn.index,
            "total_sentences": turn.spoken,
        }
        await self._send(done | ({"cancelled": True} if turn.cancelled else {}))

    async def _speak_sentence(self, turn: Turn, text: str) -> None:
        """One sentence: audio.start, audio, audio.done. The first and the last always come."""
        sending = SentenceMessages(self._send, turn, text)
        try:
            if len(text) > LONGEST_INPUT:
                raise RequestError(
                    f"the utterance has {len(text)} characters, more than {LONGEST_INPUT}; send "
                    "input.done sooner, or session.config with split_granularity: sentence",
                    param="text",
                    code="string_above_max_length",
                )
            delivery = await self._begin(turn, text)
            if delivery is not None:
                with delivery:
                    self._delivery = delivery
                    if turn.cancelled:
                        delivery.cancel()
                    await self._deliver(delivery, turn, sending)
        except RequestError as error:
            self._delivery = None
            await sending.failed(error)
        finally:
            self._delivery = None
            self._spoke_s = time.monotonic()
        await sending.end()

    async def _deliver(self, delivery: Delivery, turn: Turn, sending: SentenceMessages) -> None:
        chosen, is_streamed = turn.config.available_format(), turn.config.stream_audio
        head = wav_header() if chosen == "wav" and is_streamed else b""
        kept: list[bytes] = []
        while (chunk := await delivery.next()) is not None:
            # Chunks that were made before a cancel are no longer wanted.
            if turn.cancelled:
                continue
            if not is_streamed:
                kept.append(chunk)
                continue
            await sending.start()
            sending.total_bytes += await self._send_audio(delivery, head, chunk)
            head = b""
        if not turn.cancelled:
            if failure := delivery.failure():
                raise failure
            if not is_streamed:
                audio = b"".join(kept)
                head = wav_header(len(audio)) if chosen == "wav" else b""
                await sending.start()
                sending.total_bytes += await self._send_audio(delivery, head, audio)
        sending.report = delivery.report
        sending.samples = delivery.sent_bytes // BYTES_PER_SAMPLE

    async def _begin(self, turn: Turn, text: str) -> Delivery | None:
        """The delivery of a sentence once it has a place; None when it was cancelled before."""
        label = f"{self._label}-{turn.index}-{turn.spoken}"
        # A task of its own, so that a cancel can end the wait in the queue and not this speaker.
        self._beginning = asyncio.ensure_future(
            self._serving.begin(text, turn.config, "websocket", label)
        )
        try:
            return await self._beginning
        except asyncio.CancelledError:
            if turn.cancelled and self._beginning.cancelled():
                return None
            if self._beginning.done() and not self._beginning.cancelled():
                # It began just then, and nobody is there to take it.
                with contextlib.suppress(RequestError), self._beginning.result():
                    pass
            raise
        finally:
            self._beginning.cancel()
            self._beginning = None

    # Sending

    async def _send_audio(self, delivery: Delivery, head: bytes, audio: bytes) -> int:
        """Send a frame of audio; its bytes."""
        try:
            async with asyncio.timeout(self._serving.limits.stall_s):
                await self._socket.send_bytes(head + audio)
        except TimeoutError:
            delivery.outcome = "stalled"
            raise
        delivery.sent(audio)
        return len(head) + len(audio)

    async def _send(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self._serving.limits.stall_s):
            await self._socket.send_text(json.dumps(message, ensure_ascii=False))

    async def _close(self, code: int) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            await self._socket.close(code)
