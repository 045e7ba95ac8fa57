"""Speech over a WebSocket: text goes in while audio comes out, many utterances on one socket.

vLLM-Omni's messages, and `session.cancel`. Two tasks share a socket: one reads, so that text, a
cancel or the client's end is noticed at once; one speaks, utterance after utterance and sentence
after sentence. An utterance is all text up to `input.done`; how it is cut into sentences is the
configuration's `split_granularity`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.websockets import WebSocketDisconnect, WebSocketDisconnected

from server.bearer import subprotocol
from server.errors import RequestError
from server.formats import FORMATS
from server.protocol import check_model, parse_message, request_id
from server.response import ABORT
from server.sentences import SentenceCutter
from server.socket_messages import (
    InputDone,
    InputText,
    SessionCancel,
    SessionClose,
    SessionConfig,
)
from server.socket_sender import NORMAL_CLOSURE, POLICY_VIOLATION, SocketSender
from server.socket_speaker import SocketSpeaker
from server.turn import Turn, error_message
from server.wav import CHANNELS

if TYPE_CHECKING:
    from fastapi import WebSocket

    from server.serving import Serving


class SpeechSession:
    """One WebSocket from its opening to its end."""

    def __init__(self, serving: Serving, websocket: WebSocket) -> None:
        self._serving = serving
        self._socket = websocket
        self._label = request_id(websocket.headers)
        self._config: SessionConfig | None = None
        self._sender = SocketSender(websocket, serving.limits.stall_s)
        self._speaker = SocketSpeaker(serving, self._sender, self._label)
        self._open: Turn | None = None  # The one that text goes to.
        self._next_index = 0
        self._closing = False

    async def run(self) -> None:
        """Serve the socket until either side ends it."""
        await self._socket.accept(
            subprotocol=subprotocol(self._socket.headers),
            headers=[(b"x-request-id", self._label.encode())],
        )
        self._serving.sessions.add(self)
        self._serving.metrics.open_sockets.inc()
        reader = asyncio.create_task(self._read(), name="socket-read")
        speaker = asyncio.create_task(self._speaker.run(), name="socket-speak")
        try:
            await asyncio.wait((reader, speaker), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, speaker):
                task.cancel()
            await asyncio.wait((reader, speaker))
            self._speaker.drop()
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
        self._speaker.finish()

    async def _read(self) -> None:
        """Take messages until the client ends the session, by a message or by going away."""
        limits = self._serving.limits
        while True:
            patience_s = limits.config_s if self._config is None else limits.idle_s
            try:
                text = await self._receive(patience_s)
            except TimeoutError:
                if self._speaker.silent_s < patience_s:
                    continue
                what = "session.config" if self._config is None else "message"
                error = RequestError(f"no {what} within {patience_s:g} s; closing", code="timeout")
                await self._sender.send(error_message(error))
                await self._sender.close(POLICY_VIOLATION)
                return
            try:
                await self._take(text)
            except RequestError as error:
                self._serving.refused("websocket", error, self._label)
                await self._sender.send(error_message(error))
                if self._config is None:
                    await self._sender.close(POLICY_VIOLATION)
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
                self._open = None
                self._speaker.cancel()

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
            chosen = FORMATS[config.available_format()]
            await self._sender.send(
                {
                    "type": "session.ready",
                    "model": model.names[0],
                    "voice": voice,
                    "format": chosen.name,
                    "sample_rate": chosen.rate_hz,
                    "channels": CHANNELS,
                    "ignored": config.ignored,
                }
            )

    def _add_text(self, config: SessionConfig, text: str) -> None:
        limit = self._serving.limits.waiting_characters
        waiting = self._speaker.waiting_characters + len(text)
        if waiting > limit:
            raise RequestError(
                f"{waiting} characters would wait to be spoken, more than {limit}; this text was "
                "not taken, send it again when audio.done has come",
                code="too_much_text",
            )
        if text:
            turn = self._open or self._new_turn(config)
            self._open = turn
            turn.add(text)

    def _new_turn(self, config: SessionConfig) -> Turn:
        limit = self._serving.limits.waiting_utterances
        if self._speaker.unfinished_turns >= limit:
            raise RequestError(
                f"{limit} utterances wait to be spoken; begin another when session.done has come",
                code="too_many_utterances",
            )
        turn = Turn(self._next_index, config, SentenceCutter(config.split_granularity))
        self._next_index += 1
        self._speaker.add(turn)
        return turn
