"""One clip asked of a server that answers as it is told: what is kept, and what is refused."""

from __future__ import annotations

import collections
import contextlib
import http.server
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from resources.speech_server import SpeechServer
from server.metrics import Metrics
from server.wav import wav_header
from speech_assets.ab import asking
from speech_assets.ab.asking import Answer, Asker
from speech_assets.ab.errors import AskError
from speech_assets.ab.plan import Ask
from speech_assets.quality.sentences import QUALITY_SENTENCES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ASK = Ask(QUALITY_SENTENCES[0], 7)


class Speaking(http.server.ThreadingHTTPServer):
    """Has the server's own metrics; `answers` are what it gives: status, body, headers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.metrics = Metrics()
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        self.asked: list[dict[str, Any]] = []
        self.requests_each = 1
        self.late_looks = 0  # /metrics that come before the request is counted.
        self.begins = ""  # The gauge of a stream that begins with the request, ...
        self.ends_after_looks = sys.maxsize  # ... and how many /metrics see it.


class Handler(http.server.BaseHTTPRequestHandler):
    server: Speaking  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        if self.server.asked:
            self.server.late_looks -= 1
            if self.server.late_looks == -1:
                for _ in range(self.server.requests_each):
                    self.server.metrics.ended("http", "stop", ttfa_ms=4.0, first_made_ms=125.0)
            if self.server.begins:
                self.server.ends_after_looks -= 1
                is_there = self.server.ends_after_looks >= 0
                getattr(self.server.metrics, self.server.begins).set(is_there)
        self._send(200, self.server.metrics.render(), {})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append(json.loads(data))
        metrics = self.server.metrics
        for _ in range(20):
            metrics.engine_step_seconds.observe(0.05)
        metrics.decode_seconds.observe(0.25)
        metrics.decode_seconds.observe(0.5)
        if self.server.answers:
            self._send(*self.server.answers.pop())

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def speaking() -> Iterator[Speaking]:
    server = Speaking()
    # What a server did before is not the clip's.
    server.metrics.engine_step_seconds.observe(9.0)
    server.metrics.ended("http", "stop", ttfa_ms=4.0, first_made_ms=999.0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def asker(server: Speaking) -> Generator[Asker]:
    """Who asks it; the process that lost connections look at has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    url = f"http://127.0.0.1:{server.server_port}"
    shown = SpeechServer(url, "one", "", process, collections.deque[str]())
    with httpx.Client(base_url=url) as client:
        yield Asker(client, shown)


def asked(server: Speaking) -> Answer:
    """What comes of one question."""
    with asker(server) as alone:
        return alone.speak(ASK, "arm B, sentence 0")


def test_an_answer_has_its_audio_and_what_it_cost(speaking: Speaking) -> None:
    wav = wav_header(4_096) + bytes(4_096)
    speaking.answers.append((200, wav, {"x-finish-reason": "stop", "x-speech-frames": "1"}))
    speaking.late_looks = 2
    answer = asked(speaking)
    assert (answer.audio, answer.samples, answer.frames) == (wav, 2_048, 1)
    assert answer.lm_ms == pytest.approx(1_000)
    assert answer.lm_steps == 20
    assert answer.decode_ms == pytest.approx(750)
    assert answer.decode_calls == 2
    assert answer.first_audio_ms == pytest.approx(125)
    assert speaking.asked == [
        {
            "input": ASK.sentence.text,
            "seed": 7,
            "response_format": "wav",
            "stream": False,
            "lead_in": "keep",
        }
    ]


def test_a_model_that_gave_no_audio_has_answered(speaking: Speaking) -> None:
    body = json.dumps({"error": {"code": "no_audio", "message": "the model gave no audio"}})
    speaking.answers.append((500, body.encode(), {}))
    answer = asked(speaking)
    assert (answer.audio, answer.samples, answer.finish_reason) == (b"", 0, "no_audio")


@pytest.mark.parametrize(
    ("status", "retryable", "says"),
    [
        (400, False, r"arm B, sentence 0: the server answered 400: .*too long.*leave that sent"),
        (500, True, "arm B, sentence 0: the server answered 500"),
        (429, True, "arm B, sentence 0: the server answered 429"),
    ],
)
def test_an_arm_that_refuses_a_clip_ends_the_comparison(
    speaking: Speaking, status: int, retryable: bool, says: str
) -> None:
    speaking.answers.append((status, b'{"error": {"message": "too long", "code": "x"}}', {}))
    with pytest.raises(AskError, match=says) as raised:
        asked(speaking)
    assert raised.value.retryable is retryable


def test_a_server_that_somebody_else_asks_as_well_is_no_arm(speaking: Speaking) -> None:
    speaking.answers.append((200, wav_header(0), {"x-finish-reason": "stop"} | FRAMES))
    speaking.requests_each = 2
    with pytest.raises(AskError, match="had 2 requests at once; leave it to the comparison"):
        asked(speaking)


def test_a_request_that_ends_while_the_other_arm_is_asked_is_seen(speaking: Speaking) -> None:
    speaking.answers += [(200, wav_header(0), {"x-finish-reason": "stop"} | FRAMES)] * 2
    with asker(speaking) as alone:
        alone.speak(ASK, "arm B, sentence 0")
        alone.check_alone("arm B")
        speaking.metrics.ended("http", "stop", ttfa_ms=4.0, first_made_ms=125.0)
        for look in (lambda: alone.speak(ASK, "arm B, sentence 1"), lambda: alone.check_alone("B")):
            with pytest.raises(AskError, match="had 1 requests of somebody else since the clip"):
                look()
    assert len(speaking.asked) == 1


@pytest.mark.parametrize("gauge", ["active_streams", "queue_depth"])
def test_a_stream_that_runs_beside_a_clip_is_seen(
    speaking: Speaking, gauge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_QUIET_WITHIN_S", 0.05)
    speaking.answers.append((200, wav_header(0), {"x-finish-reason": "stop"} | FRAMES))
    with asker(speaking) as alone:
        getattr(speaking.metrics, gauge).set(2)
        with pytest.raises(AskError, match=r"sentence 0: the server has 2 streams of somebody"):
            alone.speak(ASK, "arm B, sentence 0")
        assert speaking.asked == []
        getattr(speaking.metrics, gauge).set(0)
        speaking.begins = gauge
        with pytest.raises(AskError, match="the server has 1 streams of somebody else"):
            alone.speak(ASK, "arm B, sentence 0")


def test_ones_own_stream_may_end_after_its_request_is_counted(speaking: Speaking) -> None:
    speaking.answers.append((200, wav_header(0), {"x-finish-reason": "stop"} | FRAMES))
    speaking.begins, speaking.ends_after_looks = "active_streams", 3
    assert asked(speaking).decode_calls == 2
    assert speaking.late_looks < -3


def test_a_server_whose_counts_began_anew_is_asked_again(speaking: Speaking) -> None:
    speaking.answers.append((200, wav_header(0), {"x-finish-reason": "stop"} | FRAMES))
    with asker(speaking) as alone:
        alone.speak(ASK, "arm B, sentence 0")
        speaking.metrics = Metrics()
        with pytest.raises(AskError, match="counts began anew") as raised:
            alone.speak(ASK, "arm B, sentence 1")
    assert raised.value.retryable


def test_a_lost_connection_says_whose_it_was_and_may_be_tried_again(speaking: Speaking) -> None:
    with pytest.raises(AskError, match="arm B, sentence 0: the server did not answer") as raised:
        asked(speaking)
    assert raised.value.retryable


FRAMES = {"x-speech-frames": "0"}
