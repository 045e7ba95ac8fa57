"""Two real servers behind nginx, whose configuration is the one that docs/operating.md prints."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import itertools
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from lineage_run import ending, wait_for
from speech_servers import (
    LONG_TEXT,
    SAME,
    SOCKET,
    TIMEOUT_S,
    audio_of,
    load_of,
    logged,
    metric,
    receive,
    same,
    say,
    send,
)
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from speech_assets.work.worker import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from resources.speech_server import SpeechServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text("utf-8")
CONFIGURATION = re.search(r"^```nginx\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
# Debian has it where only root looks; NGINX=/a/path names one that is not installed.
NGINX = os.environ.get("NGINX") or shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = [
    pytest.mark.skipif(
        NGINX is None, reason="no nginx (apt-get install nginx, or NGINX=/path/to/nginx)"
    ),
    pytest.mark.timeout(900),
]

TEXT = "hello there"
PLACES, QUEUE = 2, 1
AGAIN = (429, 503)


@dataclass
class Fleet:
    """Two servers at fixed addresses, of which any may be ended and started again."""

    voice: Path
    folder: Path
    ports: tuple[int, int]
    running: dict[int, tuple[SpeechServer, contextlib.ExitStack]] = field(default_factory=dict)
    starts: itertools.count[int] = field(default_factory=itertools.count)

    def start(self, port: int) -> SpeechServer:
        stack = contextlib.ExitStack()
        server = stack.enter_context(
            logged(
                self.voice,
                self.folder / f"{port}-{next(self.starts)}.log",
                *("--port", str(port), "--log-format", "json", "--drain-s", "100"),
                *("--max-streams", str(PLACES), "--max-queue", str(QUEUE)),
                # Whoever gets into the queue gets a place, however slow the machine.
                *("--limit", "queue_s=100"),
            )
        )
        self.running[port] = (server, stack)
        return server

    def servers(self) -> list[SpeechServer]:
        return [self.running[port][0] for port in self.ports]

    def end(self, port: int, number: signal.Signals) -> int:
        """Send a signal and wait for the end; its exit code."""
        server, stack = self.running.pop(port)
        with stack:
            server.process.send_signal(number)
            return server.process.wait(TIMEOUT_S)

    def close(self) -> None:
        """End those that run."""
        for _, stack in self.running.values():
            stack.close()

    def spoken_by(self, port: int) -> set[str]:
        """Ids of the requests that the servers at a port have logged as spoken to their end."""
        logs = sorted(self.folder.glob(f"{port}-*.log"))
        lines = [line for log in logs for line in log.read_text("utf-8").splitlines()]
        parsed = [json.loads(line) for line in lines]
        return {line["id"] for line in parsed if line.get("status") == 200}


@dataclass(frozen=True)
class Proxy:
    """nginx at `https://127.0.0.1:port`, and whom to trust there."""

    port: int
    trust: ssl.SSLContext

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port}", verify=self.trust, timeout=TIMEOUT_S
        )

    def speak(self, text: str, label: str, **fields: Any) -> httpx.Response:
        """A whole answer, over a connection of its own."""
        with self.client() as client:
            return client.post("/v1/audio/speech", **request(text, label, **fields))


def request(text: str, label: str, **fields: Any) -> dict[str, Any]:
    return {"json": {"input": text, **SAME, **fields}, "headers": {"x-request-id": label}}


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def write_certificate(certificate: Path, key: Path) -> None:
    """One of our own for 127.0.0.1."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "speech.example.org")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def configuration(folder: Path, port: int, replicas: tuple[int, int]) -> str:
    """The page's text with our ports and files, in the frame that Debian's nginx.conf gives it."""
    text = CONFIGURATION
    lines = "\n    ".join(f"server 127.0.0.1:{each} max_fails=0;" for each in replicas)
    for of_page, ours in (
        ("server 127.0.0.1:8000 max_fails=0;", lines),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/ssl/speech.pem", str(folder / "speech.pem")),
        ("/etc/ssl/speech.key", str(folder / "speech.key")),
    ):
        assert text.count(of_page) == 1, of_page
        text = text.replace(of_page, ours)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root;\n" if os.geteuid() == 0 else ""
    return (
        # One process, so that it ends with the tests, however they end.
        f"{user}daemon off;\nmaster_process off;\n"
        f"pid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{ }}\nhttp {{\naccess_log {folder}/access.log;\n{temporary}\n{text}}}\n"
    )


@pytest.fixture(scope="module")
def both(
    endless_voice: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Fleet, Proxy]]:
    folder = tmp_path_factory.mktemp("replicas")
    port, *replicas = free_ports(3)
    fleet = Fleet(endless_voice, folder, (replicas[0], replicas[1]))
    write_certificate(folder / "speech.pem", folder / "speech.key")
    (folder / "nginx.conf").write_text(configuration(folder, port, fleet.ports))
    nginx = subprocess.Popen(
        [str(NGINX), "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")],
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    with ending(nginx), contextlib.ExitStack() as servers:
        servers.callback(fleet.close)
        proxy = Proxy(port, ssl.create_default_context(cafile=folder / "speech.pem"))
        wait_for(lambda: nginx.poll() is not None or is_listening(port), "nginx listens")
        assert nginx.poll() is None, (folder / "error.log").read_text()
        yield fleet, proxy


@pytest.fixture
def fleet(both: tuple[Fleet, Proxy]) -> Fleet:
    """Two servers that run, whatever a test before did with them."""
    fleet = both[0]
    missing = [port for port in fleet.ports if port not in fleet.running]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fleet.start, missing))
    for server in fleet.servers():
        wait_for(lambda server=server: load_of(server) == (0, 0), "it is idle")
    return fleet


@pytest.fixture
def proxy(both: tuple[Fleet, Proxy]) -> Proxy:
    return both[1]


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def has_spoken(server: SpeechServer) -> bool:
    """Whether a request of it has been spoken to an end; one that was refused does not count."""
    return any(
        metric(server, "speech_requests_total", outcome=outcome) > 0
        for outcome in ("stop", "length", "silence", "loop")
    )


@contextlib.contextmanager
def streams(proxy: Proxy, count: int, text: str = LONG_TEXT) -> Generator[list[httpx.Response]]:
    """So many long streams whose audio has begun."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(proxy.client())
        answers: list[httpx.Response] = []
        for n in range(count):
            asked = request(text, f"long-{n}")
            answer = stack.enter_context(client.stream("POST", "/v1/audio/speech", **asked))
            assert answer.status_code == 200
            answers.append(answer)
        yield answers


def test_a_request_goes_through_as_without_the_proxy(fleet: Fleet, proxy: Proxy) -> None:
    direct = httpx.post(
        f"{fleet.servers()[0].url}/v1/audio/speech", timeout=TIMEOUT_S, **request(TEXT, "direct")
    )
    answer = proxy.speak(TEXT, "through")
    assert same(answer.content, direct.content)
    assert answer.headers["x-request-id"] == "through"
    assert answer.headers["content-type"] == "audio/pcm"
    refused = proxy.speak(TEXT, "wrong", voice="nobody")
    assert refused.json()["error"]["code"] == "voice_not_found"
    with proxy.client() as client:
        assert client.get("/ready").json() == {"ready": True}
        assert client.get("/metrics").status_code == 403


def test_audio_comes_while_it_is_made(fleet: Fleet, proxy: Proxy) -> None:
    with streams(proxy, 1) as (answer,):
        chunks = answer.iter_raw()
        first = next(chunks)
        assert sum(load_of(server)[0] for server in fleet.servers()) == 1
        assert len(first) < len(b"".join(chunks))


def test_a_full_replica_is_passed_over_and_stays_in_use(fleet: Fleet, proxy: Proxy) -> None:
    url = "/v1/audio/speech"
    text = LONG_TEXT * 20  # Longer than the test, unless a client leaves.
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2 * QUEUE))
        clients: list[httpx.Client] = []
        for n in range(2 * PLACES):
            client = stack.enter_context(proxy.client())
            asked = request(text, f"place-{n}")
            assert stack.enter_context(client.stream("POST", url, **asked)).status_code == 200
            clients.append(client)
        assert [load_of(server) for server in fleet.servers()] == [(PLACES, 0)] * 2
        waiting = [pool.submit(proxy.speak, TEXT, f"waits-{n}") for n in range(2 * QUEUE)]
        wait_for(
            lambda: [load_of(s) for s in fleet.servers()] == [(PLACES, QUEUE)] * 2, "both are full"
        )
        # Both say no, and no again: neither is taken for dead.
        for n in range(5):
            full = proxy.speak(TEXT, f"full-{n}")
            assert full.status_code == 429
            assert int(full.headers["retry-after"]) >= 1
            assert full.json()["error"]["code"] == "overloaded"
        for client in clients:
            client.close()
        assert [answer.result().status_code for answer in waiting] == [200] * len(waiting)
    for server in fleet.servers():
        wait_for(lambda server=server: load_of(server) == (0, 0), "it is idle")
    with streams(proxy, 2, text):
        assert [load_of(server)[0] for server in fleet.servers()] == [1, 1]


def test_replicas_are_renewed_one_by_one_without_a_broken_stream(
    fleet: Fleet, proxy: Proxy
) -> None:
    texts = [TEXT, LONG_TEXT, "and quite another"]
    expected = [proxy.speak(text, f"expected-{n}").content for n, text in enumerate(texts)]
    enough = threading.Event()
    spoken, told = itertools.count(), itertools.count()

    def customer(number: int) -> list[str]:
        """Asks for one text after the other, as OpenAI's clients do; what went wrong."""
        wrong: list[str] = []
        with proxy.client() as client:
            for turn in itertools.count():
                which = (number + turn) % len(texts)
                asked = request(texts[which], f"customer-{number}-{turn}")
                while True:
                    try:
                        answer = client.post("/v1/audio/speech", **asked)
                    except httpx.HTTPError as error:
                        wrong.append(f"{number}, {turn}: {error!r}")
                        break
                    if answer.status_code in AGAIN:
                        next(told)
                        if int(answer.headers["retry-after"]) < 1 or not answer.json()["error"]:
                            wrong.append(f"{number}, {turn}: {answer.headers}")
                        enough.wait(0.2)  # Sooner than it was told: the more there is to refuse.
                        continue
                    if answer.status_code != 200 or not same(answer.content, expected[which]):
                        wrong.append(f"{number}, {turn}: {answer.status_code} {answer.text[:200]}")
                    next(spoken)
                    break
                if enough.is_set():
                    return wrong
        raise AssertionError

    # More customers than one replica has places, queue included.
    with ThreadPoolExecutor(PLACES + QUEUE + 1) as pool:
        customers = [pool.submit(customer, n) for n in range(PLACES + QUEUE + 1)]
        try:
            for port in fleet.ports:
                server = fleet.running[port][0]
                wait_for(lambda server=server: load_of(server)[0] > 0, "it speaks")
                with call(proxy) as socket:
                    say(socket, TEXT)
                    receive(socket, "audio.start")
                    is_its_call = metric(server, "speech_open_sockets") == 1
                    assert fleet.end(port, signal.SIGTERM) == 0
                    assert audio_of(receive(socket, "session.done"))
                    if is_its_call:
                        with pytest.raises(ConnectionClosed):
                            receive(socket, "session.done")
                        assert socket.close_code == 1012
                new = fleet.start(port)
                wait_for(lambda new=new: has_spoken(new), "the new one speaks")
        finally:
            enough.set()
        wrong = [each for one in customers for each in one.result(TIMEOUT_S)]
    assert wrong == []
    assert next(spoken) >= 2 * len(customers)
    assert next(told) > 0  # There was a time without a place.


def test_a_replica_that_is_killed_breaks_its_own_streams_alone(fleet: Fleet, proxy: Proxy) -> None:
    text = LONG_TEXT * 3  # The first must last until the second has begun.
    expected = proxy.speak(text, "expected").content
    killed, other = fleet.ports
    with streams(proxy, 2, text) as answers:
        assert [load_of(server)[0] for server in fleet.servers()] == [1, 1]
        assert fleet.end(killed, signal.SIGKILL) == -signal.SIGKILL
        outcomes: dict[str, bytes | None] = {}
        for n, answer in enumerate(answers):
            try:
                outcomes[f"long-{n}"] = b"".join(answer.iter_raw())
            except httpx.RemoteProtocolError:
                outcomes[f"long-{n}"] = None
    whole = {label for label, audio in outcomes.items() if audio is not None}
    assert len(whole) == 1
    assert same(outcomes[whole.pop()], expected)
    for n in range(4):
        assert proxy.speak(TEXT, f"after-{n}").status_code == 200
    assert {f"after-{n}" for n in range(4)} <= fleet.spoken_by(other)


def test_without_any_replica_clients_are_told_to_come_again(fleet: Fleet, proxy: Proxy) -> None:
    for port in fleet.ports:
        fleet.end(port, signal.SIGKILL)
    answer = proxy.speak(TEXT, "nobody")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "not_ready"


@contextlib.contextmanager
def call(proxy: Proxy) -> Generator[Any]:
    """A configured WebSocket through the proxy."""
    with connect(
        f"wss://127.0.0.1:{proxy.port}{SOCKET}",
        ssl=proxy.trust,
        open_timeout=TIMEOUT_S,
        max_size=None,
        ping_interval=None,
    ) as client:
        send(client, {"type": "session.config", "stream_audio": True, **SAME})
        yield client
