"""Faults on a real server with a real engine: what clients, operators and starters see of them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from lineage_run import processes_with, wait_for
from speech_servers import (
    LONG_TEXT,
    SAME,
    SOCKET,
    TIMEOUT_S,
    audio_of,
    both_forms,
    health,
    metric,
    open_socket,
    post,
    raw_request,
    receive,
    running,
    same,
    say,
    types_of,
    wait_until_free,
)
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from resources.speech_server import SpeechServer

ROOT = Path(__file__).parents[2]
TEXT = "hello there"
MARK = "SPEECH_TEST_MARK"
STALL_S = 1
PAUSE_S = 0.03  # Of a slow reader, after each of its reads of at most 16 KiB.
# The server as it is, but that its engine dies after the first audio, which takes at most 50 steps.
DYING = """
import server.engine_core as core, sys
from server.errors import EngineDiedError
step, left = core.CoreEngine.step, [200]
def dying_step(self):
    left[0] -= 1
    if left[0] < 0:
        raise EngineDiedError("pulled by the test")
    return step(self)
core.CoreEngine.step = dying_step
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


in_both_forms = pytest.mark.parametrize(
    "form", [(), ("--api-processes", "2")], ids=["one_process", "api_processes"]
)


@pytest.fixture(scope="module")
def small_server(endless_voice: Path) -> Iterator[SpeechServer]:
    """Two places, a queue of two, and little patience with readers that stall."""
    with running(
        endless_voice,
        *("--max-streams", "2", "--max-queue", "2", "--limit", f"stall_s={STALL_S}"),
        # However slow the machine, who waits gets a place.
        *("--limit", "queue_s=100"),
    ) as server:
        yield server


# ---- clients ------------------------------------------------------------------------------------


@both_forms
def test_a_client_that_goes_away_frees_its_place_and_the_next_is_not_affected(
    server: SpeechServer,
) -> None:
    expected = post(server, TEXT).content
    cancelled = metric(server, "speech_requests_total", outcome="cancelled")
    with raw_request(server, LONG_TEXT) as client:
        assert client.recv(12) == b"HTTP/1.1 200"
        assert health(server)["active_streams"] == 1
    assert same(post(server, TEXT).content, expected)
    wait_until_free(server)
    assert metric(server, "speech_requests_total", outcome="cancelled") == cancelled + 1


@both_forms
def test_a_client_that_goes_away_before_the_first_chunk_leaves_nothing(
    server: SpeechServer,
) -> None:
    for _ in range(5):
        raw_request(server, LONG_TEXT).close()
    wait_until_free(server)
    assert post(server, TEXT).status_code == 200


def test_a_reader_that_stalls_is_cut_off_and_others_are_not(small_server: SpeechServer) -> None:
    stalled = metric(small_server, "speech_requests_total", outcome="stalled")
    with raw_request(small_server, LONG_TEXT, receive_buffer=4_096) as client:
        assert client.recv(12) == b"HTTP/1.1 200"
        assert post(small_server, TEXT).status_code == 200
        wait_for(
            lambda: metric(small_server, "speech_requests_total", outcome="stalled") > stalled,
            "the stalled reader is cut off",
        )
        wait_until_free(small_server)
        received = read_all(client)
    assert not received.endswith(b"0\r\n\r\n")  # It must not look complete.


def test_a_reader_of_a_whole_answer_that_stalls_is_cut_off(small_server: SpeechServer) -> None:
    stalled = metric(small_server, "speech_requests_total", outcome="stalled")
    # Played slowly, it is more than buffers take.
    whole = {"stream": False, "speed": 0.25}
    with raw_request(small_server, LONG_TEXT, receive_buffer=4_096, **whole) as client:
        wait_for(
            lambda: metric(small_server, "speech_requests_total", outcome="stalled") > stalled,
            "the stalled reader is cut off",
        )
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    assert int(length[1]) > len(body)


def test_a_slow_reader_of_a_whole_sentence_gets_all_of_it_in_one_message(
    small_server: SpeechServer,
) -> None:
    url = httpx.URL(small_server.url)
    protocol = ClientProtocol(parse_uri(f"ws://{url.host}:{url.port}{SOCKET}"), max_size=None)
    frames: list[Frame] = []

    def read(client: socket.socket) -> None:
        client.sendall(b"".join(protocol.data_to_send()))
        data = client.recv(16_384)
        assert data, "it was cut off"
        protocol.receive_data(data)
        frames.extend(each for each in protocol.events_received() if isinstance(each, Frame))

    with socket.create_connection((url.host, url.port), TIMEOUT_S) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        protocol.send_request(protocol.connect())
        while protocol.state is State.CONNECTING:
            read(client)
        for message in (
            {"type": "session.config", **SAME, "speed": 0.25},
            {"type": "input.text", "text": LONG_TEXT},
            {"type": "input.done"},
        ):
            protocol.send_text(json.dumps(message).encode())
        pauses = 0
        while not frames or b"session.done" not in bytes(frames[-1].data):
            read(client)
            if frames:  # audio.start has come: from here on a reader that is slow.
                time.sleep(PAUSE_S)
                pauses += 1
    at = next(n for n, frame in enumerate(frames) if frame.opcode is Opcode.BINARY)
    audio = list(itertools.takewhile(lambda frame: frame.opcode is not Opcode.TEXT, frames[at:]))
    assert [frame.fin for frame in audio] == [False] * (len(audio) - 1) + [True]
    done = json.loads(frames[at + len(audio)].data)
    assert (done["error"], done["total_bytes"]) == (False, sum(len(f.data) for f in audio))
    # Else it would show nothing: it was read for longer than a reader may take nothing.
    assert pauses * PAUSE_S > 2 * STALL_S


def test_a_socket_that_stalls_is_cut_off(small_server: SpeechServer) -> None:
    stalled = metric(small_server, "speech_requests_total", outcome="stalled")
    with open_socket(small_server, receive_buffer=4_096) as client:
        # The client keeps one message that nobody has received, and takes no more.
        say(client, LONG_TEXT)
        wait_for(
            lambda: metric(small_server, "speech_requests_total", outcome="stalled") > stalled,
            "the stalled socket is cut off",
        )
        wait_until_free(small_server)
        with pytest.raises(ConnectionClosed):
            receive(client, "session.done")


@both_forms
def test_a_socket_that_breaks_within_an_utterance_frees_its_place(server: SpeechServer) -> None:
    with open_socket(server) as client:
        say(client, LONG_TEXT)
        receive(client, "audio")
        assert health(server)["active_streams"] == 1
        # A reset, without WebSocket's or TCP's farewell.
        linger = struct.pack("ii", 1, 0)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.socket.shutdown(socket.SHUT_RD)
        client.socket.close()
        wait_until_free(server)
    assert post(server, TEXT).status_code == 200


def test_three_times_more_streams_than_fit_are_spoken_or_told_to_come_back(
    small_server: SpeechServer,
) -> None:
    wait_until_free(small_server)
    texts = [f"stream number {'abcdefghijkl'[n]} " + "and so on " * 4 for n in range(12)]
    with ThreadPoolExecutor(len(texts)) as pool:
        answers = list(pool.map(lambda text: post(small_server, text), texts))
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {200, 429}
    assert codes.count(200) >= 4
    for answer in answers:
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "overloaded"
        else:
            assert len(answer.content) > 4_096
    wait_until_free(small_server)
    assert metric(small_server, "speech_requests_total", outcome="overloaded") == codes.count(429)


def test_a_socket_is_told_of_overload_and_goes_on(small_server: SpeechServer) -> None:
    def places_taken() -> int:
        now = health(small_server)
        return now["active_streams"] + now["queued"]

    wait_until_free(small_server)
    with ThreadPoolExecutor(4) as pool, open_socket(small_server) as client:
        fillers = [pool.submit(post, small_server, LONG_TEXT) for _ in range(4)]
        wait_for(lambda: places_taken() == 4, "every place is taken")
        say(client, TEXT)
        messages = receive(client, "session.done")
        assert types_of(messages) == ["audio.start", "error", "audio.done", "session.done"]
        assert messages[1]["code"] == "overloaded"
        assert messages[1]["retry_after_s"] >= 1
        assert [filler.result().status_code for filler in fillers].count(200) >= 2
        wait_until_free(small_server)
        say(client, TEXT)
        assert audio_of(receive(client, "session.done"))


@both_forms
def test_clients_of_one_moment_get_their_own_audio(server: SpeechServer) -> None:
    texts = ["the first of them", "and quite another", "a third text", "the last one"]
    alone = [post(server, text, temperature=0).content for text in texts]
    assert len(set(alone)) == len(texts)
    with ThreadPoolExecutor(len(texts)) as pool:
        together = list(pool.map(lambda text: post(server, text, temperature=0).content, texts))
    assert all(map(same, together, alone))
    assert not any(same(alone[0], other) for other in together[1:])


@both_forms
def test_requests_of_one_id_are_two_requests(server: SpeechServer) -> None:
    texts = ["the first of them", "and quite another"]
    alone = [post(server, text).content for text in texts]

    def speak(text: str) -> httpx.Response:
        return httpx.post(
            f"{server.url}/v1/audio/speech",
            json={"input": text, **SAME},
            headers={"x-request-id": "twice"},
            timeout=TIMEOUT_S,
        )

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(speak, texts))
    assert all(same(answer.content, pcm) for answer, pcm in zip(answers, alone, strict=True))
    assert {answer.headers["x-request-id"] for answer in answers} == {"twice"}


# ---- the engine ---------------------------------------------------------------------------------


@in_both_forms
def test_an_engine_that_dies_is_an_error_to_clients_and_exit_5_to_the_starter(
    endless_voice: Path, mark: str, form: tuple[str, ...]
) -> None:
    with started(endless_voice, mark, "-c", DYING, *form) as process:
        url = ready_url(process)
        with httpx.stream(
            "POST",
            f"{url}/v1/audio/speech",
            json={"input": LONG_TEXT, "stream_format": "sse", "seed": 1},
            timeout=TIMEOUT_S,
        ) as answer:
            text = "".join(answer.iter_text())
        assert answer.status_code == 200
        last = json.loads(text.strip().split("data: ")[-1])
        assert last["type"] == "speech.audio.error"
        assert last["error"]["code"] == "engine_error"
        assert process.wait(TIMEOUT_S) == 5
        assert process.stderr is not None
        assert b"the engine has died" in process.stderr.read()
    assert processes_with(MARK, mark) == []


# ---- the process --------------------------------------------------------------------------------


@in_both_forms
def test_sigterm_finishes_what_was_begun_and_takes_nothing_new(
    endless_voice: Path, mark: str, form: tuple[str, ...]
) -> None:
    with started(endless_voice, mark, "-m", "server", *form) as process:
        url = ready_url(process)
        with (
            httpx.Client(base_url=url, timeout=TIMEOUT_S) as api,
            api.stream(
                "POST",
                "/v1/audio/speech",
                json={"input": LONG_TEXT, "response_format": "pcm", "seed": 1},
            ) as answer,
        ):
            chunks = answer.iter_raw()
            audio = next(chunks)
            # As who ends a service does: to each of its processes.
            for each in processes_with(MARK, mark):
                each.send_signal(signal.SIGTERM)
            wait_for(
                lambda: (
                    httpx.get(f"{url}/ready", timeout=TIMEOUT_S, verify=False).status_code == 503
                ),
                "it drains",
            )
            refused = httpx.post(f"{url}/v1/audio/speech", json={"input": TEXT}, timeout=TIMEOUT_S)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
            audio += b"".join(chunks)
        assert len(audio) > 10 * 4_096
        assert process.wait(TIMEOUT_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""  # The ready line was all.
    assert processes_with(MARK, mark) == []


def test_sigterm_while_loading_ends_at_once(endless_voice: Path, mark: str) -> None:
    with started(endless_voice, mark, "-m", "server") as process:
        # The port is taken before the model loads.
        wait_for(lambda: bool(processes_with(MARK, mark)), "it has started")
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)
    assert processes_with(MARK, mark) == []


def test_a_port_in_use_is_exit_4_before_anything_loads(
    server: SpeechServer, endless_voice: Path, mark: str
) -> None:
    port = str(httpx.URL(server.url).port)
    with started(endless_voice, mark, "-m", "server", port=port) as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 4
    assert output == b""
    assert f"port {port}: Address already in use; another process has it" in errors.decode()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(
                (folder / "model.safetensors").read_bytes()[:-1_000]
            ),
            "model.safetensors",
        ),
        (lambda folder: (folder / "layout.json").write_text("{"), "layout.json"),
    ],
    ids=["missing", "cut short", "layout"],
)
def test_a_damaged_checkpoint_is_exit_3_with_the_files_name(
    tmp_path: Path, endless_voice: Path, mark: str, damage: Any, words: str
) -> None:
    for file in endless_voice.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    damage(tmp_path)
    with started(tmp_path, mark, "-m", "server") as process:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    assert words in errors.decode().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "nothing"], "nothing"),
        (["--model", "no/such/folder"], "no/such/folder"),
        (["--max-streams", "0"], "max_streams"),
        (["--limit", "stall=1"], "stall"),
        (["--limit", "stall_s=soon"], "soon"),
        (["--limit", "stall_s=inf"], "finite"),
        (["--port", "70000"], "70000"),
        (["--allow-origin", "https://example.org/"], "https://example.org/"),
        (["--allow-origin", "example.org"], "example.org"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_setting_is_exit_2_and_named(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "server", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr.splitlines()[-1]
    assert done.stdout == ""


def test_the_configuration_can_be_had_without_serving(
    server: SpeechServer, endless_voice: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "server", "--print-config", "--model", str(endless_voice)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    printed = json.loads(done.stdout)
    shown = httpx.get(f"{server.url}/config", timeout=TIMEOUT_S).json()
    assert printed["config_sha256"] == shown["config_sha256"]
    assert printed.items() <= shown.items()


@in_both_forms
def test_the_server_and_its_children_end_when_their_starter_is_killed(
    endless_voice: Path, mark: str, form: tuple[str, ...]
) -> None:
    script = (
        "import sys, time\n"
        "from resources.speech_server import SpeechServer\n"
        "with SpeechServer.running('embedded', arguments=sys.argv[1:]) as server:\n"
        "    print(server.url, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with started(endless_voice, mark, "-c", script, *form, options=()) as starter:
        assert starter.stdout is not None
        url = starter.stdout.readline().decode().strip()
        with httpx.stream(
            "POST",
            f"{url}/v1/audio/speech",
            json={"input": LONG_TEXT, "seed": 1},
            timeout=TIMEOUT_S,
        ) as answer:
            next(answer.iter_raw())
            starter.kill()
            starter.wait()
            wait_for(lambda: processes_with(MARK, mark) == [], "no process is left")


# ---- helpers ------------------------------------------------------------------------------------


@pytest.fixture
def mark() -> str:
    """Value of the environment variable by which this test's processes are known."""
    return uuid.uuid4().hex


@contextlib.contextmanager
def started(
    voice: Path, mark: str, *python: str, port: str = "0", options: tuple[str, ...] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """`python ... --preset embedded --model voice`, its pipes ours; ended when the test leaves."""
    if options is None:
        options = ("--preset", "embedded", "--port", port)
    process = subprocess.Popen(
        [sys.executable, *python, *options, "--model", str(voice)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_with(mark),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def environment_with(mark: str) -> dict[str, str]:
    """Our environment, by which the test's processes can be found."""
    return {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}


def ready_url(process: subprocess.Popen[bytes]) -> str:
    """Wait for the ready line; the url in it."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read().decode()
    event = json.loads(line)
    assert (event["event"], event["pid"]) == ("ready", process.pid)
    return event["url"]


def read_all(client: socket.socket) -> bytes:
    """All that still comes until the connection ends, also by a reset."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(65_536):
            received += data
    return received
