"""The log: one line for each speech request, whatever its end, with nothing that anybody said."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from lineage_run import wait_for
from prometheus_client.parser import text_string_to_metric_families
from speech_servers import LONG_TEXT, SOCKET, TIMEOUT_S
from starlette.websockets import WebSocket
from websockets.sync.client import connect

from server.engine import Sampling
from server.limits import Limits
from server.metrics import Metrics
from server.request_log import RequestLine, configure_log
from server.serving import Model, Serving
from server.speech_options import SpeechOptions
from server.voices import Voices
from server.websocket import SpeechSession

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from conftest import Guarded

    from server.speech import SpeechRequest, SpeechService, Utterance

SECRET = "xylophone"  # In every text, voice, field and token that the tests send.
TEXT = f"the {SECRET} rests"


def lines(guarded: Guarded, label: str) -> list[dict[str, Any]]:
    """Lines of the requests whose id begins with `label`."""
    found = [json.loads(line) for line in guarded.log.read_text("utf-8").splitlines()]
    return [line for line in found if str(line.get("id", "")).startswith(label)]


def line_of(guarded: Guarded, label: str, count: int = 1) -> dict[str, Any]:
    """The last of exactly `count` lines of a request, which come after its answer's last byte."""
    wait_for(lambda: len(lines(guarded, label)) >= count, f"{label} is logged")
    found = lines(guarded, label)
    assert len(found) == count, found
    return found[-1]


def post(guarded: Guarded, label: str, **fields: Any) -> httpx.Response:
    return httpx.post(
        f"{guarded.url}/v1/audio/speech",
        json={"input": TEXT, "seed": 1, "response_format": "wav", **fields},
        headers={**guarded.headers, "x-request-id": label},
        timeout=TIMEOUT_S,
    )


def counted_as_cancelled(guarded: Guarded) -> float:
    text = httpx.get(
        f"{guarded.url}/metrics", headers=guarded.headers, timeout=TIMEOUT_S, verify=False
    ).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "speech_requests_total" and sample.labels["outcome"] == "cancelled"
    )


def test_speech_is_one_line_with_its_times_and_sizes(guarded: Guarded) -> None:
    audio = post(guarded, "log-spoken").content
    line = line_of(guarded, "log-spoken")
    expected = {
        "level": "INFO",
        "logger": "server.requests",
        "route": "/v1/audio/speech",
        "transport": "http",
        "format": "wav",
        "voice": "heart",
        "characters": len(TEXT),
        "status": 200,
        "samples": (len(audio) - 44) // 2,
        "bytes": len(audio),
    }
    assert line.items() >= expected.items()
    assert line["outcome"] in ("stop", "length", "silence", "loop")
    assert 0 < line["ttfa_ms"] <= line["ttfs_ms"] <= line["total_ms"]
    assert "code" not in line


def test_a_refusal_is_one_line_with_its_code(guarded: Guarded) -> None:
    for label, fields, status, code in (
        ("log-voice", {"voice": SECRET}, 400, "voice_not_found"),
        ("log-field", {SECRET: 1}, 400, "unknown_parameter"),
        ("log-type", {"input": [TEXT]}, 400, "invalid_value"),
        ("log-model", {"model": SECRET}, 404, "model_not_found"),
    ):
        assert post(guarded, label, **fields).status_code == status
        line = line_of(guarded, label)
        found = {name: line[name] for name in ("status", "code", "outcome", "samples")}
        assert found == {"status": status, "code": code, "outcome": "refused", "samples": 0}
    answer = httpx.post(
        f"{guarded.url}/v1/audio/speech",
        headers={"authorization": f"Bearer {SECRET}", "x-request-id": "log-token"},
    )
    assert answer.status_code == 401
    assert line_of(guarded, "log-token")["code"] == "invalid_api_key"


def test_a_client_that_leaves_is_one_line(guarded: Guarded) -> None:
    with httpx.stream(
        "POST",
        f"{guarded.url}/v1/audio/speech",
        json={"input": LONG_TEXT, "seed": 1, "stream_format": "sse"},
        headers={**guarded.headers, "x-request-id": "log-left"},
        timeout=TIMEOUT_S,
    ) as answer:
        next(answer.iter_raw())
    line = line_of(guarded, "log-left")
    assert (line["transport"], line["outcome"], line["status"]) == ("sse", "cancelled", 200)
    assert line["bytes"] > 0


def test_a_client_that_leaves_within_its_body_is_one_line_and_counted(guarded: Guarded) -> None:
    before = counted_as_cancelled(guarded)
    url = httpx.URL(guarded.url)
    with socket.create_connection((url.host, url.port), TIMEOUT_S) as client:
        client.sendall(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nX-Request-Id: log-body\r\n"
            + f"Authorization: Bearer {guarded.token}\r\nContent-Length: 9\r\n\r\n{{".encode()
        )
    line = line_of(guarded, "log-body")
    assert (line["status"], line["outcome"], line["samples"]) == (499, "cancelled", 0)
    assert counted_as_cancelled(guarded) == before + 1


def test_a_client_that_leaves_in_the_queue_is_one_line_and_counted(guarded: Guarded) -> None:
    def ask(client: httpx.Client, label: str) -> httpx.Response:
        # Minutes of speech, which last until the client goes.
        return client.send(
            client.build_request(
                "POST",
                f"{guarded.url}/v1/audio/speech",
                json={"input": LONG_TEXT * 20, "seed": 1},
                headers={**guarded.headers, "x-request-id": label},
            ),
            stream=True,
        )

    def queued() -> int:
        return httpx.get(f"{guarded.url}/health", timeout=TIMEOUT_S, verify=False).json()["queued"]

    before = counted_as_cancelled(guarded)
    with httpx.Client(timeout=TIMEOUT_S) as first, httpx.Client(timeout=TIMEOUT_S) as second:
        speaking = [ask(first, "log-first"), ask(second, "log-second")]
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{guarded.url}/v1/audio/speech",
                json={"input": TEXT},
                headers={**guarded.headers, "x-request-id": "log-queue"},
                timeout=httpx.Timeout(TIMEOUT_S, read=1),
            )
        line = line_of(guarded, "log-queue")
        assert queued() == 0
        for answer in speaking:
            answer.close()
    assert (line["status"], line["outcome"], line["characters"]) == (499, "cancelled", len(TEXT))
    assert line["total_ms"] >= 900
    for label in ("log-first", "log-second"):
        line_of(guarded, label)
    assert counted_as_cancelled(guarded) == before + 3


class Broken:
    """A service that fails before an utterance begins."""

    async def speak(self, request: SpeechRequest) -> Utterance:
        raise LookupError(request.text)


def test_what_fails_before_it_begins_is_one_line_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    serving = Serving(Limits(), Metrics())
    service = cast("SpeechService", Broken())
    serving.loaded(Model(service, ("it",), Voices(("heart",)), Sampling(), {}))
    with caplog.at_level(logging.INFO, "server.requests"), pytest.raises(LookupError):
        asyncio.run(serving.begin(TEXT, SpeechOptions(), "http", "log-broken"))
    [line] = caplog.messages
    assert line.startswith("id=log-broken route=/v1/audio/speech transport=http status=500 ")
    assert "outcome=error" in line
    assert line.endswith("error=LookupError")
    assert 'speech_requests_total{outcome="error",transport="http"} 1.0' in (
        serving.metrics.render().decode()
    )


def test_a_socket_has_a_line_for_each_sentence(guarded: Guarded) -> None:
    url = guarded.url.replace("http", "ws") + SOCKET
    headers = {**guarded.headers, "x-request-id": "log-call"}
    received = 0
    with connect(url, additional_headers=headers, open_timeout=TIMEOUT_S) as client:
        for message in (
            {"type": "session.config", "split_granularity": "sentence", "seed": 1},
            {"type": "input.text", "text": f"{TEXT}. and again {TEXT}. "},
            {"type": "input.done"},
        ):
            client.send(json.dumps(message))
        kind = ""
        while kind != "session.done":
            frame = client.recv(timeout=TIMEOUT_S)
            if isinstance(frame, bytes):
                received += len(frame)
            else:
                kind = json.loads(frame)["type"]
        client.send(json.dumps({"type": SECRET}))
        assert SECRET in str(client.recv(timeout=TIMEOUT_S))
    line_of(guarded, "log-call", 3)
    spoken = [line for line in lines(guarded, "log-call") if line["status"] == 200]
    assert [line["id"] for line in spoken] == ["log-call-0-0", "log-call-0-1"]
    assert {line["route"] for line in spoken} == {SOCKET}
    assert sum(line["bytes"] for line in spoken) == received


def test_what_a_socket_drops_before_it_begins_is_one_line(guarded: Guarded) -> None:
    before = counted_as_cancelled(guarded)
    url = guarded.url.replace("http", "ws") + SOCKET
    config = {"type": "session.config", "stream_audio": True, "seed": 1}
    for label, last in (("log-cancelled", {"type": "session.cancel"}), ("log-gone", None)):
        headers = {**guarded.headers, "x-request-id": label}
        with connect(url, additional_headers=headers, open_timeout=TIMEOUT_S) as client:
            for message in (
                config,
                {"type": "input.text", "text": LONG_TEXT},
                {"type": "input.done"},
                {"type": "input.text", "text": TEXT},
                {"type": "input.done"},
                {"type": "input.text", "text": "with no end"},
            ):
                client.send(json.dumps(message))
            while not isinstance(client.recv(timeout=TIMEOUT_S), bytes):
                pass
            if last is not None:
                client.send(json.dumps(last))
        line_of(guarded, label, 3)
        found = {line["id"]: (line["outcome"], line["status"]) for line in lines(guarded, label)}
        assert found == {
            f"{label}-0-0": ("cancelled", 200),
            f"{label}-1": ("cancelled", 499),
            f"{label}-2": ("cancelled", 499),
        }
        sizes = {line["id"]: line["characters"] for line in lines(guarded, label)}
        assert sizes[f"{label}-1"] == len(TEXT)
    assert counted_as_cancelled(guarded) == before + 6


class Waiting:
    """A service that has no place for anybody."""

    async def speak(self, request: SpeechRequest) -> Utterance:
        await asyncio.Event().wait()
        raise AssertionError(request)


@pytest.mark.parametrize("turns", range(8))
def test_a_sentence_is_one_line_whenever_its_cancel_comes(
    caplog: pytest.LogCaptureFixture, turns: int
) -> None:
    """`turns` of the event loop after its text."""
    serving = Serving(Limits(), Metrics())
    service = cast("SpeechService", Waiting())
    serving.loaded(Model(service, ("it",), Voices(("heart",)), Sampling(), {}))
    said = asyncio.Event()
    come = [
        {"type": "websocket.connect"},
        {"type": "session.config"},
        {"type": "input.text", "text": TEXT},
        {"type": "input.done"},
        {"type": "session.cancel"},
    ]

    async def receive() -> dict[str, Any]:
        if not come:
            await said.wait()
            return {"type": "websocket.disconnect", "code": 1000}
        message = come.pop(0)
        if message["type"] == "websocket.connect":
            return message
        if message["type"] == "session.cancel":
            for _ in range(turns):
                await asyncio.sleep(0)
        return {"type": "websocket.receive", "text": json.dumps(message)}

    async def send(message: MutableMapping[str, Any]) -> None:
        if "session.done" in message.get("text", ""):
            said.set()

    async def run() -> None:
        scope = {"type": "websocket", "headers": [(b"x-request-id", b"log-when")], "state": {}}
        async with asyncio.timeout(TIMEOUT_S):
            await SpeechSession(serving, WebSocket(scope, receive, send)).run()

    with caplog.at_level(logging.INFO, "server.requests"):
        asyncio.run(run())
    [line] = [text for text in caplog.messages if "id=log-when" in text]
    assert f"status=499 outcome=cancelled characters={len(TEXT)} " in line
    assert 'speech_requests_total{outcome="cancelled",transport="websocket"} 1.0' in (
        serving.metrics.render().decode()
    )


def test_the_log_has_nothing_that_anybody_said(guarded: Guarded) -> None:
    post(guarded, "log-last")
    line_of(guarded, "log-last")
    log = guarded.log.read_text("utf-8")
    for secret in (SECRET, guarded.token, guarded.other_token, "quick brown fox"):
        assert secret not in log
    # Every line is an object, libraries' included.
    assert all(json.loads(line)["level"] for line in log.splitlines())


def test_a_line_for_people_is_logfmt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "server.requests"):
        RequestLine("r-1", "sse", 500, "error", ttfa_ms=1.5, error='it "broke"').write()
    assert caplog.messages == [
        "id=r-1 route=/v1/audio/speech transport=sse status=500 outcome=error ttfa_ms=1.5 "
        'samples=0 bytes=0 error="it \\"broke\\""'
    ]


def test_an_exception_stays_on_one_json_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(logging, "root", root := logging.RootLogger(logging.WARNING))
    configure_log("json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        root.exception("it failed:\n%s", "so")
    line = json.loads(stream.getvalue().rstrip("\n"))
    assert (line["level"], line["message"]) == ("ERROR", "it failed:\nso")
    assert "ValueError: two\nlines" in line["exception"]
    assert stream.getvalue().count("\n") == 1
