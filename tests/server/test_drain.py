"""SIGTERM under load: what is spoken and what waits is finished, or told that it is not."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from lineage_run import wait_for
from speech_servers import (
    LONG_TEXT,
    TIMEOUT_S,
    audio_of,
    health,
    load_of,
    logged,
    open_socket,
    post,
    receive,
    say,
)
from websockets.exceptions import ConnectionClosed

if TYPE_CHECKING:
    from pathlib import Path


TEXT = "hello there"
PLACES = ("--max-streams", "2", "--max-queue", "8", "--log-format", "json")
# However slow the machine, nobody's wait ends before a place is free.
PATIENT = ("--limit", "queue_s=100", "--drain-s", "100")


def request_lines(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return [line for line in lines if line["logger"] == "server.requests"]


def test_all_that_was_taken_is_finished_and_nothing_new_is_taken(
    endless_voice: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with (
        logged(endless_voice, log, *PLACES, *PATIENT) as server,
        ThreadPoolExecutor(8) as pool,
        open_socket(server) as call,
    ):
        first = [pool.submit(post, server, LONG_TEXT) for _ in range(2)]
        wait_for(lambda: load_of(server) == (2, 0), "both places are taken")
        queued = [pool.submit(post, server, TEXT) for _ in range(3)]
        say(call, TEXT)
        say(call, "and again")
        wait_for(lambda: load_of(server) == (2, 4), "four wait")
        server.process.send_signal(signal.SIGTERM)
        wait_for(
            lambda: (
                httpx.get(f"{server.url}/ready", timeout=TIMEOUT_S, verify=False).status_code == 503
            ),
            "it drains",
        )
        refused = post(server, TEXT)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert health(server)["status"] in ("ok", "degraded")
        for answer in (*first, *queued):
            assert answer.result().status_code == 200
            assert len(answer.result().content) > 4_096
        for _ in range(2):  # Both utterances were complete.
            assert len(audio_of(receive(call, "session.done"))) > 4_096
        with pytest.raises(ConnectionClosed):
            call.recv(timeout=TIMEOUT_S)
        assert call.close_code == 1012
        assert server.process.wait(TIMEOUT_S) == 0
    lines = request_lines(log)
    assert [line["status"] for line in lines].count(200) == 7
    assert [line["status"] for line in lines].count(503) == 1
    assert len(lines) == 8


def test_what_takes_too_long_is_cut_off_and_told(endless_voice: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        logged(endless_voice, log, *PLACES, "--drain-s", "0") as server,
        ThreadPoolExecutor(8) as pool,
    ):
        # Minutes of speech: it lasts until it is cut off, however slow this test's machine is.
        whole = [pool.submit(post, server, LONG_TEXT * 20, stream=False) for _ in range(2)]
        wait_for(lambda: load_of(server) == (2, 0), "both places are taken")
        queued = [pool.submit(post, server, TEXT) for _ in range(3)]
        wait_for(lambda: load_of(server) == (2, 3), "three wait")
        server.process.send_signal(signal.SIGTERM)
        for answer in whole:
            assert answer.result().status_code == 503
            assert answer.result().json()["error"]["code"] == "cancelled"
        for answer in queued:
            assert answer.result().status_code == 503
            assert answer.result().json()["error"]["code"] == "not_ready"
            assert answer.result().headers["retry-after"] == "1"
        assert server.process.wait(TIMEOUT_S) == 0
    assert sorted(line["status"] for line in request_lines(log)) == [503] * 5
