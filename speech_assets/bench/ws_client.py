"""Speech over the WebSocket of docs/protocol.md: one utterance a request, sockets used again.

Connecting and `session.config` come before clock zero, which is the `input.text`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State

from speech_assets.bench.http_client import CONNECT_WITHIN_S, LONGEST_TIMEOUTS

if TYPE_CHECKING:
    from speech_assets.bench.exchange import Exchange
    from speech_assets.bench.schedule import Plan
    from speech_assets.bench.target import Target

# For the end of an utterance that was cancelled; a socket without it is not used again.
_CANCELLED_WITHIN_S = 5.0
_HANDSHAKE = 101
_TOO_MANY = 429


class WsClient:
    """Utterances of one process over its own sockets."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: list[ClientConnection] = []

    async def speak(self, plan: Plan, exchange: Exchange) -> None:
        """Speak one utterance into `exchange`; failures are its outcome."""
        socket: ClientConnection | None = None
        is_clean = False
        try:
            socket = await self._socket(exchange)
            if socket is not None:
                is_clean = await self._utter(socket, plan, exchange)
        except ConnectionClosed as error:
            exchange.failed("disconnected", f"the socket was closed: {error}")
        except (ValueError, KeyError, TypeError) as error:
            exchange.failed("garbage", f"a message that is none: {type(error).__name__}: {error}")
        finally:
            if socket is not None:
                if is_clean and not self._target.fresh_connections:
                    self._idle.append(socket)
                else:
                    # At once: a closing handshake would hold up the next request of this stream.
                    socket.transport.abort()

    async def close(self) -> None:
        """Close all sockets."""
        for socket in self._idle:
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                async with asyncio.timeout(1):
                    await socket.close()

    async def _socket(self, exchange: Exchange) -> ClientConnection | None:
        while self._idle:
            socket = self._idle.pop()
            if socket.state is State.OPEN:
                return socket
        began_s = time.monotonic()
        try:
            socket = await connect(
                self._target.speech_url,
                additional_headers=self._target.headers,
                compression=None,
                max_size=None,
                ping_interval=None,
                proxy=None,
                open_timeout=min(CONNECT_WITHIN_S, self._target.timeout_s),
            )
        except InvalidStatus as error:
            exchange.status = error.response.status_code
            outcome = "refused" if exchange.status == _TOO_MANY else "http_error"
            words = (error.response.body or b"")[:500].decode(errors="replace")
            exchange.failed(outcome, f"the handshake was answered {exchange.status}: {words}")
            return None
        except (OSError, TimeoutError, InvalidHandshake, EOFError) as error:
            exchange.failed("connect_error", f"{type(error).__name__}: {error}")
            return None
        exchange.connect_ms = (time.monotonic() - began_s) * 1e3
        return socket

    async def _utter(self, socket: ClientConnection, plan: Plan, exchange: Exchange) -> bool:
        """Speak; whether the socket can be used again."""
        timeout_s = self._target.timeout_s
        exchange.status = _HANDSHAKE
        try:
            async with asyncio.timeout(LONGEST_TIMEOUTS * timeout_s):
                if not await self._configure(socket, plan, exchange):
                    return False
                exchange.sent_s = time.monotonic()
                await socket.send(json.dumps({"type": "input.text", "text": self._text(plan)}))
                await socket.send('{"type": "input.done"}')
                cancel = asyncio.timeout(plan.cancel_after_s)
                try:
                    async with cancel:
                        return await self._receive(socket, exchange)
                except TimeoutError:
                    if not cancel.expired():
                        raise
                exchange.cancelled_s = time.monotonic()
                exchange.failed("cancelled", "cancelled by this client, as planned")
                return await _cancelled(socket)
        except TimeoutError:
            got = sum(len(data) for _, data in exchange.arrivals)
            exchange.failed(
                "timeout", f"no end within {LONGEST_TIMEOUTS * timeout_s:g} s ({got} bytes)"
            )
            return False

    def _text(self, plan: Plan) -> str:
        return self._target.texts[plan.text]

    async def _configure(self, socket: ClientConnection, plan: Plan, exchange: Exchange) -> bool:
        await socket.send(json.dumps(self._target.session(plan)))
        if not self._target.is_ours:
            return True  # Another server of this protocol need not know `session.ready`.
        message = await self._next(socket, exchange)
        if message is None:
            return False
        if isinstance(message, bytes) or message["type"] != "session.ready":
            words = "audio" if isinstance(message, bytes) else json.dumps(message)
            exchange.failed("http_error", f"the configuration was answered with {words}")
            return False
        return True

    async def _receive(self, socket: ClientConnection, exchange: Exchange) -> bool:
        while True:
            message = await self._next(socket, exchange)
            if message is None:
                return False
            if isinstance(message, bytes):
                exchange.arrivals.append((time.monotonic(), message))
            elif message["type"] == "audio.done":
                _report(exchange, message)
            elif message["type"] == "error":
                is_refused = message.get("code") == "overloaded"
                words = f"{message.get('code')}: {message.get('message')}"
                exchange.failed("refused" if is_refused else "http_error", words)
                if "utterance_index" not in message:
                    return False  # No `session.done` follows.
            elif message["type"] == "session.done":
                return True

    async def _next(
        self, socket: ClientConnection, exchange: Exchange
    ) -> bytes | dict[str, Any] | None:
        """The next message; None when none came in time, which is then the outcome."""
        silence = asyncio.timeout(self._target.timeout_s)
        try:
            async with silence:
                message = await socket.recv()
        except TimeoutError:
            if not silence.expired():
                raise
            got = sum(len(data) for _, data in exchange.arrivals)
            exchange.failed(
                "stalled" if got else "timeout",
                f"nothing for {self._target.timeout_s:g} s after {got} bytes",
            )
            return None
        return message if isinstance(message, bytes) else json.loads(message)


def _report(exchange: Exchange, done: dict[str, Any]) -> None:
    """Add up what the server says of the sentences of an utterance."""
    exchange.finish_reason = done.get("finish_reason")
    if "frames" not in done:
        return
    exchange.reported_samples = (exchange.reported_samples or 0) + done["samples"]
    exchange.reported_frames = (exchange.reported_frames or 0) + done["frames"]
    exchange.reported_trimmed = (exchange.reported_trimmed or 0) + done["trimmed_samples"]


async def _cancelled(socket: ClientConnection) -> bool:
    """Cancel what is being spoken; whether it ended and the socket is as good as new."""
    await socket.send('{"type": "session.cancel"}')
    try:
        async with asyncio.timeout(_CANCELLED_WITHIN_S):
            while True:
                message = await socket.recv()
                if isinstance(message, str) and json.loads(message)["type"] == "session.done":
                    return True
    except TimeoutError:
        return False
