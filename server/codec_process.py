"""The codec in a process of its own: started, fed over a socket pair, heard by a thread, ended.

It has its own interpreter and its own CUDA context; under an MPS daemon of the environment it
shares the device with the engine's process instead of taking turns. Rows are staged here, so that
only the codes around a row travel.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np

from server.codec_calls import CLOSED, OpenCalls
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
_CLOSE_S = 10.0  # A call takes milliseconds; what takes so long hangs.


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
        self._socket, theirs = socket.socketpair()
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
        # A process that is gone is for the reader to say: it knows how that ended.
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def _read(self) -> None:
        """Settle calls until the process ends."""
        failure: ServerError | None = None
        with contextlib.suppress(EOFError):
            while failure is None:
                kind, rows, size = REPLY.unpack(receive(self._socket, REPLY.size))
                data = receive(self._socket, size)
                if kind == DONE:
                    samples = np.frombuffer(data, np.int16)
                    self._calls.finish([samples.reshape(rows, -1)] if rows else ())
                elif kind == FAILED:
                    failure = pickle.loads(data)
                else:
                    self._geometries = pickle.loads(data)
                    self._calls.finish(())
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
