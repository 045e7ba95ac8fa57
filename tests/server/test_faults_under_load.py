"""Faults on a real server whose every place is taken: nobody else hears anything of them.

Listeners ask again and again meanwhile, each by another transport; all that they hear is what they
hear alone. After each fault nothing is left of it.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import random
import signal
import socket
import struct
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from lineage_run import processes_with, wait_for
from malformed import damaged, frame, hardly_http
from speech_servers import (
    LAST_CHUNK,
    LONG_TEXT,
    SOCKET,
    TIMEOUT_S,
    audio_of,
    health,
    load_of,
    logged,
    metric,
    open_socket,
    post,
    process_at,
    raw_request,
    read_all_of_chunked,
    receive,
    same,
    say,
    send,
)
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from server.speech_options import SpeechBody

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from websockets.sync.client import ClientConnection

    from resources.speech_server import SpeechServer

MARK = "SPEECH_TEST_MARK"
PLACES = 4
TEXT = "hello there, and so on"
ENDLESS = LONG_TEXT * 12  # Minutes of speech: it lasts until the fault, on any machine.
MORE_BYTES = 200_000  # Four seconds and more of a stream, to be heard after a fault.
FADE_BYTES = 480  # 10 ms.
PLACED = (
    *("--max-streams", str(PLACES), "--max-queue", "40"),
    # However slow the machine, who waits gets a place, and nobody is cut off for its slowness.
    *("--limit", "queue_s=100", "--drain-s", "100"),
)
# The server as it is, but that its engine dies as soon as the file of its first argument is there.
DYING = """
import pathlib, sys
import server.engine_core as core
from server.errors import EngineDiedError
pulled = pathlib.Path(sys.argv.pop(1))
step = core.CoreEngine.step
def dying_step(self):
    if pulled.exists():
        raise EngineDiedError("pulled by the test")
    return step(self)
core.CoreEngine.step = dying_step
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
FORMS = {"one_process": (), "api_processes": ("--api-processes", "2")}
in_both_forms = pytest.mark.parametrize("form", FORMS)
in_both_forms_at_once = pytest.mark.parametrize("crowded", FORMS, indirect=True)


@dataclass(frozen=True)
class Crowded:
    """A server, the mark and number of its processes, and what each listener hears of it alone."""

    server: SpeechServer
    mark: str
    processes: int

    @functools.cached_property
    def alone(self) -> list[bytes]:
        """PCM of each listener's text, which nobody else's is."""
        pcm = [heard(self.server, which) for which in range(PLACES)]
        assert len(set(pcm)) == PLACES
        return pcm

    @contextlib.contextmanager
    def listened_to(self) -> Generator[None]:
        """A listener on every place, from before the block to after it; all hear what is right."""
        ended, alone = threading.Event(), self.alone

        def listen(which: int) -> int:
            is_last, times = False, 0
            while not is_last:
                is_last = ended.is_set()
                assert same_but_end(heard(self.server, which), alone[which]), (which, times)
                times += 1
            return times

        with ThreadPoolExecutor(PLACES) as pool:
            tasks = [pool.submit(listen, which) for which in range(PLACES)]
            try:
                wait_for(
                    lambda: any(task.done() for task in tasks) or load_of(self.server)[0] == PLACES,
                    "every place is taken",
                )
                yield
            finally:
                ended.set()
            # One stream that began before the fault was over, and one that began after.
            assert all(task.result() >= 2 for task in tasks)

    def is_as_before(self) -> None:
        """Nothing is left of a fault: no place, no wait, no connection, no process."""
        server = self.server
        wait_for(lambda: load_of(server) == (0, 0), "no place is taken and nobody waits")
        wait_for(lambda: metric(server, "speech_open_sockets") == 0, "no socket is open")
        # The one that asks is one itself.
        wait_for(lambda: metric(server, "speech_open_connections") <= 1, "no connection is open")
        wait_for(
            lambda: len(processes_with(MARK, self.mark)) == self.processes,
            "its processes are as many as before",
        )
        assert health(server) == {"status": "ok", "active_streams": 0, "queued": 0}


def heard(server: SpeechServer, which: int) -> bytes:
    """PCM of a text that is the listener's own, by a transport that is its own, too."""
    text, seed = f"{['one', 'two', 'three', 'four'][which]}, {TEXT}", which + 1
    match which:
        case 0:
            answer = post(server, text, seed=seed)
        case 1:
            answer = post(server, text, seed=seed, stream=False)
        case 2:
            answer = post(server, text, seed=seed, stream_format="sse")
            events = [
                json.loads(line[6:])
                for line in answer.text.splitlines()
                if line.startswith("data: ")
            ]
            assert events[-1]["type"] == "speech.audio.done", events[-1]
            return b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
        case _:
            with open_socket(server, seed=seed) as client:
                say(client, text)
                messages = receive(client, "session.done")
            assert [m for m in messages if m["type"] == "error"] == []
            return audio_of(messages)
    assert answer.status_code == 200, answer.text
    return answer.content


def same_but_end(one: bytes, other: bytes) -> bool:
    """Whether two streams are the same speech, as long as each other.

    The fade at an end is not compared: it is within the last chunk, whose length is the clock's.
    """
    return len(one) == len(other) and same(one[:-FADE_BYTES], other[:-FADE_BYTES])


@contextlib.contextmanager
def started(
    voice: Path,
    folder: Path,
    form: str,
    *arguments: str,
    program: tuple[str, ...] = ("-m", "server"),
) -> Generator[Crowded]:
    """A server of a form; when the block has ended, no process of it is left."""
    mark = uuid.uuid4().hex
    with logged(
        *(voice, folder / "log", *PLACED, *FORMS[form], *arguments),
        environment={MARK: mark},
        program=program,
    ) as server:
        yield Crowded(server, mark, len(processes_with(MARK, mark)))
    wait_for(lambda: processes_with(MARK, mark) == [], "no process is left")


@pytest.fixture(scope="module")
def crowded(
    request: pytest.FixtureRequest,
    endless_voice: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crowded]:
    """A server with little patience for who takes nothing or says nothing."""
    with started(
        *(endless_voice, tmp_path_factory.mktemp("crowded"), request.param),
        *("--limit", "stall_s=2", "--limit", "body_s=2", "--limit", "headers_s=2"),
        *("--limit", "waiting_utterances=4", "--limit", "waiting_characters=4096"),
    ) as made:
        yield made


def cut_off(client: socket.socket) -> None:
    """Go away without a word: a reset, not TCP's farewell."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RD)  # A thread may read; it would hold the socket open.
    client.close()


# ---- clients ------------------------------------------------------------------------------------


@in_both_forms_at_once
def test_clients_that_vanish_in_any_phase_take_nobody_with_them(crowded: Crowded) -> None:
    server = crowded.server
    cancelled = metric(server, "speech_requests_total", outcome="cancelled")
    with crowded.listened_to(), contextlib.ExitStack() as stack:
        # Within the body, and as soon as it is sent: before a place, or before the first audio.
        url = httpx.URL(server.url)
        within_body = socket.create_connection((url.host, url.port), TIMEOUT_S)
        within_body.sendall(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
        )
        within_body.close()
        for _ in range(6):
            raw_request(server, ENDLESS).close()
        # In the queue, where whoever comes now has to wait behind others.
        waiting = [raw_request(server, ENDLESS) for _ in range(6)]
        wait_for(lambda: load_of(server)[1] >= 2, "some wait")
        for client in waiting:
            cut_off(client)
        # In the middle of their speech, over HTTP and a socket.
        for _ in range(2):
            client = raw_request(server, ENDLESS)
            assert client.recv(12) == b"HTTP/1.1 200"
            cut_off(client)
            call = stack.enter_context(open_socket(server))
            say(call, ENDLESS)
            receive(call, "audio")
            cut_off(call.socket)
        wait_for(
            lambda: metric(server, "speech_requests_total", outcome="cancelled") >= cancelled + 17,
            "all of them are noticed",
        )
    crowded.is_as_before()


@in_both_forms_at_once
def test_readers_that_take_nothing_are_cut_off_alone(crowded: Crowded) -> None:
    server = crowded.server
    stalled = metric(server, "speech_requests_total", outcome="stalled")
    with (
        crowded.listened_to(),
        raw_request(server, ENDLESS, receive_buffer=4_096) as reader,
        open_socket(server, receive_buffer=4_096) as call,
    ):
        say(call, ENDLESS)
        wait_for(
            lambda: metric(server, "speech_requests_total", outcome="stalled") == stalled + 2,
            "both are cut off",
        )
        assert not read_all_of_chunked(reader).endswith(LAST_CHUNK)  # It must not look complete.
        with pytest.raises(ConnectionClosed):
            receive(call, "session.done")
    crowded.is_as_before()


@in_both_forms_at_once
def test_what_is_malformed_disturbs_nobody(crowded: Crowded) -> None:
    server = crowded.server
    chance = random.Random(16)
    url = httpx.URL(server.url)
    failed = metric(server, "speech_requests_total", outcome="error")
    with crowded.listened_to():
        with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
            for _ in range(150):
                body = damaged(chance, SpeechBody)
                answer = client.post("/v1/audio/speech", content=body)
                assert answer.status_code in (200, 400, 404), (body[:300], answer.text[:300])
        for _ in range(50):
            worn = hardly_http(chance)
            with socket.create_connection((url.host, url.port), TIMEOUT_S) as client:
                client.sendall(worn)
                client.shutdown(socket.SHUT_WR)
                assert not read_all_of_chunked(client).startswith(b"HTTP/1.1 5"), worn
        for _ in range(50):
            with connect(
                f"{server.url.replace('http', 'ws')}{SOCKET}",
                open_timeout=TIMEOUT_S,
                ping_interval=None,
                close_timeout=0,
            ) as call:
                with contextlib.suppress(OSError):  # It may be closed already.
                    call.socket.sendall(frame(chance))
                    call.socket.shutdown(socket.SHUT_WR)
                with pytest.raises(ConnectionClosed):
                    read_to_the_end(call)
                assert call.close_code != 1011
    crowded.is_as_before()
    assert metric(server, "speech_requests_total", outcome="error") == failed


@in_both_forms_at_once
def test_sockets_that_flood_are_told_or_cut_off_and_hold_up_nobody(crowded: Crowded) -> None:
    server = crowded.server
    with crowded.listened_to():
        # One that reads: of each message that is one too many it is told.
        with open_socket(server) as call, ThreadPoolExecutor(1) as pool:
            told = pool.submit(until_cancelled, call)
            for _ in range(1_000):
                say(call, "and on. " * 100)
            send(call, {"type": "session.cancel"})
            errors = {m["code"] for m in told.result() if m["type"] == "error"}
            assert errors == {"too_many_utterances"}
        # One that does not: its answers are in its own way, and it is cut off.
        with open_socket(server, receive_buffer=4_096) as call, pytest.raises(ConnectionClosed):
            flood(call)
    crowded.is_as_before()


def flood(client: ClientConnection) -> None:
    """Send utterances, read nothing, and stop for nobody."""
    while True:
        say(client, "and on. " * 100)


def read_to_the_end(client: ClientConnection) -> None:
    """Read messages for as long as there are any."""
    while True:
        client.recv(timeout=TIMEOUT_S)


def until_cancelled(client: ClientConnection) -> list[dict[str, Any]]:
    """All messages up to the end of an utterance that was cancelled."""
    messages: list[dict[str, Any]] = []
    while not messages or not messages[-1].get("cancelled"):
        messages += receive(client, "session.done")
    return messages


# ---- processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("crowded", ["api_processes"], indirect=True)
def test_an_api_process_that_is_killed_takes_its_own_streams_alone(crowded: Crowded) -> None:
    server = crowded.server
    restarts = metric(server, "speech_api_restarts_total")
    was_killed = threading.Event()
    with ThreadPoolExecutor(2 * PLACES) as pool, contextlib.ExitStack() as stack:
        streams: dict[int, list[Future[bytes]]] = {}
        # Until every place is taken, and both processes have two; which one takes a connection is
        # not for a client to say.
        while sum(map(len, streams.values())) < PLACES:
            client = stack.enter_context(raw_request(server, ENDLESS))
            there = streams.setdefault(process_at(server, client).pid, [])
            if len(there) < PLACES // 2:
                there.append(pool.submit(played, client, MORE_BYTES, was_killed))
            else:
                cut_off(client)
        waiting = [stack.enter_context(raw_request(server, TEXT)) for _ in range(PLACES)]
        wait_for(lambda: load_of(server) == (PLACES, PLACES), "as many wait as are spoken to")
        at = [process_at(server, client).pid for client in waiting]
        killed, other = streams
        os.kill(killed, signal.SIGKILL)
        was_killed.set()
        queued = list(pool.map(read_all_of_chunked, waiting))
        for task in streams[killed]:
            assert not task.result().endswith(LAST_CHUNK)  # It must not look complete.
        whole = [task.result() for task in streams[other]]
    with raw_request(server, ENDLESS) as client:
        expected = body_of(played(client, max(map(len, whole)), was_killed))
    for received in whole:
        body = body_of(received)
        assert len(body) > MORE_BYTES / 2
        assert same(body[: len(body) & ~1], expected[: len(body) & ~1])
    alone = post(server, TEXT).content
    for received, pid in zip(queued, at, strict=True):
        assert received == b"" if pid == killed else same_but_end(body_of(received), alone)
    wait_for(lambda: metric(server, "speech_api_restarts_total") == restarts + 1, "it is counted")
    with crowded.listened_to():
        pass
    crowded.is_as_before()


def played(client: socket.socket, size: int, skips: threading.Event) -> bytes:
    """What comes: little at a time, as a player takes it, until it `skips`; then `size` more."""
    received, left = b"", size
    with contextlib.suppress(ConnectionError):
        while left > 0 and (data := client.recv(4_096)):
            received += data
            if skips.is_set():
                left -= len(data)
            else:
                skips.wait(0.05)
    return received


def body_of(answer: bytes) -> bytes:
    """The body of a chunked answer, or what has come of it."""
    _, _, rest = answer.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return body


@in_both_forms
def test_sigterm_lets_every_stream_and_all_who_wait_end_whole(
    endless_voice: Path, tmp_path: Path, form: str
) -> None:
    with started(endless_voice, tmp_path, form) as crowded:
        server, alone = crowded.server, crowded.alone
        with ThreadPoolExecutor(2 * PLACES) as pool:
            tasks = [pool.submit(heard, server, which % PLACES) for which in range(2 * PLACES)]
            wait_for(
                # One that was taken early may be done before the last is taken.
                lambda: sum(t.done() for t in tasks) + sum(load_of(server)) >= 2 * PLACES,
                "every place is taken, and as many wait",
            )
            # As who ends a service does: to each of its processes.
            for process in processes_with(MARK, crowded.mark):
                process.send_signal(signal.SIGTERM)
            wait_for(
                lambda: (
                    httpx.get(f"{server.url}/ready", timeout=TIMEOUT_S, verify=False).status_code
                    == 503
                ),
                "it drains",
            )
            for malformed in (b"{", b"\xff"):
                answer = httpx.post(
                    f"{server.url}/v1/audio/speech", content=malformed, timeout=TIMEOUT_S
                )
                assert answer.status_code in (400, 503)
            refused = post(server, TEXT)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
            raw_request(server, TEXT).close()
            for which, task in enumerate(tasks):
                assert same_but_end(task.result(), alone[which % PLACES])
        assert server.process.wait(TIMEOUT_S) == 0


@in_both_forms
def test_an_engine_that_dies_is_told_on_every_place_and_in_the_queue(
    endless_voice: Path, tmp_path: Path, form: str
) -> None:
    pulled = tmp_path / "pulled"
    with (
        started(endless_voice, tmp_path, form, program=("-c", DYING, str(pulled))) as crowded,
        ThreadPoolExecutor(PLACES) as pool,
    ):
        server = crowded.server
        with raw_request(server, ENDLESS) as stream, open_socket(server) as call:
            assert stream.recv(12) == b"HTTP/1.1 200"
            say(call, ENDLESS)
            receive(call, "audio")
            events = raw_request(server, ENDLESS, stream_format="sse")
            assert events.recv(12) == b"HTTP/1.1 200"
            whole = pool.submit(post, server, ENDLESS, stream=False)
            wait_for(lambda: load_of(server) == (PLACES, 0), "every place is taken")
            queued = [pool.submit(post, server, TEXT) for _ in range(2)]
            wait_for(lambda: load_of(server) == (PLACES, 2), "two wait")
            pulled.touch()
            with events:
                last = json.loads(
                    read_all_of_chunked(events).rpartition(b"data: ")[2].split(b"\n")[0]
                )
            assert (last["type"], last["error"]["code"]) == ("speech.audio.error", "engine_error")
            assert not read_all_of_chunked(stream).endswith(
                LAST_CHUNK
            )  # It must not look complete.
            [error] = [m for m in receive(call, "session.done") if m["type"] == "error"]
            assert (error["code"], error["action"]) == ("engine_error", "discard")
            assert whole.result().status_code == 500
            for answer in (whole, *queued):
                assert answer.result().status_code in (500, 503)
                assert answer.result().json()["error"]["code"] in ("engine_error", "not_ready")
        assert server.process.wait(TIMEOUT_S) == 5
