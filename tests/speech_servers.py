"""What tests of the running server share: a small voice, requests, and what the server says."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import psutil
import pytest
from lineage_run import wait_for
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import ClientConnection, connect

from resources.speech_server import SpeechServer

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

TIMEOUT_S = 120.0
# With seed 1 the small voice speaks it for many seconds, until a guard or the model's length ends
# it; with another it may end by itself.
LONG_TEXT = "the quick brown fox jumps over the lazy dog and then it rests " * 4
SOCKET = "/v1/audio/speech/stream"
LAST_CHUNK = b"0\r\n\r\n"  # Of a chunked answer; without it, it is not whole.
# Asked so, the same text is the same speech: how much of a lead-in goes out depends on time.
REPEATABLE = {"seed": 1, "lead_in": "keep"}
SAME = {"response_format": "pcm", **REPEATABLE}
# A test of it runs against the server of one process, and against one with API processes.
both_forms = pytest.mark.parametrize("server", ["one_process", "api_processes"], indirect=True)
# Of speech decoded in other chunks; the design's figure for a first chunk.
LARGEST_DIFFERENCE = 4e-3


def running(
    voice: Path, *arguments: str, environment: dict[str, str] | None = None
) -> AbstractContextManager[SpeechServer]:
    """A real server of the small voice, one thread, with `arguments`."""
    return SpeechServer.running(
        "embedded",
        arguments=("--model", str(voice), *arguments),
        environment={"OMP_NUM_THREADS": "1", **(environment or {})},
    )


@contextlib.contextmanager
def logged(
    voice: Path,
    log: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    program: tuple[str, ...] = ("-m", "server"),
) -> Generator[SpeechServer]:
    """The same, all that it logs in the file `log`; it may end by itself meanwhile.

    `program` is what Python runs: the server, or one that is the server but for what it says.
    """
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, *program, "--preset", "embedded", "--port", "0"),
                *("--model", str(voice), "--exit-on-stdin-eof", *arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            start_new_session=True,
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text("utf-8")
            ready = json.loads(line)
            yield SpeechServer(
                *(ready["url"], ready["preset"], ready["config_sha256"], process),
                collections.deque(),
            )
        finally:
            process.kill()


def post(server: SpeechServer, text: str, **fields: Any) -> httpx.Response:
    """A whole answer to a speech request; pcm, untrimmed and seed 1 unless told otherwise."""
    body = {"input": text, **SAME, **fields}
    return httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=TIMEOUT_S, verify=False)


def same(one: bytes, other: bytes) -> bool:
    """Whether two pieces of PCM are the same speech: as long, and as near as decoding allows."""
    left, right = (np.frombuffer(pcm, "<i2").astype(np.float64) for pcm in (one, other))
    if len(left) != len(right) or not len(left):
        return False
    # Rounding to 16 bits alone differs by one.
    difference = np.maximum(np.abs(left - right) - 1, 0)
    return bool(np.linalg.norm(difference) <= LARGEST_DIFFERENCE * np.linalg.norm(left))


def health(server: SpeechServer) -> dict[str, Any]:
    """What /health says."""
    # There is no TLS; to be ready for it, httpx reads all certificates each time: 26 ms of a core.
    return httpx.get(f"{server.url}/health", timeout=TIMEOUT_S, verify=False).json()


def load_of(server: SpeechServer) -> tuple[int, int]:
    """Streams that run, and requests that wait for a place."""
    now = health(server)
    return now["active_streams"], now["queued"]


def wait_until_free(server: SpeechServer) -> None:
    """Wait until nothing is being spoken."""
    wait_for(lambda: health(server)["active_streams"] == 0, "no stream is active")


def metric(server: SpeechServer, name: str, **labels: str) -> float:
    """Sum of the samples of that name and those labels in /metrics."""
    # Without TLS, as `health` does.
    text = httpx.get(f"{server.url}/metrics", timeout=TIMEOUT_S, verify=False).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def raw_request(
    server: SpeechServer, text: str, *, receive_buffer: int = 0, **fields: Any
) -> socket.socket:
    """A socket on which a speech request was sent and nothing read yet."""
    client = _connected(server, receive_buffer)
    client.settimeout(TIMEOUT_S)
    body = json.dumps({"input": text, **SAME, **fields}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}"
    client.sendall(f"{head}\r\n\r\n".encode() + body)
    return client


@contextlib.contextmanager
def open_socket(
    server: SpeechServer, *, receive_buffer: int = 0, **config: Any
) -> Generator[ClientConnection]:
    """A WebSocket; configured as `post` asks, streamed, unless told otherwise."""
    url = server.url.replace("http", "ws") + SOCKET
    with connect(
        url,
        sock=_connected(server, receive_buffer),
        open_timeout=TIMEOUT_S,
        close_timeout=1,
        max_size=None,
        max_queue=1 if receive_buffer else 16,
        ping_interval=None,
    ) as client:
        send(client, {"type": "session.config", "stream_audio": True, **SAME, **config})
        yield client


def send(client: ClientConnection, *messages: dict[str, Any]) -> None:
    """Send messages, each as one text frame."""
    for message in messages:
        client.send(json.dumps(message))


def receive(client: ClientConnection, until: str) -> list[dict[str, Any]]:
    """Messages up to the first of type `until`; audio as messages of type "audio"."""
    messages: list[dict[str, Any]] = []
    while not messages or messages[-1]["type"] != until:
        frame = client.recv(timeout=TIMEOUT_S)
        if isinstance(frame, bytes):
            messages.append({"type": "audio", "audio": frame})
        else:
            messages.append(json.loads(frame))
    return messages


def say(client: ClientConnection, *texts: str, is_done: bool = True) -> None:
    """Send pieces of text, and that they are all."""
    send(client, *({"type": "input.text", "text": text} for text in texts))
    if is_done:
        send(client, {"type": "input.done"})


def audio_of(messages: Sequence[dict[str, Any]]) -> bytes:
    """All audio among messages."""
    return b"".join(message["audio"] for message in messages if message["type"] == "audio")


def types_of(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Types of messages in order, runs of audio as one."""
    types = [message["type"] for message in messages]
    return [
        kind for i, kind in enumerate(types) if i == 0 or kind != "audio" or types[i - 1] != kind
    ]


def is_running(pid: int) -> bool:
    """Whether a process of this number is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _connected(server: SpeechServer, receive_buffer: int) -> socket.socket:
    """A connection to the server that takes in `receive_buffer` bytes unread; 0 is the system's."""
    url = httpx.URL(server.url)
    client = socket.socket()
    if receive_buffer:
        # Before connecting: it sets the window that the server is offered.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect((url.host, url.port))
    return client


def processes_of(server: SpeechServer) -> list[psutil.Process]:
    """The server's API processes."""
    found: list[psutil.Process] = []
    for child in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # It ends while it is looked at.
            if child.status() != psutil.STATUS_ZOMBIE and "--as-api-process" in child.cmdline():
                found.append(child)
    return found


def process_at(server: SpeechServer, client: socket.socket) -> psutil.Process:
    """The API process that has the other end of a client's connection."""
    here = client.getsockname()
    for process in processes_of(server):
        with contextlib.suppress(psutil.NoSuchProcess):  # As above.
            for connection in process.net_connections("tcp"):
                if connection.raddr and tuple(connection.raddr) == here:
                    return process
    raise AssertionError(f"no API process has the connection of {here}")


def read_all_of_chunked(client: socket.socket) -> bytes:
    """All of a chunked answer up to its last chunk, or to the connection's end, also by a reset."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while not received.endswith(LAST_CHUNK) and (data := client.recv(65_536)):
            received += data
    return received
