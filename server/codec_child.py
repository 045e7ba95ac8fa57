"""`python -m server.codec_child FD`: the codec in a process of its own; `codec_process` starts it.

FD is a stream socket. The starter sends OPENING and pickled (folder, device, threads, options,
allow_untrained), then calls: CALL with hop (frames; 0: warm up) and rows, and the staged rows as
uint32. Each is answered in order by REPLY with kind, rows and bytes, and so many bytes: pickled
geometries of the hops, then samples of each call as int16, or the error after which nothing
follows. The process ends when the other end does.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import socket
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.codec import load_codec, use_threads
from server.codec_calls import CallsEnded, run_calls, stopped
from server.codec_decoder import CodecDecoder
from server.codec_rows import staged_width
from server.errors import ServerError
from server.lifeline import end_with_parent, leave_signals_to_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from server.codec_decoder import PendingPcm

OPENING = struct.Struct("<I")
CALL = struct.Struct("<HI")
REPLY = struct.Struct("<BIQ")
OPENED, DONE, FAILED = range(3)
STAGED = np.dtype(np.uint32)  # Holds all numbers of a staged row, seeds being 32 bits.

_LOG = logging.getLogger("server.codec")


def receive(
    connection: socket.socket, size: int, waited: Callable[[], None] | None = None
) -> memoryview:
    """The next `size` bytes, in one wait for all of them: each costs Python's lock.

    Where the connection has a limit of time, `waited` is called each time that it passes, and may
    raise.

    Raises:
        EOFError: the other end is gone.
    """
    data = np.empty(size, np.uint8).data  # Unlike a bytearray, not set to 0 first.
    got = 0
    while got < size:
        try:
            count = connection.recv_into(data[got:], 0, socket.MSG_WAITALL)
        except ConnectionError as error:
            raise EOFError from error
        except BlockingIOError:
            if waited is None:
                raise
            waited()
            continue
        if not count:
            raise EOFError
        got += count
    return data


@dataclass(slots=True)
class _Child:
    parent: socket.socket
    decoder: CodecDecoder

    @classmethod
    def opened(cls, parent: socket.socket) -> _Child:
        (size,) = OPENING.unpack(receive(parent, OPENING.size))
        folder, device, threads, options, untrained = pickle.loads(receive(parent, size))
        use_threads(threads)
        decoder = CodecDecoder(load_codec(folder, device, allow_untrained=untrained), options)
        _reply(parent, OPENED, pickle.dumps(decoder.geometries))
        return cls(parent, decoder)

    def take(self, wait: bool) -> Sequence[PendingPcm] | None:
        """The next call, started."""
        if not wait and not select.select([self.parent], [], [], 0)[0]:
            return None
        try:
            hop, rows = CALL.unpack(receive(self.parent, CALL.size))
            if not hop:
                self.decoder.warm_up()
                return ()
            width = staged_width(self.decoder.geometries[hop])
            data = receive(self.parent, rows * width * STAGED.itemsize)
        except EOFError:
            raise CallsEnded from None
        staged = np.frombuffer(data, STAGED).reshape(rows, width).astype(np.int64)
        return self.decoder.launch(staged, hop)

    def give(self, parts: Sequence[NDArray[np.int16]]) -> None:
        """Send the samples of a call."""
        rows = sum(len(part) for part in parts)
        _reply(self.parent, DONE, *(part.data.cast("B") for part in parts), rows=rows)


def main() -> int:
    """Decode for the process at the other end until it ends; the exit code."""
    end_with_parent()
    leave_signals_to_parent()
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        try:
            child = _Child.opened(parent)
            run_calls(child.take, child.give)
        except (EOFError, ConnectionError):
            return 0
        except ServerError as error:
            _fail(parent, error)
            return 1
        except Exception as error:
            _LOG.exception("the codec's process stopped")
            _fail(parent, stopped("process", error))
            return 1
    return 0


def _fail(parent: socket.socket, error: ServerError) -> None:
    try:
        _reply(parent, FAILED, pickle.dumps(error))
    except ConnectionError:
        _LOG.info("the codec's process has nobody to tell: %s", error)


def _reply(parent: socket.socket, kind: int, *data: bytes | memoryview, rows: int = 0) -> None:
    parent.sendall(REPLY.pack(kind, rows, sum(map(len, data))))
    for part in data:
        parent.sendall(part)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # Taking torch apart object by object would take seconds.
