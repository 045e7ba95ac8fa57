"""A server for as long as it is needed: ready when given, gone when left, its end explained."""

from __future__ import annotations

import collections
import os
import signal
import threading
import uuid
from pathlib import Path

import httpx
import psutil
import pytest
from lineage_run import processes_with, wait_for
from small_voice import write_small_voice
from speech_servers import TIMEOUT_S, post, running

from resources.errors import WorkError
from resources.speech_server import SpeechServer
from resources.work import pump

MARK = "SPEECH_TEST_MARK"


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_voice(tmp_path_factory.mktemp("voice"), live_codes=1_500)


@pytest.fixture
def marked() -> dict[str, str]:
    """An environment by which a test's processes are known."""
    return {MARK: uuid.uuid4().hex}


def none_left(marked: dict[str, str]) -> bool:
    return processes_with(MARK, marked[MARK]) == []


def test_a_server_is_ready_when_it_is_given_and_gone_when_it_is_left(
    voice: Path, marked: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    with running(voice, environment=marked) as server:
        assert httpx.get(f"{server.url}/ready", timeout=TIMEOUT_S).json() == {"ready": True}
        assert server.preset == "embedded-bf16"
        assert (
            httpx.get(f"{server.url}/config", timeout=TIMEOUT_S).json()["config_sha256"]
            == server.config_sha256
        )
        assert post(server, "hello").status_code == 200
    assert server.process.returncode == 0
    assert none_left(marked)
    # Its log is seen by whoever started it, and the last lines are kept.
    assert server.tail[-1] in capfd.readouterr().err


def test_the_line_of_each_request_is_dropped_where_it_is_not_wanted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as output:
        os.write(write, b'INFO ready\nINFO {"request": "a"}\nINFO {"requ')
        os.write(write, b'est": "b"}\nERROR it died\n')
        os.close(write)
        tail = collections.deque[str](maxlen=30)
        pump(output, tail, '{"request": ')
    assert list(tail) == ["INFO ready", "ERROR it died"]
    assert capfd.readouterr().err == "INFO ready\nERROR it died\n"


def test_a_server_ends_also_when_its_user_fails(voice: Path, marked: dict[str, str]) -> None:
    with pytest.raises(ZeroDivisionError), running(voice, environment=marked):
        raise ZeroDivisionError
    assert none_left(marked)


def test_a_server_that_dies_while_it_is_used_is_told_with_what_it_said_last(
    voice: Path, marked: dict[str, str]
) -> None:
    def kill_and_ask() -> None:
        with running(voice, environment=marked) as server:
            server.process.send_signal(signal.SIGKILL)
            wait_for(lambda: server.process.poll() is not None, "the server is dead")
            httpx.get(f"{server.url}/ready", timeout=TIMEOUT_S)

    with pytest.raises(WorkError, match="killed by signal 9; it logged last") as raised:
        kill_and_ask()
    assert raised.value.retryable
    assert isinstance(raised.value.__cause__, httpx.ConnectError)
    assert none_left(marked)


def test_a_server_that_cannot_start_says_why(tmp_path: Path, marked: dict[str, str]) -> None:
    with (
        pytest.raises(WorkError, match="ended with exit code 3; it logged last") as raised,
        running(tmp_path, environment=marked),
    ):
        pytest.fail("an empty folder was served")
    assert str(tmp_path) in str(raised.value)
    assert not raised.value.retryable
    assert none_left(marked)


def test_a_server_that_is_not_ready_in_time_is_ended(voice: Path, marked: dict[str, str]) -> None:
    arguments = ("--model", str(voice))
    with (
        pytest.raises(WorkError, match="not ready within 0 s") as raised,
        SpeechServer.running("embedded", arguments=arguments, environment=marked, ready_within_s=0),
    ):
        pytest.fail("it was given")
    assert raised.value.retryable
    assert none_left(marked)


def test_a_server_is_ended_where_there_is_no_thread_to_hear_it(
    voice: Path, marked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("no more threads")

    before = psutil.Process().children()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with (
        pytest.raises(RuntimeError, match="no more threads"),
        running(voice, environment=marked),
    ):
        pytest.fail("it was given")
    assert psutil.Process().children() == before
    assert none_left(marked)
