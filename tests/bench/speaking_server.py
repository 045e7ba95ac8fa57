"""A speech server that does what its request's headers say, and stamps what it does.

`python speaking_server.py` writes its port, and ends when standard input closes. HTTP is written by
hand, so that it can also be wrong. Headers of a request: `x-do` names what to do; `x-first-ms` the
delay of the first piece, `x-gap-ms` that of each further one, `x-pieces` how many, and
`x-piece-samples` how long. `x-answer` is a whole answer in base64, sent as it is; `x-then` says
whether the server then waits for ever (`hang`), closes (`close`) or goes on. `GET /log` has, for
each answer since it was last asked, the delays (ms) of its pieces from the request's last byte.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import uvloop

from server.wav import wav_header

if TYPE_CHECKING:
    from collections.abc import Generator

RATE_HZ = 24_000
CODECS = {
    "mp3": ("mp3", "libmp3lame", {"write_xing": "0", "id3v2_version": "0"}),
    "opus": ("ogg", "libopus", {"page_duration": "20000"}),
    "flac": ("flac", "flac", {}),
    "aac": ("adts", "aac", {}),
}
LOG: list[list[float]] = []
STATE = {"active": 0, "started": 1.0, "asked": 0}


def speech(samples: int, *, level: int = 8_000) -> bytes:
    """A tone of 220 Hz, s16le."""
    wave = level * np.sin(2 * math.pi * 220 * np.arange(samples) / RATE_HZ)
    return wave.astype("<i2").tobytes()


def compressed(kind: str, samples: int) -> bytes:
    """The tone as `kind`."""
    name, codec, options = CODECS[kind]

    class Sink:
        def __init__(self) -> None:
            self.data = bytearray()

        def write(self, data: bytes) -> int:
            self.data += data
            return len(data)

    sink = Sink()
    with av.open(sink, "w", format=name, options=options) as container:
        stream = container.add_stream(codec, rate=RATE_HZ)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(
            np.frombuffer(speech(samples), "<i2")[None], format="s16", layout="mono"
        )
        frame.sample_rate = RATE_HZ
        layout = stream.codec_context.format or "s16"
        for part in av.AudioResampler(format=layout, layout="mono", rate=RATE_HZ).resample(frame):
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))
    return bytes(sink.data)


@contextlib.contextmanager
def speaking_server() -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """Its URL and process; ended when the context ends."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    try:
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.split("\r\n")
            headers = {
                name.lower(): value
                for name, _, value in (one.partition(": ") for one in lines if one)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            received_s = time.monotonic()
            path = line.split()[1].partition("?")[0]
            if path == "/v1/audio/speech":
                if not await _speak(writer, headers, json.loads(body), received_s):
                    break
            else:
                _answer_other(writer, path)
    writer.close()


def _answer_other(writer: asyncio.StreamWriter, path: str) -> None:
    if path == "/log":
        _whole(writer, "200 OK", json.dumps(LOG).encode(), "application/json")
        LOG.clear()
    elif path == "/metrics":
        text = (
            f"# TYPE speech_active_streams gauge\nspeech_active_streams {STATE['active']}\n"
            "# TYPE process_start_time_seconds gauge\n"
            f"process_start_time_seconds {STATE['started']}\n"
        )
        _whole(writer, "200 OK", text.encode(), "text/plain")
    else:
        _whole(writer, "404 Not Found", b"{}", "application/json")


async def _speak(
    writer: asyncio.StreamWriter, headers: dict[str, str], body: dict[str, Any], received_s: float
) -> bool:
    """Answer one request; whether the connection is still good."""
    do = headers.get("x-do", "")
    STATE["asked"] += 1
    if "x-answer" in headers:
        writer.write(base64.b64decode(headers["x-answer"]))
        if headers.get("x-then") == "hang":
            await asyncio.Event().wait()
        return headers.get("x-then") != "close"
    first_s, gap_s = (float(headers.get(f"x-{name}-ms", 0)) / 1e3 for name in ("first", "gap"))
    count = int(headers.get("x-pieces", 4))
    samples = int(headers.get("x-piece-samples", 4_800))
    if do == "error":
        _whole(writer, "500 Internal Server Error", b'{"error": {"message": "broken"}}', "a/b")
        return True
    if do == "refuse":
        _whole(writer, "429 Too Many Requests", b'{"error": {"message": "full"}}', "a/b")
        return True
    if do == "restart":
        STATE["started"] += 1
    if do == "hang" or (do == "hang-second" and STATE["asked"] == 2):
        await asyncio.Event().wait()
    if do == "page":
        _whole(writer, "200 OK", b"<html>Sign in</html>", "text/html")
        return True
    if do == "nonsense":
        writer.write(b"220 mail.example.org ESMTP\r\n")
        return False
    kind = body["response_format"]
    pieces = _pieces(do, kind, count, samples, headers)
    if kind in CODECS:
        # The first answer of a codec takes long to make; its pieces still come apart.
        received_s = time.monotonic()
    length = sum(map(len, pieces))
    chunked = do != "truncate"
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {length + 100}"
    STATE["active"] += 1
    times: list[float] = []
    start = f"HTTP/1.1 200 OK\r\ncontent-type: audio/{kind}\r\n{framing}\r\n\r\n"
    if not pieces:
        writer.write(start.encode())
    try:
        for number, piece in enumerate(pieces):
            if do == "stall" and number == 1:
                await asyncio.Event().wait()
            if do == "leave" and number == 1:
                writer.transport.abort()
                return False
            due_s = received_s + first_s + number * gap_s
            while (left_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
            piece_head = start.encode() if number == 0 else b""
            if writer.transport.is_closing():
                return False
            data = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
            times.append((time.monotonic() - received_s) * 1e3)
            writer.write(piece_head + data)
        if not chunked:
            return False
        writer.write(b"0\r\n\r\n")
        LOG.append(times)
        return True
    finally:
        STATE["active"] -= 1


def _pieces(do: str, kind: str, count: int, samples: int, headers: dict[str, str]) -> list[bytes]:
    """The answer's body, as it is sent."""
    if do == "silence":
        tone = bytes(2 * samples)
    elif do == "noise":
        tone = np.random.default_rng(1).bytes(2 * samples)
    else:
        tone = speech(samples)
    if do == "nothing":
        return [] if kind == "pcm" else [wav_header()]
    if do == "text":
        return [b"no audio at all, but words"] * count
    if kind in CODECS:
        whole = compressed(kind, count * samples)
        size = -(-len(whole) // count)
        return [whole[at : at + size] for at in range(0, len(whole), size)]
    if do == "odd":  # Pieces that begin and end within a sample.
        whole = tone * count
        cuts = [0, *(at * 2 * samples + 1 for at in range(1, count)), len(whole)]
        return [whole[start:end] for start, end in itertools.pairwise(cuts)]
    if kind == "wav":
        header = wav_header()
        many = do == "headers"
        return [(header if many or n == 0 else b"") + tone for n in range(count)]
    if kind == "mulaw":
        return [(b"\x10" * 40 + b"\x90" * 40) * (samples // 80)] * count
    return [tone] * count


def _whole(writer: asyncio.StreamWriter, status: str, body: bytes, kind: str) -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main())
