"""The HTTP routes of a running server, with the clients that people use."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
from speech_servers import (
    LONG_TEXT,
    REPEATABLE,
    TIMEOUT_S,
    both_forms,
    health,
    metric,
    post,
    same,
    wait_until_free,
)

import server as server_package
from server.voices import OPENAI_VOICES

if TYPE_CHECKING:
    from resources.speech_server import SpeechServer

TEXT = "hello there"
FRAME_BYTES = 2 * 2_048


def client(server: SpeechServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_openais_client_gets_speech_whole(server: SpeechServer) -> None:
    with client(server) as api:
        answer = api.audio.speech.create(
            model="tts-1", voice="alloy", input=TEXT, response_format="wav", extra_body=REPEATABLE
        )
    samples, rate = soundfile.read(io.BytesIO(answer.content), dtype="int16")
    assert rate == 24_000
    assert same(samples.tobytes(), post(server, TEXT).content)
    assert len(samples) > 2_048


@both_forms
def test_openais_client_streams_speech_while_it_is_made(server: SpeechServer) -> None:
    with (
        client(server) as api,
        api.audio.speech.with_streaming_response.create(
            model="embedded",
            voice="nova",
            input=LONG_TEXT,
            response_format="pcm",
            extra_body=REPEATABLE,
        ) as answer,
    ):
        chunks = answer.iter_bytes()
        first = next(chunks)
        active = health(server)["active_streams"]
        rest = b"".join(chunks)
    assert active == 1
    assert len(first) < len(rest)
    assert answer.headers["content-type"] == "audio/pcm"


def test_openais_async_client_streams_speech(server: SpeechServer) -> None:
    async def speak() -> bytes:
        async with (
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as api,
            api.audio.speech.with_streaming_response.create(
                model="gpt-4o-mini-tts",
                voice={"id": "heart"},
                input=TEXT,
                response_format="pcm",
                extra_body=REPEATABLE,
            ) as answer,
        ):
            return b"".join([chunk async for chunk in answer.iter_bytes()])

    assert same(asyncio.run(speak()), post(server, TEXT).content)


@both_forms
def test_the_same_seed_gives_the_same_speech_in_every_form(server: SpeechServer) -> None:
    pcm = post(server, TEXT).content
    wav = post(server, TEXT, response_format="wav")
    assert same(wav.content[44:], pcm)
    assert wav.content[40:44] == b"\xff" * 4
    whole = post(server, TEXT, response_format="wav", stream=False)
    assert same(whole.content[44:], pcm)
    assert int(whole.headers["content-length"]) == 44 + len(pcm)
    assert int.from_bytes(whole.content[40:44], "little") == len(pcm)
    assert whole.headers["x-finish-reason"] in ("stop", "length", "silence", "loop")
    frames = int(whole.headers["x-speech-frames"])
    assert 0 < len(whole.content) <= frames * 2_048 * 2 + 44
    assert not same(post(server, TEXT, seed=2).content, pcm)


@both_forms
def test_a_whole_answer_is_the_same_bytes_whoever_else_is_served(server: SpeechServer) -> None:
    body = {"input": TEXT, "seed": 5, "stream": False}

    def speak(more: dict[str, Any]) -> bytes:
        answer = httpx.post(
            f"{server.url}/v1/audio/speech", json={**body, **more}, timeout=TIMEOUT_S
        )
        return answer.raise_for_status().content

    alone = speak({})
    others = [{"seed": 6}, {"stream": None}, {"seed": 7, "stream": None, "lead_in": "keep"}]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(speak, [{}, *others]))
    assert together[0] == alone
    assert together[1] != alone


def test_without_a_seed_the_one_that_was_drawn_is_told(server: SpeechServer) -> None:
    first, second = (post(server, TEXT, seed=None) for _ in range(2))
    assert first.headers["x-speech-seed"] != second.headers["x-speech-seed"]
    again = post(server, TEXT, seed=int(first.headers["x-speech-seed"]))
    assert same(again.content, first.content)


@both_forms
def test_events_carry_the_same_audio_and_end_with_the_usage(server: SpeechServer) -> None:
    answer = post(server, TEXT, stream_format="sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = parse_events(answer.text)
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
    audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert same(audio, post(server, TEXT).content)
    done = events[-1]
    assert done["type"] == "speech.audio.done"
    assert done["samples"] == len(audio) // 2
    usage = done["usage"]
    assert usage["input_tokens"] > len(TEXT)
    assert usage["output_tokens"] >= 7 * (len(audio) // FRAME_BYTES)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    timings = done["timings"]
    assert 0 < timings["ttfa_ms"] <= timings["total_ms"]


def test_events_come_when_only_the_accept_header_asks_for_them(server: SpeechServer) -> None:
    answer = httpx.post(
        f"{server.url}/v1/audio/speech",
        json={"input": TEXT, "response_format": "wav"},
        headers={"accept": "text/event-stream"},
        timeout=TIMEOUT_S,
    )
    first, second = parse_events(answer.text)[:2]
    assert base64.b64decode(first["audio"])[:4] == b"RIFF"
    assert base64.b64decode(second["audio"])[:4] != b"RIFF"


def test_keeping_the_lead_in_gives_all_that_was_decoded(server: SpeechServer) -> None:
    kept = post(server, TEXT, lead_in="keep").content
    trimmed = post(server, TEXT, lead_in="trim").content
    assert len(kept) >= len(trimmed) > 0


def test_headers_say_what_was_ignored_and_whose_request_it_was(server: SpeechServer) -> None:
    answer = httpx.post(
        f"{server.url}/v1/audio/speech",
        json={"input": TEXT, "instructions": "calmly", "language": "en"},
        headers={"x-request-id": "call-7.1"},
        timeout=TIMEOUT_S,
    )
    assert answer.headers["x-request-id"] == "call-7.1"
    assert answer.headers["x-speech-ignored"] == "instructions, language"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["content-type"] == "audio/wav"
    assert re.fullmatch(r"req-[0-9a-f]{32}", post(server, TEXT).headers["x-request-id"])
    assert "x-speech-ignored" not in post(server, TEXT).headers


@both_forms
@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"voice": "bob"}, openai.BadRequestError, "voice"),
        ({"model": "whisper-1"}, openai.NotFoundError, "model"),
        ({"response_format": "mpeg"}, openai.BadRequestError, "response_format"),
        ({"speed": 4.5}, openai.BadRequestError, "speed"),
        ({"input": ""}, openai.BadRequestError, "input"),
        ({"input": "x" * 100_001}, openai.BadRequestError, "input"),
        ({"extra_body": {"foo": 1}}, openai.BadRequestError, "foo"),
        ({"instructions": 123}, openai.BadRequestError, "instructions"),
    ],
)
def test_openais_client_raises_its_own_errors(
    server: SpeechServer, fields: dict[str, Any], kind: type[openai.APIStatusError], param: str
) -> None:
    refused = metric(server, "speech_requests_total", outcome="refused", transport="http")
    with client(server) as api, pytest.raises(kind) as raised:
        api.audio.speech.create(**{"model": "tts-1", "voice": "alloy", "input": "x", **fields})
    assert raised.value.param == param
    assert raised.value.code
    assert raised.value.type == "invalid_request_error"
    assert metric(server, "speech_requests_total", outcome="refused", transport="http") == (
        refused + 1
    )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\x00\xff"])
def test_a_body_that_is_not_json_is_refused_as_json(server: SpeechServer, body: bytes) -> None:
    answer = httpx.post(f"{server.url}/v1/audio/speech", content=body, timeout=TIMEOUT_S)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"
    assert answer.headers["x-request-id"]


@both_forms
def test_text_with_nothing_to_speak_is_refused(server: SpeechServer) -> None:
    answer = post(server, "\u200b \U0001f600")
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_that_is_too_large_or_too_slow_is_refused(server: SpeechServer) -> None:
    large = httpx.post(f"{server.url}/v1/audio/speech", content=b" " * (2 << 20), timeout=TIMEOUT_S)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port), TIMEOUT_S) as slow:
        slow.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert slow.recv(4_096).startswith(b"HTTP/1.1 408 ")


@both_forms
def test_models_and_voices_are_listed_as_openais_client_reads_them(server: SpeechServer) -> None:
    with client(server) as api:
        models = [model.id for model in api.models.list()]
        assert models == ["embedded-bf16", "embedded"]
        assert api.models.retrieve("embedded").id == "embedded"
        with pytest.raises(openai.NotFoundError):
            api.models.retrieve("tts-9")
    answer = httpx.get(f"{server.url}/v1/audio/voices", timeout=TIMEOUT_S).json()
    voices = {voice["id"]: voice["alias_of"] for voice in answer["data"]}
    assert list(voices)[:2] == ["heart", "michael"]
    assert set(OPENAI_VOICES) < set(voices)
    assert {voices[name] for name in OPENAI_VOICES} == {"heart", "michael"}
    assert answer["voices"] == list(voices)


def test_each_of_openais_voices_speaks(server: SpeechServer) -> None:
    own = {name: post(server, TEXT, voice=name).content for name in ("heart", "michael")}
    assert not same(own["heart"], own["michael"])
    listed = httpx.get(f"{server.url}/v1/audio/voices", timeout=TIMEOUT_S).json()["data"]
    alias_of = {voice["id"]: voice["alias_of"] for voice in listed}
    for name in OPENAI_VOICES:
        assert same(post(server, TEXT, voice=name).content, own[alias_of[name]]), name
    assert same(post(server, TEXT, voice="HEART").content, own["heart"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/audio/voices", 501),
        ("DELETE", "/v1/audio/voices", 501),
        ("DELETE", "/v1/audio/voices/heart", 501),
        ("GET", "/v1/audio/speech", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/docs", 404),
    ],
)
def test_what_is_not_there_says_so_in_json(
    server: SpeechServer, method: str, path: str, status: int
) -> None:
    answer = httpx.request(method, server.url + path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@both_forms
def test_operators_see_how_the_server_is(server: SpeechServer, endless_voice: Path) -> None:
    wait_until_free(server)
    assert health(server) == {"status": "ok", "active_streams": 0, "queued": 0}
    assert httpx.get(f"{server.url}/ready", timeout=TIMEOUT_S).json() == {"ready": True}
    config = httpx.get(f"{server.url}/config", timeout=TIMEOUT_S).json()
    assert config["config_sha256"] == server.config_sha256
    assert config["preset"] == server.preset == "embedded-bf16"
    assert config["engine"]["slot_rule"] in ("enforced", "dropped")
    assert config["formats"] == ["pcm", "wav", "mp3", "opus", "aac", "flac", "mulaw"]
    assert config["limits"]["config_s"] == 1


@both_forms
def test_metrics_count_what_was_spoken(server: SpeechServer) -> None:
    labels = {"transport": "http"}
    spoken = metric(server, "speech_ttfa_seconds_count")
    samples = metric(server, "speech_audio_samples_total")
    steps = metric(server, "speech_engine_step_seconds_count")
    audio = post(server, TEXT).content
    assert metric(server, "speech_ttfa_seconds_count") == spoken + 1
    assert metric(server, "speech_audio_samples_total") == samples + len(audio) // 2
    assert metric(server, "speech_engine_step_seconds_count") > steps
    assert metric(server, "speech_decode_batch_size_count") > 0
    assert metric(server, "speech_decode_seconds_count") > 0
    assert metric(server, "speech_decode_seconds_sum") > 0
    assert metric(server, "speech_rtf_count") > 0
    ended = sum(
        metric(server, "speech_requests_total", outcome=outcome, **labels)
        for outcome in ("stop", "length", "silence", "loop")
    )
    assert ended > 0


def test_the_routes_are_described_in_openapi(server: SpeechServer) -> None:
    document = httpx.get(f"{server.url}/openapi.json", timeout=TIMEOUT_S).json()
    schema = document["paths"]["/v1/audio/speech"]["post"]["requestBody"]["content"]
    assert "input" in schema["application/json"]["schema"]["properties"]
    headers = document["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]["headers"]
    answer = post(server, TEXT, stream=False, language="en")
    assert headers.keys() == {name for name in answer.headers if name.startswith("x-")} - {
        "x-accel-buffering"
    }
    assert document["paths"]["/metrics"]["get"]["responses"].keys() == {"200", "401", "503"}


def test_the_page_comes_from_this_server_alone(server: SpeechServer) -> None:
    answer = httpx.get(server.url + "/", timeout=TIMEOUT_S)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    folder = Path(server_package.__file__).parent / "page"
    for path in sorted(folder.iterdir()):
        name = "" if path.name == "index.html" else path.name
        assert httpx.get(f"{server.url}/{name}", timeout=TIMEOUT_S).content == path.read_bytes()
        outside = set(re.findall(r"(?:https?|wss?)://[\w.-]+", path.read_text("utf-8")))
        assert outside <= {"http://www.w3.org"}, path  # A namespace, never fetched.


def test_samples_are_whole_and_audible(server: SpeechServer) -> None:
    samples = np.frombuffer(post(server, TEXT).content, "<i2")
    assert np.abs(samples.astype(np.float64)).max() > 100


def parse_events(text: str) -> list[dict[str, Any]]:
    """Events of a stream; each has its type twice, which must agree."""
    events: list[dict[str, Any]] = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events
