"""Speech over HTTP: `POST /v1/audio/speech`, read as it streams, each arrival with its time.

Clock zero is taken where aiohttp hands the first byte of the body to the socket, after it has a
connection and has written the headers.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from speech_assets.bench.address import shown
from speech_assets.bench.exchange import LONGEST_ERROR
from speech_assets.bench.plain import plain_words

if TYPE_CHECKING:
    from types import SimpleNamespace

    from aiohttp.abc import AbstractStreamWriter

    from speech_assets.bench.exchange import Exchange
    from speech_assets.bench.schedule import Plan
    from speech_assets.bench.target import Target

CONNECT_WITHIN_S = 10.0
# Servers close idle connections (uvicorn after 5 s); a request sent into that moment would look
# like a fault of theirs.
KEEP_IDLE_S = 4.0
# An answer that never ends, though bytes keep coming, is given up after so many timeouts.
LONGEST_TIMEOUTS = 5
_WORDS_WITHIN_S = 2.0  # Of an answer that is no audio: its words are of use, but not awaited long.
_REUSED = " (the connection was used again: it may have been closed just then)"
_OK = 200
_TOO_MANY = 429


class _StampedBody(aiohttp.BytesPayload):
    """A request's body that tells when its first byte is about to be written."""

    def __init__(self, value: bytes, exchange: Exchange) -> None:
        super().__init__(value, content_type="application/json")
        self._exchange = exchange

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        self._exchange.sent_s = time.monotonic()
        await super().write_with_length(writer, content_length)


class HttpClient:
    """Requests of one process over its own connections."""

    def __init__(self, target: Target) -> None:
        self._target = target
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_start.append(_connecting)
        trace.on_connection_create_end.append(_connected)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ttl_dns_cache=None,
                force_close=target.fresh_connections,
                # aiohttp does not take both.
                keepalive_timeout=None if target.fresh_connections else KEEP_IDLE_S,
            ),
            timeout=aiohttp.ClientTimeout(
                total=LONGEST_TIMEOUTS * target.timeout_s,
                sock_connect=min(CONNECT_WITHIN_S, target.timeout_s),
                sock_read=target.timeout_s,
            ),
            trace_configs=[trace],
            # A proxy that packs what it hands on would hide when audio arrives.
            headers={"accept-encoding": "identity"},
            auto_decompress=False,
        )

    async def speak(self, plan: Plan, exchange: Exchange) -> None:
        """Send the request and read its answer into `exchange`; failures are its outcome."""
        body = json.dumps(self._target.body(plan)).encode()
        try:
            async with asyncio.timeout(plan.cancel_after_s) as cancel:
                try:
                    await self._read(body, exchange)
                except Exception as error:
                    # A request that this client ends on purpose raises in here, too.
                    if not cancel.expired():
                        _name(exchange, error, self._target.timeout_s)
        except TimeoutError:
            if exchange.outcome == "ok":  # Else its status has already said what it is.
                exchange.cancelled_s = time.monotonic()
                exchange.failed("cancelled", "cancelled by this client, as planned")

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _read(self, body: bytes, exchange: Exchange) -> None:
        async with self._session.post(
            self._target.speech_url,
            data=_StampedBody(body, exchange),
            headers=self._target.headers,
            trace_request_ctx=exchange,
            allow_redirects=False,
        ) as response:
            headers = response.headers
            exchange.status = response.status
            exchange.content_type = headers.get("content-type", "")
            exchange.content_encoding = headers.get("content-encoding", "")
            if (reason := headers.get("x-finish-reason")) is not None:
                exchange.finish_reason = plain_words(reason)
            if response.status != _OK:
                await _refused(response, exchange)
                return
            while data := await response.content.readany():
                exchange.arrivals.append((time.monotonic(), data))


async def _refused(response: aiohttp.ClientResponse, exchange: Exchange) -> None:
    """Keep what another status says: the status is the outcome, also where no words follow."""
    outcome = "refused" if response.status == _TOO_MANY else "http_error"
    place = shown(response.headers.get("location", ""))
    to = f" to {place}" if place else ""
    exchange.failed(outcome, f"{response.status}{to}")
    words = b""
    try:
        async with asyncio.timeout(_WORDS_WITHIN_S):
            while len(words) < LONGEST_ERROR and (data := await response.content.readany()):
                words += data
    except (aiohttp.ClientError, OSError):  # A TimeoutError is one.
        response.close()
    text = words[:LONGEST_ERROR].decode(errors="replace")
    exchange.failed(outcome, f"{response.status}{to}: {text or 'no words'}")
    # The rest of a long page is not waited for.
    if not response.content.at_eof():
        response.close()


def _name(exchange: Exchange, error: Exception, timeout_s: float) -> None:
    """Give a failed request the name of its failure."""
    words = str(error) or type(error).__name__
    got = exchange.received
    reused = "" if exchange.connect_ms is not None else _REUSED
    if isinstance(error, aiohttp.ClientConnectorError):
        place = f"{error.host}:{error.port}"
        exchange.not_connected(error.os_error, f"no connection to {place}: {error.os_error}")
    elif isinstance(error, aiohttp.ConnectionTimeoutError):
        exchange.failed("connect_error", words)
    elif isinstance(error, aiohttp.ServerTimeoutError) and got:
        exchange.failed("stalled", f"nothing for {timeout_s:g} s after {got} bytes")
    elif isinstance(error, aiohttp.ServerTimeoutError):
        what = "answer" if exchange.status is None else "audio after the headers"
        exchange.failed("timeout", f"no {what} within {timeout_s:g} s")
    elif isinstance(error, TimeoutError):
        whole_s = LONGEST_TIMEOUTS * timeout_s
        exchange.failed("timeout", f"no end within {whole_s:g} s, {got} bytes so far")
    elif isinstance(error, aiohttp.ClientPayloadError) and "Length" in words:
        exchange.failed("truncated", f"the answer is shorter than its content-length: {got} bytes")
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        exchange.failed(
            "disconnected", f"the server closed the connection without an answer{reused}"
        )
    elif isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientOSError):
        exchange.failed(
            "disconnected", f"the connection broke after {got} bytes, before the end{reused}"
        )
    else:
        # What is not HTTP, or what no library has thought of.
        exchange.failed("garbage", f"{type(error).__name__}: {words}")


async def _connecting(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    context.began_s = time.monotonic()


async def _connected(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    exchange: Exchange = context.trace_request_ctx
    exchange.connect_ms = (time.monotonic() - context.began_s) * 1e3
