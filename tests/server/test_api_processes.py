"""API processes apart from the engine: what their deaths, and the server's, leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
import uvloop
from lineage_run import processes_with, wait_for
from speech_servers import (
    LONG_TEXT,
    TIMEOUT_S,
    health,
    metric,
    open_socket,
    post,
    process_at,
    processes_of,
    raw_request,
    read_all_of_chunked,
    receive,
    same,
    say,
    wait_until_free,
)

from server.api_child import ApiChild
from server.api_processes import ApiProcesses
from server.limits import Limits
from server.listening import listen, url_of
from server.metrics import Metrics
from server.serving import Serving

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from resources.speech_server import SpeechServer

ROOT = Path(__file__).parents[2]
TEXT = "hello there"
MARK = "SPEECH_TEST_MARK"
# The server as it is, but that its API processes cannot start.
BROKEN = """
import sys
sys.executable = "/bin/false"
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def answering_through(
    server: SpeechServer, taken: Callable[[psutil.Process], bool]
) -> tuple[socket.socket, psutil.Process]:
    """A speech request, its answer begun, at an API process that is as wanted."""
    while True:
        client = raw_request(server, LONG_TEXT)
        assert client.recv(12) == b"HTTP/1.1 200"
        process = process_at(server, client)
        if taken(process):
            return client, process
        client.close()


def read_all(client: socket.socket) -> bytes:
    """All that still comes until the connection ends."""
    received = b""
    try:
        while data := client.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_a_whole_answer_has_the_same_bytes_in_both_forms(
    one_process: SpeechServer, api_processes: SpeechServer
) -> None:
    for seed in (1, 2):
        one, apart = (
            post(server, TEXT, seed=seed, stream=False) for server in (one_process, api_processes)
        )
        assert one.content == apart.content


def test_both_forms_say_the_same_of_themselves(
    one_process: SpeechServer, api_processes: SpeechServer
) -> None:
    for path in ("/v1/audio/voices", "/v1/models"):
        one, apart = (
            httpx.get(f"{server.url}{path}", timeout=TIMEOUT_S).json()["data"]
            for server in (one_process, api_processes)
        )
        made = ("created", "created_at")
        assert [{k: v for k, v in row.items() if k not in made} for row in one] == [
            {k: v for k, v in row.items() if k not in made} for row in apart
        ]
    one, apart = (
        httpx.get(f"{server.url}/config", timeout=TIMEOUT_S).json()
        for server in (one_process, api_processes)
    )
    assert one.keys() == apart.keys()
    assert one["limits"] == apart["limits"]
    assert one["weights"] == apart["weights"]
    names = [
        {
            line.split()[2]
            for line in httpx.get(f"{server.url}/metrics", timeout=TIMEOUT_S).text.splitlines()
            if "TYPE" in line
        }
        for server in (one_process, api_processes)
    ]
    assert names[0] == names[1]


def test_places_are_shared_by_all_api_processes(api_processes: SpeechServer) -> None:
    """Four places and a queue of two, whichever process a client has come to."""
    server = api_processes
    wait_until_free(server)
    texts = [f"stream number {letter} " + "and so on " * 4 for letter in "abcdefghijkl"]
    with ThreadPoolExecutor(len(texts)) as pool:
        codes = [a.status_code for a in pool.map(lambda text: post(server, text), texts)]
    assert set(codes) == {200, 429}
    assert codes.count(200) >= 4
    wait_until_free(server)
    overloaded = metric(server, "speech_requests_total", outcome="overloaded")
    assert overloaded >= codes.count(429)


def test_an_api_process_that_dies_frees_its_places_and_is_started_again(
    api_processes: SpeechServer,
) -> None:
    server = api_processes
    expected = post(server, TEXT).content
    wait_until_free(server)
    assert len(processes_of(server)) == 2
    spoken = metric(server, "speech_ttfa_seconds_count")
    samples = metric(server, "speech_audio_samples_total")
    restarts = metric(server, "speech_api_restarts_total")
    dying, process = answering_through(server, lambda _: True)
    other, _ = answering_through(server, lambda found: found != process)
    with dying, other, open_socket(server) as client:
        at_the_same = process_at(server, client.socket) == process
        process.kill()
        assert not read_all(dying).endswith(b"0\r\n\r\n")  # It must not look complete.
        assert read_all_of_chunked(other).endswith(b"0\r\n\r\n")
        if not at_the_same:
            say(client, TEXT)
            assert receive(client, "session.done")[-1]["total_sentences"] == 1
    wait_until_free(server)
    wait_for(lambda: len(processes_of(server)) == 2, "another has been started")
    assert same(post(server, TEXT).content, expected)
    wait_for(
        lambda: metric(server, "speech_api_restarts_total") == restarts + 1, "the death is counted"
    )
    # What it had counted is not forgotten.
    assert metric(server, "speech_ttfa_seconds_count") > spoken
    assert metric(server, "speech_audio_samples_total") > samples


def test_an_api_process_that_hangs_holds_up_neither_others_nor_a_scrape(
    api_processes: SpeechServer,
) -> None:
    server = api_processes
    wait_for(lambda: len(processes_of(server)) == 2, "both are there")
    hanging, process = answering_through(server, lambda _: True)
    with hanging:
        spoken = metric(server, "speech_audio_samples_total")
        process.suspend()
        try:
            assert post(server, TEXT).status_code == 200
            assert metric(server, "speech_audio_samples_total") > spoken
        finally:
            process.resume()
        # It goes on where it was, with all that was made meanwhile.
        assert read_all_of_chunked(hanging).endswith(b"0\r\n\r\n")
    wait_until_free(server)
    assert health(server) == {"status": "ok", "active_streams": 0, "queued": 0}


def test_an_api_process_that_hangs_for_long_is_killed_and_another_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.api_keeper.SILENT_LOOKS", 3)
    serving = Serving(Limits(), Metrics())
    processes = ApiProcesses(serving, 1, ())

    def pids() -> set[int]:
        found = set()
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):  # It ends while it is looked at.
                if child.status() != psutil.STATUS_ZOMBIE and "--as-api-process" in child.cmdline():
                    found.add(child.pid)
        return found

    async def answered(url: str) -> int:
        # That it is loading: there is no model, and none is needed.
        answer = await asyncio.to_thread(httpx.get, f"{url}/ready", timeout=TIMEOUT_S)
        assert answer.status_code == 503
        [pid] = pids()
        return pid

    async def scenario() -> tuple[int, int, bytes]:
        with listen("127.0.0.1", 0) as listener:
            await processes.open(listener)
            hanging = await answered(url_of(listener))
            os.kill(hanging, signal.SIGSTOP)
            async with asyncio.timeout(TIMEOUT_S):
                while hanging in pids():
                    await asyncio.sleep(0.05)
            other = await answered(url_of(listener))
            await processes.close()
            return hanging, other, serving.metrics.render()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        hanging, other, metrics = runner.run(scenario())
    assert hanging != other
    assert b"speech_api_restarts_total 1.0" in metrics
    assert pids() == set()


def test_api_processes_end_when_the_server_is_killed(endless_voice: Path) -> None:
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "server", "--preset", "embedded", "--port", "0"),
            *("--model", str(endless_voice), "--api-processes", "3"),
        ],
        cwd=ROOT,
        env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            wait_for(lambda: len(processes_with(MARK, mark)) == 4, "all have been started")
        finally:
            process.kill()
    wait_for(lambda: processes_with(MARK, mark) == [], "no process is left")
    assert process.returncode == -signal.SIGKILL


def test_an_api_process_whose_end_nobody_would_hear_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("no more threads")

    async def scenario() -> None:
        with listen("127.0.0.1", 0) as listener, pytest.raises(OSError, match="no more threads"):
            ApiChild.start((), listener)

    before = psutil.Process().children()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    asyncio.run(scenario())
    assert psutil.Process().children() == before


def test_api_processes_that_cannot_start_end_the_server(endless_voice: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c", BROKEN, "--preset", "embedded", "--port", "0"),
            *("--model", str(endless_voice), "--api-processes", "1"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "an API process has died 5 times while it started: see what" in done.stderr
    assert "start the server again; ending" in done.stderr
    assert done.stdout == ""


def test_a_wrong_number_of_api_processes_is_exit_2_and_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "server", "--api-processes", "65"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "65 is no number of API processes; give 0 to 64" in done.stderr
