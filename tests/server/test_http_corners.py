"""What clients do at HTTP's corners: old versions, HEAD, encodings, handshakes that are none."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from lineage_run import wait_for
from speech_servers import (
    LONG_TEXT,
    SAME,
    SOCKET,
    TIMEOUT_S,
    audio_of,
    both_forms,
    metric,
    open_socket,
    post,
    raw_request,
    receive,
    same,
    say,
    wait_until_free,
)
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

if TYPE_CHECKING:
    from resources.speech_server import SpeechServer

TEXT = "hello there"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
CHUNKED = "Transfer-Encoding: chunked"
HANDSHAKE = ("Host: x", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")


def answer_to(server: SpeechServer, *lines: str, body: bytes = b"") -> tuple[bytes, bytes]:
    """Head, in lower case, and body of all that the server says until it closes."""
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port), TIMEOUT_S) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                received += data
    head, _, content = received.partition(b"\r\n\r\n")
    return head.lower(), content


def error_in(body: bytes) -> dict[str, Any]:
    """The error of a refusal, which has all of OpenAI's fields."""
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


# ---- text ---------------------------------------------------------------------------------------


@both_forms
def test_half_of_a_pair_is_left_out_of_speech(server: SpeechServer) -> None:
    def spoken(text: str) -> httpx.Response:
        # Not by httpx's own JSON, which has no escapes.
        body = json.dumps({"input": text, **SAME})
        return httpx.post(f"{server.url}/v1/audio/speech", content=body, timeout=TIMEOUT_S)

    expected = post(server, TEXT).content
    for text in ("hello \ud83d there", "hello there\ude00", "hello \ud83d\ude00 there"):
        assert same(spoken(text).raise_for_status().content, expected)
    nothing = spoken("\ud83d")
    assert (nothing.status_code, error_in(nothing.content)["code"]) == (400, "nothing_to_speak")


def test_an_emoji_that_two_messages_hold_half_of_loses_no_words(server: SpeechServer) -> None:
    with open_socket(server) as client:
        say(client, "hello \ud83d", "\ude00 there")
        messages = receive(client, "session.done")
        say(client, "hello \ud83d")
        halved = receive(client, "session.done")
    assert messages[0]["sentence_text"] == "hello \U0001f600 there"
    assert same(audio_of(messages), post(server, TEXT).content)
    assert halved[0]["sentence_text"] == "hello \ufffd"
    assert same(audio_of(halved), post(server, "hello").content)


# ---- bodies -------------------------------------------------------------------------------------


def test_a_body_with_a_byte_order_mark_is_spoken(server: SpeechServer) -> None:
    body = b"\xef\xbb\xbf" + json.dumps({"input": TEXT, **SAME}).encode()
    answer = httpx.post(f"{server.url}/v1/audio/speech", content=body, timeout=TIMEOUT_S)
    assert same(answer.raise_for_status().content, post(server, TEXT).content)


def test_a_compressed_body_is_told_that_it_is(server: SpeechServer) -> None:
    body = json.dumps({"input": TEXT, **SAME}).encode()
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        for coding in ("gzip", "GZIP", "br", "identity, gzip"):
            headers = {"content-encoding": coding}
            answer = client.post("/v1/audio/speech", content=gzip.compress(body), headers=headers)
            error = error_in(answer.content)
            assert (answer.status_code, error["code"]) == (415, "unsupported_encoding")
            assert coding in error["message"]
        for coding in ("identity", ""):
            headers = {"content-encoding": coding}
            answer = client.post("/v1/audio/speech", content=body, headers=headers)
            assert answer.status_code == 200, answer.text


# ---- versions and methods -----------------------------------------------------------------------


@both_forms
def test_a_client_of_http_1_0_gets_a_stream_that_it_can_read(server: SpeechServer) -> None:
    for fields in ({}, {"stream_format": "sse"}, {"stream": False}):
        body = json.dumps({"input": TEXT, **SAME, **fields}).encode()
        head, content = answer_to(
            server,
            *("POST /v1/audio/speech HTTP/1.0", f"Content-Length: {len(body)}"),
            *("Connection: keep-alive",),
            body=body,
        )
        assert head.startswith(b"http/1.1 200")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        expected = post(server, TEXT, **fields).content
        if "stream_format" in fields:
            last = json.loads(content.rstrip().rpartition(b"data: ")[2])
            assert content.startswith(b"event: speech.audio.delta\n")
            assert last["type"] == "speech.audio.done"
        else:
            assert same(content, expected)


def test_a_client_of_http_1_0_gets_refusals_and_what_has_a_length(server: SpeechServer) -> None:
    head, content = answer_to(server, "GET /v1/models HTTP/1.0")
    assert f"content-length: {len(content)}".encode() in head
    assert json.loads(content)["object"] == "list"
    head, content = answer_to(
        server, "POST /v1/audio/speech HTTP/1.0", "Content-Length: 2", body=b"{}"
    )
    assert head.startswith(b"http/1.1 400")
    assert error_in(content)["code"] == "missing_parameter"


def test_head_has_the_status_and_headers_of_get_and_no_body(server: SpeechServer) -> None:
    paths = ("/health", "/ready", "/v1/models", "/v1/models/embedded", "/v1/audio/voices")
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        for path in (*paths, "/", "/page.js", "/config", "/openapi.json"):
            head, got = client.head(path), client.get(path)
            assert (head.status_code, head.content) == (200, b""), path
            for name in ("content-type", "content-length"):
                assert head.headers[name] == got.headers[name], path
        assert client.head("/metrics").status_code == 200
        assert client.head("/nowhere").status_code == 404
        refused = client.head("/v1/audio/speech")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        allowed = client.post("/v1/audio/voices/heart").headers["allow"]
        assert allowed == "DELETE"
        assert client.delete("/health").headers["allow"] == "GET, HEAD"


def test_a_host_of_which_no_address_can_be_made_is_no_fault_of_the_server(
    server: SpeechServer,
) -> None:
    head, content = answer_to(server, "GET /nowhere HTTP/1.1", "Host: [", "Connection: close")
    assert head.startswith(b"http/1.1 404")
    assert error_in(content)["code"] == "not_found"


def test_a_client_that_ends_its_sending_side_is_taken_for_gone(server: SpeechServer) -> None:
    ended = metric(server, "speech_requests_total", outcome="cancelled")
    with raw_request(server, LONG_TEXT) as client:
        assert client.recv(12) == b"HTTP/1.1 200"
        client.shutdown(socket.SHUT_WR)
        wait_for(
            lambda: metric(server, "speech_requests_total", outcome="cancelled") == ended + 1,
            "it is counted",
        )
    wait_until_free(server)


# ---- handshakes ---------------------------------------------------------------------------------


def test_a_handshake_at_another_path_is_told_where_the_socket_is(server: SpeechServer) -> None:
    url = server.url.replace("http", "ws")
    for path in ("/", "/v1/audio/speech", f"{SOCKET}/x", "/nothing"):
        with pytest.raises(InvalidStatus) as raised:
            connect(url + path, open_timeout=TIMEOUT_S)
        answer = raised.value.response
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
        error = error_in(bytes(answer.body or b""))
        assert error["code"] == "not_found"
        assert SOCKET in error["message"]


@both_forms
@pytest.mark.parametrize(
    ("start", "lines", "status", "words"),
    [
        (f"GET {SOCKET}", (), 400, "Sec-WebSocket-Key"),
        (f"GET {SOCKET}", ("Sec-WebSocket-Key: short",), 400, "Sec-WebSocket-Key"),
        (f"GET {SOCKET}", (KEY, KEY), 400, "Sec-WebSocket-Key"),
        (f"POST {SOCKET}", (KEY,), 405, "method"),
        # Less than a request's head may be, and more than uvicorn's part for sockets reads.
        (f"GET {SOCKET}", (KEY, "Cookie: " + "x" * 9_000), 431, "WebSocket"),
        (f"GET {SOCKET}", (KEY, *("X-Many: y",) * 200), 431, "WebSocket"),
        (f"GET {SOCKET}", (KEY, CHUNKED), 400, "valid HTTP request"),
    ],
    ids=["no key", "a short key", "two keys", "post", "a long header", "many headers", "a body"],
)
def test_what_is_no_handshake_is_refused_in_openais_form(
    server: SpeechServer, start: str, lines: tuple[str, ...], status: int, words: str
) -> None:
    head, body = answer_to(
        server,
        f"{start} HTTP/1.1",
        *HANDSHAKE,
        *lines,
        body=b"0\r\n\r\n" if CHUNKED in lines else b"",
    )
    assert head.startswith(f"http/1.1 {status} ".encode()), head
    assert b"content-type: application/json" in head
    assert f"content-length: {len(body)}".encode() in head
    error = error_in(body)
    assert error["code"] == "invalid_handshake"
    assert words in error["message"]
    assert (b"\nallow: get" in head) == (status == 405)
    wait_for(lambda: metric(server, "speech_open_connections") <= 1, "no connection is open")
