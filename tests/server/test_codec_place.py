"""A real server whose codec runs on a thread or in a process of its own: speech, deaths, ends."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from lineage_run import processes_with, wait_for
from speech_servers import (
    LAST_CHUNK,
    LONG_TEXT,
    TIMEOUT_S,
    logged,
    post,
    raw_request,
    read_all_of_chunked,
    same,
)

from server.codec_process import SILENT_S
from server.lifecycle import EXIT_DRAINED, EXIT_ENGINE

if TYPE_CHECKING:
    from collections.abc import Generator

    from resources.speech_server import SpeechServer

ROOT = Path(__file__).parents[2]
TEXT = "hello there"
MARK = "SPEECH_TEST_MARK"


@contextlib.contextmanager
def serving(voice: Path, folder: Path, form: str, mark: str = "") -> Generator[SpeechServer]:
    """A server whose preset says where the codec runs, as the embedded one in all else."""
    table = folder / "presets.toml"
    table.write_text(
        f"""
        [presets.embedded-bf16]
        aliases = ["embedded"]
        model = "{voice}"
        codec = "{ROOT}/server/embedded/codec"
        cpu_dtype = "auto"
        codec_place = "{form}"
        """
    )
    environment = {"SPEECH_PRESETS": str(table), MARK: mark}
    with logged(voice, folder / "log", environment=environment) as server:
        yield server


def codec_process(server: SpeechServer) -> psutil.Process:
    """The process of the server's codec."""
    (found,) = [
        child
        for child in psutil.Process(server.process.pid).children()
        if "server.codec_child" in child.cmdline()
    ]
    return found


@pytest.mark.parametrize("form", ["thread", "process"])
def test_speech_is_that_of_the_engines_thread_wherever_the_codec_runs(
    one_process: SpeechServer, endless_voice: Path, tmp_path: Path, form: str
) -> None:
    mark = uuid.uuid4().hex
    with serving(endless_voice, tmp_path, form, mark) as server:
        settings = httpx.get(f"{server.url}/config", timeout=TIMEOUT_S).json()["settings"]
        assert settings["codec_place"] == form
        for seed in (1, 2):
            whole, expected = (
                post(each, TEXT, stream=False, seed=seed) for each in (server, one_process)
            )
            assert (whole.status_code, expected.status_code) == (200, 200)
            assert same(whole.content, expected.content)
        streamed = post(server, TEXT)
        assert same(streamed.content, post(one_process, TEXT).content)
        server.process.terminate()
        assert server.process.wait(TIMEOUT_S) == EXIT_DRAINED
    assert processes_with(MARK, mark) == []


def test_the_death_of_the_codecs_process_ends_requests_and_the_server(
    endless_voice: Path, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    with serving(endless_voice, tmp_path, "process", mark) as server:
        with raw_request(server, LONG_TEXT) as client:
            assert client.recv(1)
            codec_process(server).kill()
            rest = read_all_of_chunked(client)
            assert not rest.endswith(LAST_CHUNK)  # It does not look whole.
        assert server.process.wait(TIMEOUT_S) == EXIT_ENGINE
        wait_for(lambda: processes_with(MARK, mark) == [], "no process is left")
    assert "ended with exit code -9" in (tmp_path / "log").read_text("utf-8")


def test_the_death_of_the_codecs_process_ends_a_server_that_nobody_uses(
    endless_voice: Path, tmp_path: Path
) -> None:
    with serving(endless_voice, tmp_path, "process") as server:
        post(server, TEXT)
        codec_process(server).kill()
        assert server.process.wait(TIMEOUT_S) == EXIT_ENGINE


def test_a_codec_process_that_hangs_ends_requests_and_the_server(
    endless_voice: Path, tmp_path: Path
) -> None:
    with serving(endless_voice, tmp_path, "process") as server:
        codec = codec_process(server)
        with raw_request(server, LONG_TEXT) as client:
            assert client.recv(1)
            codec.suspend()
            rest = read_all_of_chunked(client)
            assert not rest.endswith(LAST_CHUNK)
        assert server.process.wait(TIMEOUT_S) == EXIT_ENGINE
        wait_for(lambda: not codec.is_running(), "the codec's process has ended")
    assert f"has not answered for {SILENT_S} s" in (tmp_path / "log").read_text("utf-8")


def test_a_server_that_is_killed_while_it_speaks_leaves_no_codec(
    endless_voice: Path, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    with serving(endless_voice, tmp_path, "process", mark) as server:
        assert codec_process(server) in processes_with(MARK, mark)
        with raw_request(server, LONG_TEXT) as client:
            assert client.recv(1)
            server.process.kill()
            server.process.wait()
            assert not read_all_of_chunked(client).endswith(LAST_CHUNK)
        wait_for(lambda: processes_with(MARK, mark) == [], "no process is left")


def test_a_server_that_is_killed_while_it_is_idle_leaves_no_codec(
    endless_voice: Path, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    with serving(endless_voice, tmp_path, "process", mark) as server:
        assert codec_process(server) in processes_with(MARK, mark)
        server.process.kill()
        server.process.wait()
        wait_for(lambda: processes_with(MARK, mark) == [], "no process is left")
