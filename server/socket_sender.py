"""What is sent on one socket: whole messages, each of which its client must take in time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocketState

from server.response import slices
from server.socket_connection import MORE

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.websockets import WebSocket

    from server.delivery import Delivery

NORMAL_CLOSURE = 1000
POLICY_VIOLATION = 1008
SERVICE_RESTART = 1012


class SocketSender:
    """Sends on a socket, whoever asks; TimeoutError if what was sent before is not taken."""

    def __init__(self, socket: WebSocket, stall_s: float) -> None:
        self._socket, self._stall_s = socket, stall_s
        self._sending = asyncio.Lock()  # No message may come between the parts of another.

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message of text."""
        async with self._sending:
            text = json.dumps(message, ensure_ascii=False)
            await self._in_time(self._socket.send_text(text))

    async def send_audio(self, delivery: Delivery, audio: bytes) -> None:
        """Send a message of audio, in parts: its reader may be slow, if it only goes on."""
        async with self._sending:
            try:
                for part, is_last in slices(audio):
                    await self._in_time(
                        self._socket.send(
                            {"type": "websocket.send", "bytes": part, MORE: not is_last}
                        )
                    )
                    delivery.body_bytes += len(part)
            except TimeoutError:
                delivery.outcome = "stalled"
                raise

    async def close(self, code: int) -> None:
        """Close the socket, unless it is closed."""
        async with self._sending:
            if self._socket.application_state is WebSocketState.CONNECTED:
                await self._in_time(self._socket.close(code))

    async def _in_time(self, sending: Awaitable[None]) -> None:
        async with asyncio.timeout(self._stall_s):
            await sending
