"""What is wrong on purpose: requests that schemathesis thinks of, damaged bodies, damaged frames.

None of it may be a 5xx, a hang, or leave a place, a socket or memory behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from lineage_run import wait_for
from malformed import damaged, frame, hardly_http, message
from speech_servers import (
    SOCKET,
    TIMEOUT_S,
    health,
    logged,
    metric,
    open_socket,
    post,
    receive,
    same,
    say,
    send,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from server.speech_options import SpeechBody

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from websockets.sync.client import ClientConnection

    from resources.speech_server import SpeechServer

ROOT = Path(__file__).parents[2]
COUNT = 1_000
# Of some thousand requests, many of them spoken: one that were kept with its body would be 100 KB
# and more. What is made once depends on what goes on beside it: 14 to 34 MB were seen.
LARGEST_GROWTH_BYTES = 64 << 20
CONFIGURATION = """
# The routes of cloning say 501 and mean it.
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]

# Which words and names can be spoken, no schema says: 400 and 404 are right of many a request.
[[operations]]
include-path = "/v1/audio/speech"
checks.positive_data_acceptance.enabled = false
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("target") / "log"


@pytest.fixture(scope="module")
def target(endless_voice: Path, log: Path) -> Iterator[SpeechServer]:
    """A server whose utterances end after a second, as long as its model may be."""
    table = log.with_name("presets.toml")
    table.write_text(
        f"""
        [presets.embedded-bf16]
        aliases = ["embedded"]
        model = "{endless_voice}"
        codec = "{ROOT}/server/embedded/codec"
        cpu_dtype = "auto"
        max_model_len = 192
        """
    )
    with logged(
        endless_voice,
        log,
        *("--max-streams", "4", "--max-queue", "4", "--limit", "config_s=2"),
        *("--limit", "body_s=2", "--limit", "headers_s=2"),
        environment={"SPEECH_PRESETS": str(table)},
    ) as server:
        post(server, "hello there")  # What is made at the first request is no leak.
        yield server


@pytest.fixture
def unharmed(target: SpeechServer, log: Path) -> Generator[SpeechServer]:
    """The server; afterwards it has nothing open, no more memory, and speaks as before."""
    expected = post(target, "hello there").content
    for _ in range(20):  # Buffers of a request that is refused, too, come once.
        httpx.post(f"{target.url}/v1/audio/speech", content=b"{", timeout=TIMEOUT_S, verify=False)
    process = psutil.Process(target.process.pid)
    before = process.memory_info().rss
    files = process.num_fds()
    failed = metric(target, "speech_requests_total", outcome="error")
    yield target
    wait_for(lambda: health(target)["active_streams"] == 0, "no place is taken")
    wait_for(lambda: metric(target, "speech_open_sockets") == 0, "no socket is open")
    # The one that asks is one itself.
    wait_for(lambda: metric(target, "speech_open_connections") <= 1, "no connection is open")
    wait_for(lambda: process.num_fds() <= files + 1, "no file is open")
    assert health(target) == {"status": "ok", "active_streams": 0, "queued": 0}
    assert metric(target, "speech_requests_total", outcome="error") == failed
    assert same(post(target, "hello there").content, expected)
    assert process.memory_info().rss - before < LARGEST_GROWTH_BYTES
    written = log.read_text("utf-8")
    assert "Traceback" not in written, written[-3_000:]
    assert "returned without completing" not in written, written[-3_000:]
    assert "Warning:" not in written, written[-3_000:]


def test_every_request_that_the_openapi_document_allows_or_forbids_is_answered_as_it_says(
    unharmed: SpeechServer, tmp_path: Path
) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"),
            *("run", f"{unharmed.url}/openapi.json", "--phases", "coverage,fuzzing"),
            *("--seed", "1", "--max-examples", "10", "--no-shrink", "--continue-on-failure"),
            *("--request-timeout", "60", "--generation-database", "none"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    generated = re.search(r"(\d+) generated", done.stdout)
    assert generated is not None
    assert int(generated[1]) > 200


# ---- bodies -------------------------------------------------------------------------------------


def test_a_thousand_malformed_bodies_are_refused_or_spoken(unharmed: SpeechServer) -> None:
    chance = random.Random(8)
    types = ["application/json", "text/plain", "multipart/form-data; boundary=x", "", "x/y; z"]
    statuses: dict[int, int] = {}

    async def ask(client: httpx.AsyncClient, body: bytes, kind: str) -> None:
        answer = await client.post("/v1/audio/speech", content=body, headers={"content-type": kind})
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        assert answer.status_code in (200, 400, 404, 429), (body[:300], answer.text[:300])
        if answer.status_code != 200:
            error = answer.json()["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert error["message"]
            assert len(error["message"]) < 2_000

    async def all_of_them() -> None:
        limits = httpx.Limits(max_connections=4)
        async with httpx.AsyncClient(
            base_url=unharmed.url, timeout=TIMEOUT_S, limits=limits
        ) as client:
            await asyncio.gather(
                *(
                    ask(client, damaged(chance, SpeechBody), chance.choice(types))
                    for _ in range(COUNT)
                )
            )

    asyncio.run(all_of_them())
    assert sum(statuses.values()) == COUNT
    assert statuses[400] > COUNT / 2


def test_what_is_hardly_http_is_refused_or_closed(unharmed: SpeechServer) -> None:
    chance = random.Random(9)
    url = httpx.URL(unharmed.url)
    for _ in range(200):
        worn = hardly_http(chance)
        with socket.create_connection((url.host, url.port), TIMEOUT_S) as client:
            client.sendall(worn)
            client.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while part := client.recv(65_536):
                    answer += part
            except ConnectionResetError:
                pass
        status = re.match(rb"HTTP/1\.\d (\d+)", answer)
        assert answer == b"" or status is not None, answer[:100]
        assert status is None or int(status[1]) < 500, (worn, answer[:200])


# ---- frames -------------------------------------------------------------------------------------


def test_a_thousand_malformed_messages_leave_the_socket_or_close_it(unharmed: SpeechServer) -> None:
    chance = random.Random(10)
    sent = 0
    while sent < COUNT:
        with open_socket(unharmed) as client:
            try:
                for _ in range(50):
                    client.send(message(chance))
                    sent += 1
            except ConnectionClosed:
                pass
            with contextlib.suppress(ConnectionClosed):
                send(client, {"type": "session.close"})
            with pytest.raises(ConnectionClosed):
                read_to_the_end(client)
            # By session.close, whatever came before; never 1011, the server's fault.
            assert client.close_code == 1000
    with open_socket(unharmed) as client:
        say(client, "hello there")
        assert receive(client, "session.done")[-1]["total_sentences"] == 1


def read_to_the_end(client: ClientConnection) -> None:
    while True:
        client.recv(timeout=TIMEOUT_S)


def test_a_thousand_malformed_frames_end_their_connection_alone(unharmed: SpeechServer) -> None:
    chance = random.Random(11)
    url = unharmed.url.replace("http", "ws") + SOCKET
    with open_socket(unharmed) as other:
        for _ in range(COUNT):
            with connect(
                url, open_timeout=TIMEOUT_S, ping_interval=None, close_timeout=0
            ) as client:
                with contextlib.suppress(OSError):  # It may be closed already.
                    frames = [frame(chance) for _ in range(chance.randint(1, 3))]
                    client.socket.sendall(b"".join(frames))
                    client.socket.shutdown(socket.SHUT_WR)
                with pytest.raises(ConnectionClosed):
                    read_to_the_end(client)
                assert client.close_code != 1011
        say(other, "hello there")
        assert receive(other, "session.done")[-1]["total_sentences"] == 1


def test_a_wrong_handshake_is_refused(unharmed: SpeechServer) -> None:
    url = unharmed.url.replace("http", "ws")
    for path in ("/", "/v1/audio/speech", "/v1/audio/speech/stream/x", "/nothing"):
        with pytest.raises(InvalidStatus) as raised:
            connect(url + path, open_timeout=TIMEOUT_S)
        assert 400 <= raised.value.response.status_code < 500


def test_the_document_has_openais_form_for_every_refusal(target: SpeechServer) -> None:
    paths = httpx.get(f"{target.url}/openapi.json", timeout=TIMEOUT_S).json()["paths"]
    codes = paths["/v1/audio/speech"]["post"]["responses"]
    assert {"200", "400", "401", "404", "413", "429", "500", "503"} <= codes.keys()
    for path, operations in paths.items():
        for operation in operations.values():
            for code, answer in operation["responses"].items():
                assert code != "422", path
                if code.startswith("4"):
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema["required"] == ["error"], path
