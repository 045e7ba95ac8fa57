"""One API process as the engine's process has it: started, joined by a socket pair, and reaped."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from socket import socket, socketpair
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.link import Link
    from server.relay import Relay
    from server.wire import Family, Unfinished

OPTION = "--as-api-process"
_LOG = logging.getLogger("server")


@dataclass(slots=True, eq=False)
class ApiChild:
    """An API process that runs, and what it has said of itself."""

    process: subprocess.Popen[bytes]
    socket: socket  # This end; the link takes it.
    ended: asyncio.Future[int]  # With its exit code.
    link: Link = field(init=False)
    relay: Relay | None = None  # Once it has the model.
    is_open: bool = False  # It listens for messages, and for clients.
    is_answering: bool = False
    unfinished: Unfinished | None = None
    figures: list[Family] = field(default_factory=list["Family"])
    collects: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])
    is_late: bool = False  # With figures that it was asked for: it is not asked again meanwhile.
    silent_looks: int = 0  # In a row in which it had sent no figures.

    @classmethod
    def start(cls, argv: Sequence[str], listener: socket) -> Self:
        """`python -m server` with the arguments `argv`, as an API process of `listener`.

        To be called on the main thread: Linux ends the process with the thread that started it.

        Raises:
            OSError: the system gives no more processes, threads or files.
        """
        ours, theirs = socketpair()
        fds = (theirs.fileno(), listener.fileno())
        with theirs:
            try:
                process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "server", *argv),
                        *(OPTION, f"{fds[0]},{fds[1]}"),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=fds,
                )
            except OSError:
                ours.close()
                raise
        try:
            ended = _end_of(process)
        except RuntimeError as error:  # Without a thread nobody would hear of its end.
            process.kill()
            process.wait()
            ours.close()
            raise OSError(str(error)) from error
        return cls(process, ours, ended)


def _end_of(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """The exit code of a process, once it has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def set_code(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def wait() -> None:
        code = process.wait()
        try:
            loop.call_soon_threadsafe(set_code, code)
        except RuntimeError:
            _LOG.info("API process %d ended after the event loop", process.pid)

    threading.Thread(target=wait, name=f"api-{process.pid}", daemon=True).start()
    return ended
