"""Asks a server what it says of itself, in a thread of its own: a slow answer holds up nothing."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from speech_assets.bench.metrics import Metrics
from speech_assets.bench.plain import plain_json
from speech_assets.bench.server_facts import ServerFacts

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

_Answer = TypeVar("_Answer")
ACTIVE_STREAMS = "speech_active_streams"
_ASK_WITHIN_S = 5.0  # From the question to the last byte of the answer.
_LONGEST_ANSWER = 4_000_000  # Bytes; vLLM's metrics are about 100,000.
_STARTED = "process_start_time_seconds"
_POLL_EVERY_S = 0.005


class ServerProbe:
    """Asks a server. What it does not answer, or not in time, is simply not known.

    A path that was too slow is not asked again, so that no level waits for it twice; one that has
    answered before is asked again by `facts` only.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], query: str = "") -> None:
        self._base_url = base_url
        self._headers = dict(headers)
        self._query = f"?{query}" if query else ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="bench-probe", daemon=True
        )
        self._client: httpx.AsyncClient | None = None
        self._answered: set[str] = set()
        self._slow: set[str] = set()

    def __enter__(self) -> ServerProbe:
        self._thread.start()
        # A proxy in the environment is for the wide world, not for what is measured.
        self._client = httpx.AsyncClient(
            headers=self._headers, timeout=_ASK_WITHIN_S, trust_env=False
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._later(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def facts(self) -> ServerFacts:
        """Everything it says now."""
        self._slow -= self._answered
        return self._later(self._facts()).result()

    def metrics(self) -> Future[Metrics | None]:
        """Its /metrics, once they are there; None without."""
        return self._later(self._metrics())

    def freed_s(self, within_s: float) -> float | None:
        """When (monotonic) no stream is active any more; None if unknown or not in time."""
        return self._later(self._freed_s(within_s)).result()

    def _later(self, work: Coroutine[Any, Any, _Answer]) -> Future[_Answer]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _close(self) -> None:
        # What nobody waits for any more.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _facts(self) -> ServerFacts:
        config, metrics = await asyncio.gather(self._json("/config"), self._metrics())
        identity: list[str] = []
        if metrics and _STARTED in metrics.values:
            identity.append(str(metrics.values[_STARTED]))
        if config and "config_sha256" in config:
            # Ours says when it started as the age of its models; others invent that field.
            models = (await self._json("/v1/models") or {}).get("data")
            if isinstance(models, list) and models and isinstance(models[0], dict):
                identity.append(str(models[0].get("created")))
            identity.append(str(config["config_sha256"]))
        return ServerFacts(config, metrics, tuple(identity))

    async def _metrics(self) -> Metrics | None:
        text = await self._get("/metrics")
        try:
            return None if text is None else Metrics.parse(text.decode())
        except ValueError:
            return None

    async def _json(self, path: str) -> dict[str, Any] | None:
        text = await self._get(path)
        try:
            value = None if text is None else plain_json(json.loads(text))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    async def _freed_s(self, within_s: float) -> float | None:
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            metrics = await self._metrics()
            if metrics is None or ACTIVE_STREAMS not in metrics.values:
                return None
            if metrics.values[ACTIVE_STREAMS] == 0:
                return time.monotonic()
            await asyncio.sleep(_POLL_EVERY_S)
        return None

    async def _get(self, path: str) -> bytes | None:
        """The body of a good answer; None of any other, or of none in time."""
        if path in self._slow or self._client is None:
            return None
        try:
            # httpx' own limits are of each read: bytes that trickle in never reach them.
            async with asyncio.timeout(_ASK_WITHIN_S):
                body = await self._read(self._client, path)
        except (TimeoutError, httpx.TimeoutException):
            self._slow.add(path)
            return None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError):
            return None
        self._answered.add(path)
        return body

    async def _read(self, client: httpx.AsyncClient, path: str) -> bytes | None:
        url = self._base_url + path + self._query
        async with client.stream("GET", url) as response:
            response.raise_for_status()
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _LONGEST_ANSWER:
                    return None
            return bytes(body)
