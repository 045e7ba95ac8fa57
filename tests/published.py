"""LibriTTS-R as it is published, very small, by a server of this machine that can misbehave."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import socket
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import soundfile as sf

if TYPE_CHECKING:
    import ssl
    from collections.abc import Generator, Sequence
    from pathlib import Path

SPLITS = (
    *("dev-clean", "dev-other", "test-clean", "test-other"),
    *("train-clean-100", "train-clean-360", "train-other-500"),
)
Member = tuple[str, bytes]


def wav_of(row: dict[str, Any]) -> bytes:
    """A clip of the embedded corpus as LibriTTS-R has it: 24 kHz mono, 16 bits, WAV."""
    with av.open(io.BytesIO(row["audio"]["bytes"])) as container:
        resampler = av.AudioResampler("s16", "mono", 24_000)
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
        frames += resampler.resample(None)
    samples = np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])
    file = io.BytesIO()
    sf.write(file, samples, 24_000, format="WAV", subtype="PCM_16")
    return file.getvalue()


def clip_id(number: int) -> str:
    """Ids as the corpus has them: speaker, chapter, paragraph, sentence."""
    speaker = 84 + number // 4
    return f"{speaker}_{121_123 + speaker}_{number:06d}_000000"


def members_of(split: str, wavs: Sequence[bytes], first: int = 0) -> list[Member]:
    """Members of a split's archive in its layout, in no order, with what else it has."""
    members: list[Member] = [("LibriTTS_R/SPEAKERS.txt", b";ID|SEX\n")]
    for number in reversed(range(first, first + len(wavs))):
        id_ = clip_id(number)
        speaker, chapter = id_.split("_")[:2]
        folder = f"LibriTTS_R/{split}/{speaker}/{chapter}"
        text = f"The text of clip {number}."
        members += [
            (f"{folder}/{id_}.normalized.txt", text.encode()),
            (f"{folder}/{id_}.wav", wavs[number - first]),
            (f"{folder}/{id_}.original.txt", text.replace("clip", "Clip No.").encode() + b"\n"),
            (f"{folder}/._{id_}.wav", b"Mac OS X"),  # As the real ones have.
        ]
    members.append((f"LibriTTS_R/{split}/84/121207/84_121207.trans.tsv", b"\t\t\n"))
    return members


def tar_gz(members: Sequence[Member | tarfile.TarInfo]) -> bytes:
    """An archive of plain files, or of whatever a TarInfo says."""
    file = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tar.addfile(info, io.BytesIO(member[1]))
    return file.getvalue()


@dataclass
class Answer:
    """How one GET is answered, where not well. Bytes are of the body that is sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut_after: int | None = None
    """Close the connection after so many bytes of the body."""
    promised: int | None = None
    """Content-Length that is told in place of the true one."""
    ignore_range: bool = False
    refuse_range: bool = False
    """Answer 416 to every range."""
    etag: str | None = None
    """ETag in place of the content's own; "" for none, by which If-Range is not looked at."""
    content: bytes | None = None
    untold: bool = False
    """Tell no Content-Length."""
    damage: bool = False
    """After `cut_after` bytes, send what is no record of TLS."""
    drip: bool = False
    """After `cut_after` bytes, send one more every 10 ms, until the client has gone."""
    hold: bool = False
    """After `cut_after` bytes, wait until the client has gone."""


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Publisher:
    """Files by path, what was asked, and how the next GETs are answered (then: well)."""

    files: dict[str, bytes]
    url: str = ""
    script: list[Answer] = field(default_factory=list[Answer])
    head_script: list[Answer] = field(default_factory=list[Answer])
    asked: list[Asked] = field(default_factory=list[Asked])
    held: threading.Event = field(default_factory=threading.Event)
    """Set when an answer holds."""

    def gets(self) -> list[str | None]:
        """The Range of every GET, in order."""
        return [ask.headers.get("range") for ask in self.asked if ask.method == "GET"]


@contextmanager
def answering(answer: bytes) -> Generator[tuple[str, list[bytes]]]:
    """A server that sends these bytes to all who ask, and closes; its URL, and what they asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        seen: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    with server.accept()[0] as connection:
                        seen.append(connection.recv(65_536))
                        connection.sendall(answer)
                except OSError:
                    if ended.is_set():
                        return

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/a", seen
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def published(files: dict[str, bytes], tls: ssl.SSLContext | None = None) -> Generator[Publisher]:
    """A server of `files`; it is gone when this ends, with all its connections."""
    publisher = Publisher(files)

    class Handler(_Handler):
        of = publisher

    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    publisher.url = f"http://127.0.0.1:{server.server_port}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        publisher.url = publisher.url.replace("http:", "https:")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield publisher
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Quiet: clients that break off are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: Publisher

    def do_HEAD(self) -> None:
        self._answer(self.of.head_script)

    def do_GET(self) -> None:
        self._answer(self.of.script)

    def _answer(self, script: list[Answer]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.of.asked.append(Asked(self.command, self.path, headers))
        answer = script.pop(0) if script else Answer()
        content = self.of.files.get(self.path) if answer.content is None else answer.content
        if answer.status or content is None:
            self.send_response(answer.status or 404)
            for name, value in {**answer.headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()
            return
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        if answer.etag is not None:
            etag = answer.etag
        begin = 0
        match = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        same = not etag or headers.get("if-range", etag) == etag
        if match and same and not answer.ignore_range:
            begin = int(match[1])
            if begin >= len(content) or answer.refuse_range:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            last = len(content) - 1
            self.send_header("Content-Range", f"bytes {begin}-{last}/{len(content)}")
        else:
            self.send_response(200)
        body = content[begin:]
        if etag:
            self.send_header("ETag", etag)
        if not answer.untold:
            self.send_header("Content-Length", str(answer.promised or len(body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body if answer.cut_after is None else body[: answer.cut_after])
        if answer.hold:
            self.wfile.flush()
            self.of.held.set()
            self.rfile.read(1)  # Until the client goes.
        while answer.drip:
            self.wfile.write(b"\0")
            time.sleep(0.01)
        if answer.damage:
            self.wfile.flush()
            with socket.socket(fileno=os.dup(self.connection.fileno())) as below:
                below.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
        if answer.cut_after is not None or answer.promised:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def catalogue_text(
    archives: dict[str, bytes],
    rows: dict[str, int],
    *,
    md5: bool = True,
    sizes: bool = True,
    exact: bool = False,
    revision: str | None = None,
) -> str:
    """A catalogue of the small archives, of the form of the real one."""
    lines = [
        'source = "LibriTTS-R"\nlicence = "CC BY 4.0"\n[from]\nsource = "here"\nlicence = "here"',
        '[openslr]\nurl = "http://nowhere.invalid"\n[openslr.from]',
        *(f'{name} = "here"' for name in ("url", "file", "size_bytes", "md5")),
        *(f'{name} = "here"' for name in ("rows", "rows_at_most")),
        "[openslr.splits]",
    ]
    for split, data in archives.items():
        entry = [f'file = "{split.replace("-", "_")}.tar.gz"']
        entry += [f"size_bytes = {len(data)}"] * sizes
        entry += [f'md5 = "{hashlib.md5(data).hexdigest()}"'] * md5
        entry.append(f"{'rows' if exact else 'rows_at_most'} = {rows[split]}")
        lines.append(f"{split} = {{ {', '.join(entry)} }}")
    lines.append('[hub]\nrepository = "owner/libritts_r"')
    if revision is not None:
        lines.append(f'revision = "{revision}"')
    lines.append("[hub.from]")
    lines += [f'{name} = "here"' for name in ("repository", "revision", "folder", "rows")]
    lines.append("[hub.splits]")
    for split in archives:
        folder = f"data/{split.replace('-', '.')}"
        lines.append(f'{split} = {{ folder = "{folder}", rows = {rows[split]} }}')
    return "\n".join(lines) + "\n"


def write_catalogue(folder: Path, text: str) -> str:
    """The path of a new catalogue file; each has its own, as they are read once."""
    path = folder / f"catalogue-{hashlib.sha256(text.encode()).hexdigest()[:12]}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)
