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
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.protocol import State

from speech_assets.bench.address import shown
from speech_assets.bench.exchange import LONGEST_ERROR
from speech_assets.bench.http_client import CONNECT_WITHIN_S, LONGEST_TIMEOUTS
from speech_assets.bench.plain import plain_words

if TYPE_CHECKING:
    from speech_assets.bench.exchange import Exchange
    from speech_assets.bench.schedule import Plan
    from speech_assets.bench.target import Target

# For the end of an utterance that was cancelled; a socket without it is not used again.
_CANCELLED_WITHIN_S = 5.0
_COUNTS = ("samples", "frames", "trimmed_samples")
_MOST_COUNTED = 10**12  # Samples: more than a year.
_HANDSHAKE = 101
_TOO_MANY = 429


class _Connect(connect):
    """Follows no redirect, as the client of HTTP does not: another server would be measured."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


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
            reused = "" if exchange.connect_ms is not None else " (it was used again)"
            exchange.failed("disconnected", f"the socket was closed: {error}{reused}")
        # Whatever a server's messages do to those who read them (nesting makes a RecursionError).
        except Exception as error:
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
            socket = await _Connect(
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
            place = shown(error.response.headers.get("Location", ""))
            to = f" to {place}" if place else ""
            words = (error.response.body or b"")[:LONGEST_ERROR].decode(errors="replace")
            exchange.failed(outcome, f"the handshake was answered {exchange.status}{to}: {words}")
            return None
        except (OSError, TimeoutError, WebSocketException, EOFError) as error:
            exchange.not_connected(error, f"{type(error).__name__}: {error}")
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
            got = exchange.received
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
            got = exchange.received
            exchange.failed(
                "stalled" if got else "timeout",
                f"nothing for {self._target.timeout_s:g} s after {got} bytes",
            )
            return None
        return message if isinstance(message, bytes) else json.loads(message)


def _report(exchange: Exchange, done: dict[str, Any]) -> None:
    """Add up what the server says of the sentences of an utterance.

    Raises:
        ValueError: it says what cannot be.
    """
    reason = done.get("finish_reason")
    if reason is not None and not isinstance(reason, str):
        raise ValueError(f"audio.done has a finish_reason that is no string: {str(reason)[:80]}")
    exchange.finish_reason = None if reason is None else plain_words(reason)
    counts = {name: _count(done, name) for name in _COUNTS if name in done}
    if "frames" not in counts:
        return
    exchange.reported_samples = (exchange.reported_samples or 0) + counts["samples"]
    exchange.reported_frames = (exchange.reported_frames or 0) + counts["frames"]
    exchange.reported_trimmed = (exchange.reported_trimmed or 0) + counts["trimmed_samples"]


def _count(done: dict[str, Any], name: str) -> int:
    value = done[name]
    if type(value) is not int or not 0 <= value <= _MOST_COUNTED:
        raise ValueError(f"audio.done has {name} that are no count: {str(value)[:80]}")
    return value


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
