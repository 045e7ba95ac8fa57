"""Clients that take audio slower than it plays: the server must wait for them and lose nothing."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Self

import httpx

from server.frames import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from types import TracebackType

SHARE_OF_REALTIME = 0.5
# What the system takes in for a reader that does not read: less than a tenth of a second.
RECEIVE_BUFFER_BYTES = 4_096
_BYTES_PER_S = 2 * SAMPLE_RATE_HZ
_TIMEOUT_S = 120.0
_AGAIN = (429, 503)
_AGAIN_AFTER_S = 1.0


class SlowReaders:
    """So many threads, each of which asks for `text` again and again and reads it slowly.

    `finished` answers were read to their end; `errors` are in words. On leaving the context each
    leaves the answer that it reads.
    """

    def __init__(self, url: str, count: int, text: str) -> None:
        self._url, self._text = url, text
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(n,), name=f"slow-{n}", daemon=True)
            for n in range(count)
        ]
        self.finished = 0
        self.read_bytes = 0
        self.errors: list[str] = []
        self._counting = threading.Lock()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_S)

    def _read(self, number: int) -> None:
        options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)]
        transport = httpx.HTTPTransport(socket_options=options)
        with httpx.Client(transport=transport, base_url=self._url, timeout=_TIMEOUT_S) as client:
            seed = 1_000_000 * (number + 1)
            while not self._ended.is_set():
                seed += 1
                try:
                    self._read_one(client, seed)
                except httpx.HTTPError as error:
                    self._failed(f"{type(error).__name__}: {error}")

    def _read_one(self, client: httpx.Client, seed: int) -> None:
        body = {"input": self._text, "response_format": "pcm", "seed": seed}
        with client.stream("POST", "/v1/audio/speech", json=body) as answer:
            if answer.status_code in _AGAIN:
                self._ended.wait(_AGAIN_AFTER_S)
                return
            if answer.status_code != 200:
                self._failed(f"{answer.status_code}: {answer.read()[:200]!r}")
                return
            began_s, taken = time.monotonic(), 0
            for part in answer.iter_raw():
                taken += len(part)
                with self._counting:
                    self.read_bytes += len(part)
                due_s = began_s + taken / (_BYTES_PER_S * SHARE_OF_REALTIME)
                if self._ended.wait(max(0.0, due_s - time.monotonic())):
                    return
        with self._counting:
            self.finished += 1

    def _failed(self, words: str) -> None:
        # A server that is gone would else be asked a thousand times a second.
        self._ended.wait(_AGAIN_AFTER_S)
        with self._counting:
            self.errors.append(words)
