"""A server that answers each path with given bytes, at once or for ever, and counts the questions.

HTTP by hand, so that it can also be wrong. `None` is no answer at all; `TRICKLE` one whose bytes
never end, each well within any client's patience.
"""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

TRICKLE = b"trickle"
_EVERY_S = 0.1


@contextlib.contextmanager
def asked_server(answers: Mapping[str, bytes | None]) -> Generator[tuple[str, Counter[str]]]:
    """Its URL, and how often each path was asked for. Other paths are 404."""
    asked = Counter[str]()
    over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                while line := self.rfile.readline():
                    length = 0
                    while (header := self.rfile.readline()) not in (b"\r\n", b""):
                        name, _, value = header.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    self.rfile.read(length)
                    self._answer(line.split()[1].decode())

        def _answer(self, path: str) -> None:
            asked[path] += 1
            body = answers.get(path.partition("?")[0], b"404")
            if body is None:
                over.wait()
            elif body == TRICKLE:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
                while not over.wait(_EVERY_S):
                    self.wfile.write(b"x")
            else:
                status = b"404 Not Found" if body == b"404" else b"200 OK"
                head = b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
                self.wfile.write(head + body)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 100

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            over.set()
            server.shutdown()
            thread.join()
