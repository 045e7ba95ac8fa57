"""The part of the hub's protocol that a data set's listing and files use, on this machine."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "owner/libritts_r"
# Columns and their order as mythicinfinity/libritts_r has them.
_SCHEMA = pa.schema(
    [
        pa.field(
            "audio", pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
        ),
        *(pa.field(name, pa.string()) for name in ("text_normalized", "text_original")),
        *(pa.field(name, pa.string()) for name in ("speaker_id", "path", "chapter_id", "id")),
    ]
)


def parquet_of(rows: Sequence[dict[str, Any]]) -> bytes:
    """A file of the hub's layout; other columns of `rows` are left out."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), _SCHEMA), file)
    return file.getvalue()


@dataclass
class Hub:
    """Files of one data set, and how it misbehaves."""

    files: dict[str, bytes]
    url: str = ""
    commit: str = COMMIT
    asked: list[str] = field(default_factory=list[str])
    sent: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """What is sent in place of a file's true content."""
    says: bytes | None = None
    """What it answers in place of a revision's description."""
    told: dict[str, object] = field(default_factory=dict[str, object])
    """What it tells of every file in place of the truth."""
    refusals: list[int] = field(default_factory=list[int])
    """Statuses that the next requests of a description get."""
    cut: list[str] = field(default_factory=list[str])
    """Paths whose next body breaks off in the middle."""
    hold: str = ""
    """Path whose next body stops in the middle, until the client has gone."""
    held: threading.Event = field(default_factory=threading.Event)


@contextmanager
def hub_of(files: dict[str, bytes]) -> Generator[Hub]:
    """A hub that is gone when this ends."""
    hub = Hub(files)

    class Handler(_Handler):
        of = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    of: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        hub = self.of
        hub.asked.append(f"{self.command} {path}")
        api, resolve = f"/api/datasets/{NAME}", f"/datasets/{NAME}/resolve/{hub.commit}/"
        if path.startswith("/api/") and hub.refusals:
            self._error(hub.refusals.pop(0), "", "")
        elif path in (f"{api}/revision/main", f"{api}/revision/{hub.commit}"):
            answer = {"id": NAME, "sha": hub.commit, "siblings": self._siblings()}
            self._send(json.dumps(answer).encode() if hub.says is None else hub.says, {})
        elif path.startswith(resolve) and path.removeprefix(resolve) in hub.files:
            name = path.removeprefix(resolve)
            etag = hashlib.sha256(hub.files[name]).hexdigest()
            data = hub.sent.get(name, hub.files[name])
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": hub.commit}
            # As the hub does, though nobody answers there.
            headers["X-Xet-Hash"] = etag
            headers["X-Xet-Refresh-Route"] = f"{hub.url}/api/datasets/{NAME}/xet-read-token"
            self._send(data, headers, name)
        elif path.startswith((api, f"/datasets/{NAME}")):
            self._error(404, "RevisionNotFound", "Invalid rev id")
        else:
            self._error(401, "RepoNotFound", "Repository not found")

    def _siblings(self) -> list[dict[str, Any]]:
        siblings = [
            {
                "rfilename": path,
                "size": len(data),
                "blobId": "0" * 40,
                "lfs": {
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 134,
                },
            }
            for path, data in self.of.files.items()
        ]
        return [{**entry, **self.of.told} for entry in siblings]

    def _send(self, data: bytes, headers: dict[str, str], name: str = "") -> None:
        begin = 0
        if self.headers.get("Range", "").startswith("bytes="):
            begin = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if begin else 200)
        for key, value in {**headers, "Content-Length": str(len(data) - begin)}.items():
            self.send_header(key, value)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        body = data[begin:]
        if name in self.of.cut:
            self.of.cut.remove(name)
            body = body[: len(body) // 2]
        if name and name == self.of.hold:
            self.of.hold = ""
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.of.held.set()
            self.rfile.read(1)
            return
        self.wfile.write(body)

    def _error(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
