"""Texts longer than a model can speak at once, on the running server: over HTTP and the socket."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import httpx
from lineage_run import wait_for
from speech_servers import (
    SAME,
    TIMEOUT_S,
    audio_of,
    health,
    metric,
    open_socket,
    post,
    raw_request,
    receive,
    same,
    say,
    send,
    types_of,
    wait_until_free,
)

if TYPE_CHECKING:
    from resources.speech_server import SpeechServer

# Short paragraphs are pieces of their own, and the small voice speaks each for some 2 s.
TEXT = "the first\n\nand two\n\nand three"
LONG = "they walked on and on, and rested. " * 2_800


def test_a_text_of_several_pieces_is_one_stream_and_the_same_for_a_seed(
    server: SpeechServer,
) -> None:
    whole = post(server, TEXT, stream=False)
    assert whole.status_code == 200, whole.text
    assert post(server, TEXT, stream=False).content == whole.content
    pcm = post(server, TEXT).content
    assert same(pcm, whole.content)
    assert same(pcm[: 2 * 12_000], post(server, "the first.").content[: 2 * 12_000])
    with open_socket(server) as client:
        say(client, "the first\n", "\nand two\n\nand ", "three")
        messages = receive(client, "session.done")
    assert types_of(messages) == ["audio.start", "audio", "audio.done", "session.done"]
    assert same(audio_of(messages), whole.content)
    done = messages[-2]
    assert done["samples"] == len(whole.content) // 2
    assert done["inserted_samples"] > 0
    # Guards end these pieces, and how much was made by then and cut off depends on the clock.
    assert 2_048 * done["frames"] >= done["samples"] - done["inserted_samples"]
    assert int(whole.headers["x-speech-frames"]) > 0


def test_events_carry_a_text_of_several_pieces_and_report_it_as_one(server: SpeechServer) -> None:
    answer = post(server, TEXT, stream_format="sse")
    events = [
        json.loads(line.removeprefix("data: "))
        for line in answer.text.splitlines()
        if line.startswith("data: ")
    ]
    audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert same(audio, post(server, TEXT).content)
    done = events[-1]
    assert (done["type"], done["samples"]) == ("speech.audio.done", len(audio) // 2)
    assert done["usage"]["input_tokens"] > len(TEXT) // 2


def test_a_hundred_thousand_characters_hold_one_place_and_free_it_when_the_client_goes(
    server: SpeechServer,
) -> None:
    ended = metric(server, "speech_requests_total", outcome="cancelled")
    with raw_request(server, LONG) as client:
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        assert health(server) | {"status": "ok"} == {
            "status": "ok",
            "active_streams": 1,
            "queued": 0,
        }
    wait_until_free(server)
    wait_for(
        lambda: metric(server, "speech_requests_total", outcome="cancelled") == ended + 1,
        "the request is counted",
    )
    assert post(server, "again").status_code == 200


def test_a_cancel_on_the_socket_ends_a_long_text(server: SpeechServer) -> None:
    with open_socket(server) as client:
        say(client, LONG[:20_000])
        receive(client, "audio")
        send(client, {"type": "session.cancel"})
        last = receive(client, "session.done")
    assert last[-1]["cancelled"] is True
    wait_until_free(server)


def test_a_text_beyond_the_limit_is_refused_with_the_limit_named(server: SpeechServer) -> None:
    limits = httpx.get(f"{server.url}/config", timeout=TIMEOUT_S).json()["limits"]
    for fields, name in (({}, "input_characters"), ({"stream": False}, "whole_characters")):
        answer = post(server, "a " * (limits[name] // 2 + 1), **fields)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "input")
        assert error["code"] == "string_above_max_length"
        assert f"more than {limits[name]} (limit {name})" in error["message"]
    with open_socket(server, stream_audio=False) as client:
        say(client, "a " * (limits["whole_characters"] // 2 + 1))
        error = receive(client, "error")[-1]
    assert "limit whole_characters" in error["message"]


def test_what_has_nothing_to_speak_is_refused_by_its_name(server: SpeechServer) -> None:
    for text in ("\U0001f600 \u200b", "...!!!", "<whisper>", "<p><br/></p>", "\u65e5\u672c"):
        answer = httpx.post(
            f"{server.url}/v1/audio/speech", json={"input": text, **SAME}, timeout=TIMEOUT_S
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "nothing_to_speak"), text
        assert "can be spoken; send words" in error["message"]


def test_an_emoji_after_the_last_sentence_is_no_sentence(server: SpeechServer) -> None:
    with open_socket(server, split_granularity="sentence") as client:
        say(client, "one.", " \U0001f600")
        messages = receive(client, "session.done")
    assert types_of(messages) == ["audio.start", "audio", "audio.done", "session.done"]
    assert messages[-1]["total_sentences"] == 1
