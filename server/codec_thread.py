"""The codec on a thread of its own, in the engine's process.

The engine's thread hands rows over and looks at a flag; staging, launching and waiting for the
device are done here.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from server.codec_calls import CLOSED, CallsEnded, OpenCalls, run_calls, stopped
from server.codec_decoder import CodecDecoder, DecodeTicket, PendingPcm
from server.errors import EngineDiedError, ServerError

if TYPE_CHECKING:
    from server.codec_rows import DecodeRow

_LOG = logging.getLogger("server.codec")
_Start = Callable[[CodecDecoder], Sequence[PendingPcm]]


class ThreadDecoder:
    """A `CodecDecoder` that is opened, warmed and used on its own thread; a `Decoder`."""

    def __init__(self, open_decoder: Callable[[], CodecDecoder]) -> None:
        """Open the codec, on its thread; waits for it.

        Raises:
            ServerError: it does not open.
        """
        self._calls = OpenCalls()
        self._starts: queue.SimpleQueue[_Start | None] = queue.SimpleQueue()
        opening = self._calls.add()
        self._thread = threading.Thread(
            target=self._run, args=(open_decoder,), name="codec", daemon=True
        )
        self._thread.start()
        try:
            opening.result()
        except BaseException:
            self.close()
            raise

    def warm_up(self) -> None:
        """See `CodecDecoder.warm_up`."""

        def start(decoder: CodecDecoder) -> Sequence[PendingPcm]:
            decoder.warm_up()
            return ()

        warm = self._calls.add()
        self._starts.put(start)
        warm.result()

    def submit(self, rows: Sequence[DecodeRow], hop: int) -> DecodeTicket:
        """Have rows decoded; returns at once.

        Codes of a row may grow meanwhile, as codes of an utterance do, but not change.

        Raises:
            ServerError: the codec has failed; what is wrong with a row or the hop is a failure.
        """
        call = self._calls.add()
        self._starts.put(lambda decoder: decoder.launch(decoder.stage(rows, hop), hop))
        return DecodeTicket([call], rows)

    def watch(self, hear: Callable[[ServerError | None], None]) -> None:
        """See `Decoder.watch`."""
        self._calls.watch(hear)

    def close(self) -> None:
        """End the thread after the call that it is at, and release the codec."""
        self._starts.put(None)
        self._thread.join()

    def _run(self, open_decoder: Callable[[], CodecDecoder]) -> None:
        try:
            decoder = open_decoder()
            self._calls.finish(())
            try:
                run_calls(lambda wait: self._take(decoder, wait=wait), self._calls.finish)
            finally:
                decoder.close()
            self._calls.fail(EngineDiedError(CLOSED))
        except ServerError as error:
            self._calls.fail(error)
        except Exception as error:  # Whatever it is, nobody may wait for it.
            _LOG.exception("the codec's thread stopped")
            self._calls.fail(stopped("thread", error))

    def _take(self, decoder: CodecDecoder, *, wait: bool) -> Sequence[PendingPcm] | None:
        try:
            start = self._starts.get(block=wait)
        except queue.Empty:
            return None
        if start is None:
            raise CallsEnded
        return start(decoder)
