"""The WebSocket of a running server: vLLM-Omni's order of messages, cancel, and many utterances."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import soundfile
from speech_servers import (
    LONG_TEXT,
    SOCKET,
    TIMEOUT_S,
    audio_of,
    both_forms,
    health,
    open_socket,
    post,
    receive,
    same,
    say,
    send,
    types_of,
    wait_until_free,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

if TYPE_CHECKING:
    from resources.speech_server import SpeechServer

TEXT = "hello there"
SENTENCE = ["audio.start", "audio", "audio.done"]


@both_forms
def test_an_utterance_comes_in_vllm_omnis_order(server: SpeechServer) -> None:
    with open_socket(server) as client:
        say(client, "hello", " there")
        messages = receive(client, "session.done")
    assert types_of(messages) == [*SENTENCE, "session.done"]
    start, done, last = messages[0], messages[-2], messages[-1]
    assert start == {
        "type": "audio.start",
        "utterance_index": 0,
        "sentence_index": 0,
        "sentence_text": TEXT,
        "format": "pcm",
        "sample_rate": 24_000,
        "channels": 1,
    }
    audio = audio_of(messages)
    assert same(audio, post(server, TEXT).content)
    assert (done["total_bytes"], done["samples"]) == (len(audio), len(audio) // 2)
    assert (done["error"], done["utterance_index"], done["sentence_index"]) == (False, 0, 0)
    assert done["finish_reason"] in ("stop", "length", "silence", "loop")
    assert 2_048 * done["frames"] >= done["samples"] + done["trimmed_samples"] > 0
    assert 0 < done["timings"]["ttfa_ms"] <= done["timings"]["total_ms"]
    assert done["timings"]["rtf"] > 0
    assert last == {"type": "session.done", "utterance_index": 0, "total_sentences": 1}


def test_by_default_a_sentence_is_one_wav_file(server: SpeechServer) -> None:
    with open_socket(server, response_format=None, stream_audio=False) as client:
        say(client, TEXT)
        messages = receive(client, "session.done")
    assert [message["type"] for message in messages] == [*SENTENCE, "session.done"]
    assert messages[0]["format"] == "wav"
    assert "sample_rate" not in messages[0]
    samples, rate = soundfile.read(io.BytesIO(audio_of(messages)), dtype="int16")
    assert rate == 24_000
    assert same(samples.tobytes(), post(server, TEXT).content)


def test_a_streamed_wav_has_one_header(server: SpeechServer) -> None:
    with open_socket(server, response_format="wav") as client:
        say(client, TEXT)
        audio = audio_of(receive(client, "session.done"))
    assert audio[:4] == b"RIFF"
    assert same(audio[44:], post(server, TEXT).content)


@both_forms
def test_text_goes_in_while_audio_comes_out(server: SpeechServer) -> None:
    with open_socket(server, split_granularity="sentence") as client:
        say(client, "the first one. the sec", is_done=False)
        # Spoken before its utterance is complete, and before the rest of the text was sent.
        first = receive(client, "audio.done")
        assert first[0]["sentence_text"] == "the first one."
        say(client, "ond one. and a third", is_done=False)
        start = receive(client, "audio.start")[-1]
        assert start["sentence_text"] == "the second one."
        send(client, {"type": "input.done"})
        messages = receive(client, "session.done")
    assert types_of(messages) == [*SENTENCE[1:], *SENTENCE, "session.done"]
    assert messages[-1] == {"type": "session.done", "utterance_index": 0, "total_sentences": 3}
    assert [m["sentence_index"] for m in messages if m["type"] == "audio.done"] == [1, 2]


def test_utterances_wait_in_line_on_one_socket(server: SpeechServer) -> None:
    with open_socket(server) as client:
        say(client, "one")
        say(client, "two")
        send(client, {"type": "input.done"})
        say(client, "three")
        parts = [receive(client, "session.done") for _ in range(4)]
    assert [part[-1]["utterance_index"] for part in parts] == [0, 1, 2, 3]
    assert [part[-1]["total_sentences"] for part in parts] == [1, 1, 0, 1]
    for part, text in ((parts[0], "one"), (parts[1], "two"), (parts[3], "three")):
        assert same(audio_of(part), post(server, text).content)


def test_the_configuration_holds_until_another_comes_and_none_comes_within_an_utterance(
    server: SpeechServer,
) -> None:
    with open_socket(server, voice="michael", session_ready=True, language="en") as client:
        ready = receive(client, "session.ready")[-1]
        assert (ready["voice"], ready["format"], ready["ignored"]) == (
            "michael",
            "pcm",
            ["language"],
        )
        say(client, "one")
        one = audio_of(receive(client, "session.done"))
        say(client, "t", is_done=False)
        send(client, {"type": "session.config", "voice": "heart"})
        assert receive(client, "error")[-1]["code"] == "utterance_open"
        say(client, "wo")
        two = audio_of(receive(client, "session.done"))
        send(client, {"type": "session.config", "voice": "bob"})
        assert receive(client, "error")[-1]["param"] == "voice"
        say(client, "one")
        again = audio_of(receive(client, "session.done"))
    assert same(one, again)
    assert same(one, post(server, "one", voice="michael").content)
    assert same(two, post(server, "two", voice="michael").content)


@both_forms
def test_a_cancel_silences_at_once_and_the_socket_stays(server: SpeechServer) -> None:
    with open_socket(server, split_granularity="sentence") as client:
        say(client, LONG_TEXT + ". and more. ", "and still more.")
        say(client, "another")
        receive(client, "audio")
        send(client, {"type": "session.cancel"})
        first = receive(client, "session.done")
        done = first[-2]
        assert (done["type"], done["finish_reason"], done["error"]) == (
            "audio.done",
            "cancelled",
            False,
        )
        assert first[-1]["cancelled"] is True
        assert first[-1]["total_sentences"] == 1
        second = receive(client, "session.done")
        assert [message["type"] for message in second] == ["session.done"]
        assert second[-1] == {
            "type": "session.done",
            "utterance_index": 1,
            "total_sentences": 0,
            "cancelled": True,
        }
        wait_until_free(server)
        say(client, TEXT)
        assert same(audio_of(receive(client, "session.done")), post(server, TEXT).content)


def test_a_cancel_with_nothing_begun_has_no_effect(server: SpeechServer) -> None:
    with open_socket(server) as client:
        send(client, {"type": "session.cancel"})
        say(client, TEXT)
        messages = receive(client, "session.done")
    assert types_of(messages) == [*SENTENCE, "session.done"]
    assert messages[-1]["utterance_index"] == 0


@both_forms
def test_a_close_ends_the_socket_when_all_is_spoken(server: SpeechServer) -> None:
    with open_socket(server) as client:
        say(client, TEXT)
        say(client, "not complete", is_done=False)
        send(client, {"type": "session.close"})
        messages = receive(client, "session.done")
        assert same(audio_of(messages), post(server, TEXT).content)
        assert receive(client, "session.done")[-1]["total_sentences"] == 0
        with pytest.raises(ConnectionClosed):
            client.recv()
        assert client.close_code == 1000


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "invalid_json"),
        (b"\x00\x01", "invalid_json"),
        ("[]", "invalid_json"),
        ("[" * 60_000, "invalid_json"),
        (json.dumps({"type": "input.txt"}), "unknown_message"),
        (json.dumps({"type": 3}), "unknown_message"),
        (json.dumps({"type": "input.text", "text": 3}), "invalid_value"),
        (json.dumps({"type": "input.text"}), "missing_parameter"),
        (json.dumps({"type": "session.config", "ref_audio": "data:"}), "invalid_value"),
        (json.dumps({"type": "session.config", "response_format": "mpeg"}), "invalid_value"),
        (json.dumps({"type": "session.config", "model": "whisper-1"}), "model_not_found"),
        (json.dumps({"type": "input.text", "text": "x" * 140_000}), "message_too_large"),
    ],
)
def test_a_wrong_message_is_an_error_and_changes_nothing(
    server: SpeechServer, message: str | bytes, code: str
) -> None:
    with open_socket(server) as client:
        client.send(message)
        error = receive(client, "error")[-1]
        assert error["code"] == code
        assert error["message"]
        say(client, TEXT)
        messages = receive(client, "session.done")
        assert types_of(messages) == [*SENTENCE, "session.done"]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "input.text", "text": "x"},
        {"type": "session.config", "voice": "bob"},
        {"type": "session.config", "speed": 5},
        None,  # Nothing, until config_s has passed.
    ],
)
def test_a_socket_without_a_configuration_is_closed(
    server: SpeechServer, message: dict[str, Any] | None
) -> None:
    with connect(server.url.replace("http", "ws") + SOCKET, open_timeout=TIMEOUT_S) as client:
        if message is not None:
            send(client, message)
        assert receive(client, "error")[-1]["message"]
        with pytest.raises(ConnectionClosed):
            client.recv()
        assert client.close_code == 1008


def test_text_that_is_too_long_for_one_utterance_fails_alone(server: SpeechServer) -> None:
    with open_socket(server) as client:
        say(client, "word " * 20_001)
        say(client, TEXT)
        failed = receive(client, "session.done")
        assert types_of(failed) == ["audio.start", "error", "audio.done", "session.done"]
        assert failed[1]["code"] == "string_above_max_length"
        assert (failed[2]["error"], failed[2]["finish_reason"]) == (True, "error")
        assert types_of(receive(client, "session.done")) == [*SENTENCE, "session.done"]


def test_what_waits_to_be_spoken_is_bounded(server: SpeechServer) -> None:
    with open_socket(server, split_granularity="sentence") as client:
        say(client, LONG_TEXT, is_done=False)
        for _ in range(2):
            say(client, "x" * 66_000, is_done=False)
        assert receive(client, "error")[-1]["code"] == "too_much_text"
        send(client, {"type": "session.cancel"})
        receive(client, "session.done")
        say(client, LONG_TEXT)
        for _ in range(4):
            say(client, TEXT, is_done=True)
        assert receive(client, "error")[-1]["code"] == "too_many_utterances"


def test_a_page_of_another_site_may_not_connect(server: SpeechServer) -> None:
    url = server.url.replace("http", "ws") + SOCKET
    with (
        pytest.raises(InvalidStatus) as raised,
        connect(url, origin="http://evil.example", open_timeout=TIMEOUT_S),
    ):
        pytest.fail("it was let in")
    assert raised.value.response.status_code == 403
    with connect(url, origin=server.url, open_timeout=TIMEOUT_S):
        pass


def test_messages_are_not_compressed(server: SpeechServer) -> None:
    with open_socket(server) as client:
        assert client.protocol.extensions == []
        assert "sec-websocket-extensions" not in client.response.headers


def test_a_socket_that_closes_cleanly_within_an_utterance_frees_its_place(
    server: SpeechServer,
) -> None:
    with open_socket(server) as client:
        say(client, LONG_TEXT)
        receive(client, "audio")
        assert health(server)["active_streams"] == 1
    wait_until_free(server)
    assert httpx.get(f"{server.url}/health", timeout=TIMEOUT_S).json()["status"] == "ok"
