"""Answers that are collected before they are sent: bounded in length, sent in slices, told whole.

The service is one that gives what a test says; the rest is the server's own.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from server.app import create_app
from server.engine import Sampling
from server.errors import RequestError
from server.limits import Limits
from server.metrics import Metrics
from server.response import SLICE_BYTES
from server.serving import Model, Serving
from server.socket_connection import MORE
from server.speech import Health, SpeechRequest, UtteranceReport
from server.utterance import ServedUtterance
from server.voices import Voices

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = bytes(48_000)
REPORT = UtteranceReport(
    *("stop", 12, 24_000, 0, 0, 9, 84), ttfa_ms=1.0, ttfs_ms=2.0, total_ms=3.0, rtf=0.1
)
FAILED = replace(REPORT, finish_reason="error", error="pulled by the test")


@dataclass
class Given:
    """A service whose every utterance is these chunks and this report; without one it goes on."""

    chunks: Sequence[bytes]
    report: UtteranceReport | None = REPORT

    def __post_init__(self) -> None:
        self.asked: list[SpeechRequest] = []
        self.cancelled: list[str] = []

    async def speak(self, request: SpeechRequest) -> ServedUtterance:
        self.asked.append(request)
        utterance = ServedUtterance(request, self.cancelled.append)
        for chunk in self.chunks:
            utterance.put(chunk)
        if self.report is not None:
            utterance.end(self.report)
        return utterance

    def health(self) -> Health:
        return Health("ok", 0, 0)

    def abandon(self) -> None: ...

    def close(self) -> None: ...


def serving(given: Given, **limits: float) -> Serving:
    made = Serving(replace(Limits(), **limits), Metrics())
    made.loaded(Model(given, ("small",), Voices(("heart",)), Sampling(), {}))
    return made


def ended(made: Serving, transport: str, outcome: str) -> float:
    name = "speech_requests_total"
    value = made.metrics.registry.get_sample_value(
        name, {"transport": transport, "outcome": outcome}
    )
    assert value is not None
    return value


def post(made: Serving, **fields: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(made))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            body = {"input": "hi", "response_format": "pcm", "stream": False, **fields}
            return await client.post("/v1/audio/speech", json=body)

    return asyncio.run(ask())


def spoken(made: Serving, text: str, **config: Any) -> list[dict[str, Any]]:
    """All that a socket says of one utterance, as the server hands it on."""
    said: list[dict[str, Any]] = []
    asked = [
        {"type": "session.config", "response_format": "pcm", **config},
        {"type": "input.text", "text": text},
        {"type": "input.done"},
        {"type": "session.close"},
    ]

    async def talk() -> None:
        heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        heard.put_nowait({"type": "websocket.connect"})
        for message in asked:
            heard.put_nowait({"type": "websocket.receive", "text": json.dumps(message)})

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        scope = {
            "type": "websocket",
            "path": "/v1/audio/speech/stream",
            "query_string": b"",
            "headers": [],
            "subprotocols": [],
            "state": {},
        }
        await create_app(made)(scope, heard.get, send)

    asyncio.run(talk())
    return said


def messages(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(each["text"]) for each in said if each.get("text")]


def test_an_answer_that_grows_too_long_to_collect_is_refused_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    for speed, chunks in ((1.0, 11), (0.25, 3), (4.0, 41)):
        given = Given([SECOND] * chunks, None)
        made = serving(given, whole_s=10.0)
        answer = post(made, speed=speed)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "string_above_max_length")
        assert "more than 10 s (limit whole_s)" in error["message"]
        assert set(given.cancelled) == {given.asked[0].id}
        assert ended(made, "http", "refused") == 1
        assert made.open_deliveries == 0
        (line,) = (r.getMessage() for r in caplog.records if r.name == "server.requests")
        caplog.clear()
        assert "status=400 outcome=refused code=string_above_max_length" in line


def test_an_answer_within_the_length_and_one_that_streams_are_not_refused() -> None:
    assert len(post(serving(Given([SECOND] * 8), whole_s=8.0)).content) == 8 * len(SECOND)
    streamed = post(serving(Given([SECOND] * 8), whole_s=2.0), stream=True)
    assert len(streamed.content) == 8 * len(SECOND)


def test_a_sentence_that_grows_too_long_to_collect_is_refused_as_an_answer_is() -> None:
    given = Given([SECOND] * 11, None)
    made = serving(given, whole_s=10.0)
    _, error, done, _ = messages(spoken(made, "hi"))
    assert (error["type"], error["code"]) == ("error", "string_above_max_length")
    assert (done["error"], done["finish_reason"], done["total_bytes"]) == (True, "error", 0)
    assert set(given.cancelled) == {given.asked[0].id}
    assert ended(made, "websocket", "refused") == 1


def test_a_text_to_collect_may_be_shorter_the_slower_it_is_spoken() -> None:
    limits = Limits(whole_characters=100)
    for speed, most in ((1.0, 100), (4.0, 100), (0.25, 25)):
        limits.check_input("a" * most, whole=True, speed=speed)
        limits.check_input("a" * 101, whole=False, speed=speed)
        with pytest.raises(RequestError, match=rf"more than {most}\b.*limit whole_characters"):
            limits.check_input("a" * (most + 1), whole=True, speed=speed)


def test_a_sentence_that_is_too_long_to_collect_is_counted_as_a_refusal() -> None:
    given = Given([SECOND])
    made = serving(given, whole_characters=10)
    assert messages(spoken(made, "a" * 11))[1]["code"] == "string_above_max_length"
    assert (ended(made, "websocket", "refused"), given.asked) == (1, [])


def test_nobody_is_taken_to_play_a_sentence_while_it_is_collected() -> None:
    given = Given([SECOND])
    for stream_audio in (False, True):
        spoken(serving(given), "hi", stream_audio=stream_audio)
    assert [request.whole for request in given.asked] == [True, False]


def test_a_collected_sentence_is_one_message_in_parts() -> None:
    pcm = bytes(range(256)) * 600
    said = spoken(serving(Given([pcm])), "hi")
    parts = [each for each in said if each.get("bytes")]
    assert b"".join(part["bytes"] for part in parts) == pcm
    assert all(len(part["bytes"]) <= SLICE_BYTES for part in parts)
    assert [part[MORE] for part in parts] == [True, True, False]


def test_a_sentence_that_fails_after_some_audio_tells_what_was_made() -> None:
    said = messages(spoken(serving(Given([SECOND], FAILED)), "hi", stream_audio=True))
    assert [each["type"] for each in said] == ["audio.start", "error", "audio.done", "session.done"]
    assert said[1]["partial_audio"] is True
    done = said[2]
    assert (done["error"], done["finish_reason"]) == (True, "error")
    assert (done["samples"], done["frames"]) == (24_000, 12)
    assert done["timings"]["ttfa_ms"] == 1.0


def test_a_sentence_that_is_refused_has_no_samples() -> None:
    said = messages(spoken(serving(Given([SECOND]), whole_characters=1), "hi"))
    assert not {"samples", "frames", "trimmed_samples", "timings"} & said[2].keys()
