"""Calls of the codec that run elsewhere than on the thread that asks for them."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

from server.errors import EngineDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from server.codec_decoder import PendingPcm
    from server.codec_rows import DecodeRow
    from server.errors import ServerError

CLOSED = "the codec is closed; open it again"


class Ticket(Protocol):
    """Audio of submitted rows: `ready` tells without waiting, `pcm` waits."""

    def ready(self) -> bool:
        """Whether `pcm` returns, or raises, at once."""
        ...

    def pcm(self) -> list[NDArray[np.int16]]:
        """Samples of each row, int16 of shape (512 * row.latents,), at 24 kHz."""
        ...


class Decoder(Protocol):
    """What makes PCM of rows, wherever it does. Its methods are for one thread."""

    def warm_up(self) -> None:
        """Make ready all that `submit` can meet; waits for it."""
        ...

    def submit(self, rows: Sequence[DecodeRow], hop: int) -> Ticket:
        """Start decoding rows of one hop (in frames). Calls are done in the order submitted.

        Raises:
            ServerError: the codec has failed; so does `pcm` of a call that it did not finish.
        """
        ...

    def watch(self, hear: Callable[[ServerError | None], None]) -> None:
        """Have `hear` called when a call is done, or with the error when none will be any more.

        It is called on any thread; never by a decoder whose device is looked at by `ready`.
        """
        ...

    def close(self) -> None:
        """End what runs, and release all."""
        ...


class LaterPcm:
    """int16 samples (rows, 2,048 * hop) of one call, given or refused by another thread."""

    def __init__(self) -> None:
        self._settled = threading.Event()
        self._samples: NDArray[np.int16] = np.zeros((0, 0), np.int16)
        self._error: ServerError | None = None

    def ready(self) -> bool:
        """Whether `result` returns, or raises, at once."""
        return self._settled.is_set()

    def result(self) -> NDArray[np.int16]:
        """The samples; waits for them.

        Raises:
            ServerError: the codec failed before.
        """
        self._settled.wait()
        if self._error is not None:
            raise self._error
        return self._samples

    def give(self, samples: NDArray[np.int16]) -> None:
        """Settle it with its samples."""
        self._samples = samples
        self._settled.set()

    def refuse(self, error: ServerError) -> None:
        """Settle it with what `result` is to raise."""
        self._error = error
        self._settled.set()


class OpenCalls:
    """Calls that are not done, oldest first: one thread adds them, another finishes them."""

    def __init__(self) -> None:
        self._calls: deque[LaterPcm] = deque()
        self._failure: ServerError | None = None
        self._hear: Callable[[ServerError | None], None] | None = None

    def add(self) -> LaterPcm:
        """One more call.

        Raises:
            ServerError: none will be done any more.
        """
        call = LaterPcm()
        self._calls.append(call)
        # Looked at after the append: a failure in between has refused the call, or is seen here.
        if self._failure is not None:
            raise self._failure
        return call

    @property
    def are_open(self) -> bool:
        """Whether there are any."""
        return bool(self._calls)

    def finish(self, parts: Sequence[NDArray[np.int16]]) -> None:
        """The oldest call is done: its rows in as many parts as were launched."""
        if len(parts) == 1:
            samples = parts[0]
        else:
            samples = np.concatenate(parts) if parts else np.zeros((0, 0), np.int16)
        self._calls.popleft().give(samples)
        if self._hear is not None:
            self._hear(None)

    def fail(self, error: ServerError) -> None:
        """Refuse all calls with `error`, those to come, too."""
        self._failure = error
        while self._calls:
            self._calls.popleft().refuse(error)
        if self._hear is not None:
            self._hear(error)

    def watch(self, hear: Callable[[ServerError | None], None]) -> None:
        """Have `hear` called from now on: see `Decoder.watch`."""
        self._hear = hear
        if self._failure is not None:
            hear(self._failure)


class CallsEnded(Exception):
    """No further call comes."""


def run_calls(
    take: Callable[[bool], Sequence[PendingPcm] | None],
    give: Callable[[Sequence[NDArray[np.int16]]], None],
) -> None:
    """Run calls as they come and give their parts in order, until `take` raises `CallsEnded`.

    What has come is started before an older call is waited for: a device that has done one then has
    the next before it.

    Args:
        take: starts the next call and gives its parts; None where it shall not wait (its argument)
            and none has come.
        give: takes the parts of the oldest call.
    """
    running: deque[Sequence[PendingPcm]] = deque()
    try:
        while True:
            call = take(not running)
            if call is not None:
                running.append(call)
            if running and (call is None or all(part.ready() for part in running[0])):
                give([part.result() for part in running.popleft()])
    except CallsEnded:
        return


def stopped(where: str, error: Exception) -> EngineDiedError:
    """The death of the codec by an error that nobody foresaw; `where` it ran."""
    return EngineDiedError(
        f"the codec's {where} stopped: {type(error).__name__}: {error}; start the server again"
    )
