"""The codec in a process of its own: started, fed over a socket pair, heard by a thread, ended.

It has its own interpreter and its own CUDA context; under an MPS daemon of the environment it
shares the device with the engine's process instead of taking turns. Rows are staged here, so that
only the codes around a row travel.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import socket
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np

from server.codec_calls import CLOSED, OpenCalls, stopped
from server.codec_child import CALL, DONE, FAILED, OPENING, REPLY, STAGED, receive
from server.codec_decoder import DecodeTicket, geometry_of
from server.codec_rows import stage_rows
from server.errors import EngineDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from server.codec_decoder import DecoderOptions
    from server.codec_geometry import Geometry
    from server.codec_rows import DecodeRow
    from server.errors import ServerError

CHILD = "server.codec_child"
_LOG = logging.getLogger("server.codec")
_CLOSE_S = 10.0  # A call takes milliseconds; what takes so long hangs.
_LOOK_S = 1  # A wait for the process is ended so often, to see whether it hangs.
SILENT_S = 20  # Without an answer to a call it hangs: stopped, or its device is.


class ProcessDecoder:
    """A `CodecDecoder` in a process that lives as long as the thread that opened it; a `Decoder`.

    Linux ends that process with the thread: the thread must be the one that closes it.
    """

    def __init__(
        self,
        folder: Path,
        device: str,
        options: DecoderOptions,
        *,
        threads: int,
        allow_untrained: bool = False,
    ) -> None:
        """Open the codec of `folder` on `device` in a new process of `threads`; waits for it.

        Raises:
            ServerError: it does not open.
        """
        self._calls = OpenCalls()
        self._geometries: Mapping[int, Geometry] = {}
        self._closing = False
        self._silent_s = 0.0  # Since when a decode has had no answer; opening may take its time.
        self._decodes = False
        self._socket, theirs = socket.socketpair()
        # Kept by the system, not by Python, whose own limit of time also forbids to wait.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(_LOOK_S))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SILENT_S))
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", CHILD, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            except OSError as error:
                self._socket.close()
                raise EngineDiedError(f"the codec's process does not start: {error}") from error
        opening = self._calls.add()
        self._reader = threading.Thread(target=self._read, name="codec-reader", daemon=True)
        self._reader.start()
        data = pickle.dumps((folder, device, threads, options, allow_untrained))
        self._send(OPENING.pack(len(data)) + data)
        try:
            opening.result()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the codec's process."""
        return self._process.pid

    def warm_up(self) -> None:
        """See `CodecDecoder.warm_up`."""
        warm = self._calls.add()
        self._send(CALL.pack(0, 0))
        warm.result()

    def submit(self, rows: Sequence[DecodeRow], hop: int) -> DecodeTicket:
        """Have rows decoded; returns when they are staged and sent.

        Raises:
            ValueError: a row does not fit the hop or its codes are wrong (see `stage_rows`).
            ConfigurationError: `hop` is not in the options.
            ServerError: the codec has failed.
        """
        staged = stage_rows(geometry_of(self._geometries, hop), rows)
        call = self._calls.add()
        self._decodes = True
        self._send(CALL.pack(hop, len(rows)) + staged.astype(STAGED).tobytes())
        return DecodeTicket([call], rows)

    def watch(self, hear: Callable[[ServerError | None], None]) -> None:
        """See `Decoder.watch`."""
        self._calls.watch(hear)

    def close(self) -> None:
        """End the process after the calls that it has; kill it where it does not end."""
        self._closing = True
        with contextlib.suppress(OSError):  # It has ended.
            self._socket.shutdown(socket.SHUT_WR)
        self._reader.join(_CLOSE_S)
        if self._reader.is_alive():
            self._process.kill()
            self._reader.join()
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return  # A process that is gone is for the reader to say: it knows how that ended.
        except BlockingIOError:
            self._calls.fail(self._hangs())
            self._process.kill()

    def _read(self) -> None:
        """Settle calls until the process ends."""
        failure: ServerError | None = None
        try:
            while failure is None:
                failure = self._settle()
        except EOFError:
            pass
        except TimeoutError:
            failure = self._hangs()
            self._process.kill()
        except Exception as error:  # Whatever it is, nobody may wait for it.
            _LOG.exception("the reader of the codec's process stopped")
            failure = stopped("reader", error)
            self._process.kill()
        try:
            code = self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._closing:
            failure = EngineDiedError(CLOSED)
        self._calls.fail(
            failure
            or EngineDiedError(
                f"the codec's process {self.pid} ended with exit code {code}; start the server"
                " again, and see what it or the system logged before"
            )
        )

    def _settle(self) -> ServerError | None:
        """Settle the oldest call with what comes next, or give the error after which none comes.

        Raises:
            EOFError: the process has ended.
            TimeoutError: it hangs.
        """
        kind, rows, size = REPLY.unpack(receive(self._socket, REPLY.size, self._waited))
        data = receive(self._socket, size, self._waited)
        self._silent_s = 0.0
        if kind == DONE:
            samples = np.frombuffer(data, np.int16)
            self._calls.finish([samples.reshape(rows, -1)] if rows else ())
        elif kind == FAILED:
            failure: ServerError = pickle.loads(data)
            return failure
        else:
            self._geometries = pickle.loads(data)
            self._calls.finish(())
        return None

    def _waited(self) -> None:
        """Nothing has come for a moment. Moments are counted, and no clock is read: a machine that
        was asleep, or a stopped server, has let none pass."""
        waits = self._decodes and not self._closing and self._calls.are_open
        self._silent_s = self._silent_s + _LOOK_S if waits else 0.0
        if self._silent_s >= SILENT_S:
            raise TimeoutError

    def _hangs(self) -> ServerError:
        return EngineDiedError(
            f"the codec's process {self.pid} has not answered for {SILENT_S} s: it was stopped, or "
            "its device hangs; start the server again"
        )


def _timeval(seconds: int) -> bytes:
    """Seconds as socket options have them."""
    return struct.pack("ll", seconds, 0)
