"""Formats and speeds of a running server, over HTTP, as events and over the WebSocket."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import openai
import pytest
from decoded import decode, snr_db
from speech_servers import (
    LONG_TEXT,
    REPEATABLE,
    TIMEOUT_S,
    audio_of,
    health,
    metric,
    open_socket,
    post,
    receive,
    same,
    say,
    send,
    types_of,
    wait_until_free,
)

from server.encoder import encoder_of
from server.formats import FORMATS, ResponseFormat
from server.tempo import Tempo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resources.speech_server import SpeechServer

TEXT = "hello there"
CODED: list[ResponseFormat] = [name for name, each in FORMATS.items() if each.coding]
# What two decodes of one voice differ by is some -50 dB, and lossy encoders may weigh it otherwise.
LEAST_SNR_DB = 15


@pytest.fixture(scope="module")
def pcm(one_process: SpeechServer) -> bytes:
    return post(one_process, TEXT).content


def meant(name: ResponseFormat, pcm: bytes, speed: float = 1.0) -> NDArray[np.int16]:
    """What a decoder gives of the format when all of the speech is in it."""
    tempo, encoder = Tempo(speed), encoder_of(name)
    samples = np.frombuffer(pcm, "<i2").astype(np.int16)
    played = [tempo.push(samples), tempo.end()]
    return decode(name, b"".join([encoder.push(np.concatenate(played).tobytes()), encoder.end()]))


def check(
    name: ResponseFormat, audio: bytes, pcm: bytes, speed: float = 1.0, least_db: float = 0.0
) -> None:
    """The bytes decode to the speech, as long as it is and as near as the format gets."""
    heard, expected = decode(name, audio), meant(name, pcm, speed)
    assert len(heard) == len(expected)
    assert snr_db(heard, expected) > (least_db or LEAST_SNR_DB)


@pytest.mark.parametrize("name", CODED)
def test_a_stream_holds_all_of_the_speech(
    server: SpeechServer, pcm: bytes, name: ResponseFormat
) -> None:
    answer = post(server, TEXT, response_format=name)
    assert answer.headers["content-type"] == FORMATS[name].content_type
    assert "content-length" not in answer.headers
    check(name, answer.content, pcm)


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_file_is_the_same_bytes_for_a_seed(
    server: SpeechServer, pcm: bytes, name: ResponseFormat
) -> None:
    first, second = (
        post(server, TEXT, response_format=name, stream=False, speed=1.25) for _ in range(2)
    )
    assert first.content == second.content
    assert int(first.headers["content-length"]) == len(first.content)
    heard = decode(name, first.content)
    longest = {"aac": 2_048}.get(name, 3)
    assert -3 <= len(heard) - round(len(pcm) / 2 / 1.25) <= longest


def test_openais_client_gets_its_default_format_when_it_asks_for_it(
    server: SpeechServer, pcm: bytes
) -> None:
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as api,
        api.audio.speech.with_streaming_response.create(
            model="tts-1", voice="heart", input=TEXT, response_format="mp3", extra_body=REPEATABLE
        ) as answer,
    ):
        audio = b"".join(answer.iter_bytes())
    assert answer.headers["content-type"] == "audio/mpeg"
    check("mp3", audio, pcm)


@pytest.mark.parametrize("name", FORMATS)
def test_events_carry_a_format_in_pieces(
    server: SpeechServer, pcm: bytes, name: ResponseFormat
) -> None:
    answer = post(server, TEXT, response_format=name, stream_format="sse", speed=1.5)
    events = [
        json.loads(line.removeprefix("data: "))
        for line in answer.text.splitlines()
        if line.startswith("data: ")
    ]
    deltas, done = events[:-1], events[-1]
    assert len(deltas) > 1
    assert {event["response_format"] for event in deltas} == {name}
    pieces = [base64.b64decode(event["audio"]) for event in deltas]
    assert all(pieces)
    check(name, b"".join(pieces), pcm, 1.5, least_db=3)
    # The model's samples, whatever the speed.
    assert done["samples"] == len(pcm) // 2


@pytest.mark.parametrize("speed", [0.25, 0.5, 2.0, 4.0])
def test_another_speed_is_as_long_as_it_says_and_the_same_speech(
    server: SpeechServer, pcm: bytes, speed: float
) -> None:
    played = metric(server, "speech_audio_samples_total")
    audio = post(server, TEXT, speed=speed).content
    samples = len(pcm) // 2
    assert len(audio) == 2 * round(samples / speed)
    # The same pieces are chosen, unless rounding tips the scale between two that are alike.
    check("pcm", audio, pcm, speed, least_db=3)
    assert metric(server, "speech_audio_samples_total") == played + samples


@pytest.mark.parametrize("name", CODED)
def test_the_socket_streams_a_format_and_gives_whole_files(
    server: SpeechServer, pcm: bytes, name: ResponseFormat
) -> None:
    with open_socket(server, response_format=name, session_ready=True) as client:
        assert receive(client, "session.ready")[-1]["sample_rate"] == FORMATS[name].rate_hz
        say(client, TEXT)
        streamed = receive(client, "session.done")
        send(client, {"type": "session.config", "response_format": name, **REPEATABLE})
        say(client, TEXT)
        whole = receive(client, "session.done")
    for messages in (streamed, whole):
        assert types_of(messages) == ["audio.start", "audio", "audio.done", "session.done"]
        start, done = messages[0], messages[-2]
        assert start["format"] == name
        assert done["total_bytes"] == len(audio_of(messages))
        assert done["samples"] == len(pcm) // 2
    assert len(streamed) > len(whole) == 4
    # Of what has no header a client must be told.
    assert streamed[0].get("sample_rate") == (8_000 if name == "mulaw" else None)
    check(name, audio_of(streamed), pcm)
    heard = decode(name, audio_of(whole))
    assert -3 <= len(heard) - len(pcm) // 2 <= (2_048 if name == "aac" else 0)


@pytest.mark.parametrize("name", CODED)
def test_after_a_cancel_nothing_is_flushed_and_what_came_can_be_heard(
    server: SpeechServer, name: ResponseFormat
) -> None:
    with open_socket(server, response_format=name, speed=1.25) as client:
        say(client, LONG_TEXT)
        before = receive(client, "audio")
        while len(audio_of(before)) < 4_000:
            before += receive(client, "audio")
        send(client, {"type": "session.cancel"})
        after = receive(client, "session.done")
        done = after[-2]
        assert (done["finish_reason"], done["error"]) == ("cancelled", False)
        audio = audio_of(before + after)
        assert done["total_bytes"] == len(audio)
        heard = decode(name, audio)
        # All of it but what the encoder and the tempo hold, which is dropped; priming comes on top.
        assert abs(len(heard) - done["samples"] / 1.25) < 24_000 * 0.2
        assert np.abs(heard.astype(np.float64)).max() > 100
        wait_until_free(server)
        say(client, TEXT)
        assert types_of(receive(client, "session.done"))[-1] == "session.done"


def test_a_client_that_goes_away_within_a_compressed_stream_frees_its_place(
    server: SpeechServer,
) -> None:
    body: dict[str, Any] = {"input": LONG_TEXT, "response_format": "mp3", **REPEATABLE}
    for _ in range(3):
        with httpx.stream(
            "POST", f"{server.url}/v1/audio/speech", json=body, timeout=TIMEOUT_S
        ) as answer:
            parts = answer.iter_raw()
            next(parts)
            assert health(server)["active_streams"] == 1
        wait_until_free(server)


def test_streams_of_every_format_at_once_do_not_mix(server: SpeechServer, pcm: bytes) -> None:
    with ThreadPoolExecutor(len(FORMATS)) as pool:
        answers = {
            name: pool.submit(post, server, TEXT, response_format=name, lead_in="keep")
            for name in FORMATS
        }
    assert same(answers["pcm"].result().content, pcm)
    for name in CODED:
        check(name, answers[name].result().content, pcm)
