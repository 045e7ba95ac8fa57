"""Who is let in by a real server: tokens, pages of other sites, and clients that send nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest
from lineage_run import wait_for
from prometheus_client.parser import text_string_to_metric_families
from speech_servers import LONG_TEXT, SOCKET, TIMEOUT_S
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

if TYPE_CHECKING:
    from conftest import Guarded
    from websockets.sync.client import ClientConnection

# What processes that answer clients do each for itself.
both_forms = pytest.mark.parametrize(
    "guarded", ["guarded_one_process", "guarded_api_processes"], indirect=True, scope="session"
)

TEXT = "hello there"
EVIL = "http://evil.example"


def counted(guarded: Guarded, name: str, **labels: str) -> float:
    text = httpx.get(
        f"{guarded.url}/metrics", headers=guarded.headers, timeout=TIMEOUT_S, verify=False
    ).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def speak(guarded: Guarded, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{guarded.url}/v1/audio/speech",
        json={"input": TEXT, "seed": 1},
        headers=headers,
        timeout=TIMEOUT_S,
    )


def address(guarded: Guarded) -> tuple[str, int]:
    url = httpx.URL(guarded.url)
    assert url.port is not None
    return url.host, url.port


def answer_to(guarded: Guarded, *parts: bytes) -> tuple[int, dict[str, Any]]:
    """Status and body of what the server says to these bytes before it closes."""
    with socket.create_connection(address(guarded), TIMEOUT_S) as client:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                client.sendall(part)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                received += data
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]


def next_answer(client: socket.socket) -> tuple[int, bytes]:
    """Status and whole body of the answer to the last request: it may come in several packets."""
    with http.client.HTTPResponse(client) as answer:
        answer.begin()
        return answer.status, answer.read()


# ---- tokens -------------------------------------------------------------------------------------


def test_openais_client_is_let_in_with_any_of_the_tokens_and_not_without(guarded: Guarded) -> None:
    for token in (guarded.token, guarded.other_token):
        with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=token) as api:
            assert api.audio.speech.create(model="tts-1", voice="alloy", input=TEXT).content
    with (
        openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=guarded.token + "x") as api,
        pytest.raises(openai.AuthenticationError) as raised,
    ):
        api.audio.speech.create(model="tts-1", voice="alloy", input=TEXT)
    assert raised.value.code == "invalid_api_key"
    assert raised.value.response.headers["www-authenticate"] == "Bearer"
    assert raised.value.response.headers["x-request-id"]


def test_only_the_probes_and_the_page_are_open(guarded: Guarded) -> None:
    opened = ("/health", "/ready", "/", "/page.js", "/player.js", "/page.css", "/icon.svg")
    closed = ("/metrics", "/config", "/openapi.json", "/v1/models", "/v1/audio/voices", "/nowhere")
    assert {
        path: httpx.get(guarded.url + path, timeout=TIMEOUT_S).status_code
        for path in opened + closed
    } == {
        **dict.fromkeys(opened, 200),
        **dict.fromkeys(closed, 401),
    }
    assert httpx.post(f"{guarded.url}/v1/audio/voices", timeout=TIMEOUT_S).status_code == 401
    for path in closed[:-1]:
        assert (
            httpx.get(guarded.url + path, headers=guarded.headers, timeout=TIMEOUT_S).status_code
            == 200
        )


@both_forms
def test_a_body_is_not_read_for_one_without_a_token(guarded: Guarded) -> None:
    # Of its 100 bytes one comes, and the answer does not wait for the others.
    status, error = answer_to(
        guarded, b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    )
    assert (status, error["code"]) == (401, "invalid_api_key")


@both_forms
def test_a_socket_needs_a_token_in_its_header_or_among_its_protocols(guarded: Guarded) -> None:
    url = guarded.url.replace("http", "ws") + SOCKET
    with pytest.raises(InvalidStatus) as raised, connect(url, open_timeout=TIMEOUT_S):
        pytest.fail("it was let in")
    answer = raised.value.response
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"
    with (
        pytest.raises(InvalidStatus),
        connect(url, subprotocols=["speech", "bearer.wrong"], open_timeout=TIMEOUT_S),
    ):
        pytest.fail("it was let in")
    with connect(url, additional_headers=guarded.headers, open_timeout=TIMEOUT_S) as client:
        assert client.subprotocol is None
    offers = ["speech", f"bearer.{guarded.token}"]
    with connect(url, subprotocols=offers, open_timeout=TIMEOUT_S) as client:
        # The token is not sent back, where a log of a proxy would have it.
        assert client.subprotocol == "speech"


@both_forms
def test_a_request_that_is_no_handshake_brings_no_token_among_its_protocols(
    guarded: Guarded,
) -> None:
    offers = {"upgrade": "websocket", "sec-websocket-protocol": f"speech, bearer.{guarded.token}"}
    answer = speak(guarded, **offers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (
        httpx.get(f"{guarded.url}/v1/models", headers=offers, timeout=TIMEOUT_S).status_code == 401
    )


# ---- pages of other sites -----------------------------------------------------------------------


def test_a_page_of_another_site_may_not_make_it_speak(guarded: Guarded) -> None:
    refused = counted(guarded, "speech_requests_total", outcome="refused", transport="http")
    # What a form of any page can send without asking: no preflight, no token needed to be refused.
    for origin in (EVIL, "null", "http://[", f"{guarded.url}.evil.example"):
        answer = speak(guarded, origin=origin, **guarded.headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
        assert "access-control-allow-origin" not in answer.headers
    refused += 4
    assert counted(guarded, "speech_requests_total", outcome="refused", transport="http") == refused
    for origin in (guarded.url, guarded.allowed_origin):
        assert speak(guarded, origin=origin, **guarded.headers).status_code == 200


def test_a_preflight_is_answered_for_an_allowed_site_alone(guarded: Guarded) -> None:
    def preflight(origin: str) -> httpx.Response:
        return httpx.options(
            f"{guarded.url}/v1/audio/speech",
            headers={
                "origin": origin,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization, content-type, x-stainless-os",
            },
        )

    answer = preflight(guarded.allowed_origin)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == guarded.allowed_origin
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    refused = preflight(EVIL)
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers


def test_a_page_of_an_allowed_site_may_read_answers_and_refusals(guarded: Guarded) -> None:
    spoken = speak(guarded, origin=guarded.allowed_origin, **guarded.headers)
    assert "x-speech-seed" in spoken.headers["access-control-expose-headers"]
    refused = speak(guarded, origin=guarded.allowed_origin)
    assert refused.status_code == 401
    for answer in (spoken, refused):
        assert answer.headers["access-control-allow-origin"] == guarded.allowed_origin


# ---- connections --------------------------------------------------------------------------------


@both_forms
def test_a_connection_that_sends_nothing_is_told_so_and_closed(guarded: Guarded) -> None:
    slow = counted(guarded, "speech_connections_refused_total", reason="slow_headers")
    assert answer_to(guarded)[0] == 408
    assert answer_to(guarded, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")[0] == 408
    status, error = answer_to(guarded, b"\r\n")
    assert (status, error["code"]) == (408, "headers_timeout")
    slow += 3
    assert counted(guarded, "speech_connections_refused_total", reason="slow_headers") == slow


@both_forms
def test_a_second_request_that_stops_within_its_headers_is_closed(guarded: Guarded) -> None:
    with socket.create_connection(address(guarded), TIMEOUT_S) as client:
        client.sendall(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert next_answer(client)[0] == 200
        client.sendall(b"GET /ready HTTP/1.1\r\nHo")
        assert next_answer(client)[0] == 408
        assert client.recv(1) == b""


def test_the_rest_of_a_body_that_was_refused_unread_begins_no_request(guarded: Guarded) -> None:
    slow = counted(guarded, "speech_connections_refused_total", reason="slow_headers")
    half = (
        f"POST /nope HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {guarded.token}\r\n"
        f"Content-Length: 100\r\n\r\n{'x' * 50}"
    ).encode()
    with socket.create_connection(address(guarded), TIMEOUT_S) as client:
        client.sendall(half)
        assert next_answer(client)[0] == 404
        client.sendall(b"x" * 50)
        # Others are told after `headers_s` that they were slow: this one would have been by then.
        assert answer_to(guarded)[0] == 408
        assert answer_to(guarded)[0] == 408
        client.sendall(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert next_answer(client)[0] == 200
        # And the next one behind such a rest is bounded as any.
        client.sendall(half)
        assert next_answer(client)[0] == 404
        client.sendall(b"x" * 50 + b"GET /ready HTTP/1.1\r\nHo")
        assert next_answer(client)[0] == 408
    slow += 3
    assert counted(guarded, "speech_connections_refused_total", reason="slow_headers") == slow


@both_forms
@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Large: " + b"x" * 9_000 + b"\r\n\r\n",
        b"GET /health?" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-Many: y\r\n" * 1_000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Endless: " + b"x" * 500_000,
        b"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nX-Large: " + b"x" * 9_000 + b"\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nContent-Length: 5\r\nX: "
        + b"x" * 9_000
        + b"\r\n\r\n{}",
    ],
    ids=["header", "line", "many", "endless", "socket", "with a body"],
)
def test_headers_that_are_too_large_are_refused(guarded: Guarded, head: bytes) -> None:
    status, error = answer_to(guarded, head)
    assert (status, error["code"]) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "rest",
    [
        b"0\r\n" + b"X-Many: y\r\n" * 1_000 + b"\r\n",
        b"0\r\nX-Endless: " + b"x" * 500_000,
        b"5;endless=" + b"x" * 500_000,
    ],
    ids=["many trailers", "an endless trailer", "an endless chunk's head"],
)
def test_what_goes_on_and_on_behind_a_head_ends_the_connection(
    guarded: Guarded, rest: bytes
) -> None:
    large = counted(guarded, "speech_connections_refused_total", reason="large_headers")
    with socket.create_connection(address(guarded), TIMEOUT_S) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(
                b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                + f"Authorization: Bearer {guarded.token}\r\n\r\n".encode()
                + b"2\r\n{}\r\n"
                + rest
            )
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                received += data
    assert b" 400 " not in received  # That of the body: it was not taken as a request.
    large += 1
    assert counted(guarded, "speech_connections_refused_total", reason="large_headers") == large


def test_trailers_of_a_modest_size_are_let_pass(guarded: Guarded) -> None:
    with socket.create_connection(address(guarded), TIMEOUT_S) as client:
        client.sendall(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            + f"Authorization: Bearer {guarded.token}\r\n\r\n".encode()
            + b"2\r\n{}\r\n0\r\nX-Few: y\r\n\r\n"
        )
        status, body = next_answer(client)
    assert (status, json.loads(body)["error"]["code"]) == (400, "missing_parameter")


@both_forms
def test_a_head_without_end_behind_a_request_ends_the_connection(guarded: Guarded) -> None:
    large = counted(guarded, "speech_connections_refused_total", reason="large_headers")
    body = json.dumps({"input": LONG_TEXT, "seed": 1}).encode()
    with socket.create_connection(address(guarded), TIMEOUT_S) as client:
        client.sendall(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\n"
            + f"Authorization: Bearer {guarded.token}\r\n".encode()
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert client.recv(12) == b"HTTP/1.1 200"
        # While it is answered, the next request's head begins and does not end.
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET /ready HTTP/1.1\r\nX-Endless: " + b"x" * 2_000_000)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                received += data
    assert b"HTTP/1.1 431" not in received  # It would look like audio.
    assert not received.endswith(b"0\r\n\r\n")
    large += 1
    assert counted(guarded, "speech_connections_refused_total", reason="large_headers") == large


@both_forms
def test_more_connections_than_may_be_are_told_so_and_the_others_stay(guarded: Guarded) -> None:
    with (
        contextlib.ExitStack() as stack,
        httpx.Client(base_url=guarded.url, timeout=TIMEOUT_S) as first,
    ):
        assert first.get("/ready").status_code == 200
        clients = [
            stack.enter_context(socket.create_connection(address(guarded), TIMEOUT_S))
            for _ in range(40 * guarded.answering + 5)
        ]
        assert select.select(clients, (), (), TIMEOUT_S)[0]  # It is full.
        assert first.get("/ready").status_code == 200
        answers = [next_answer(client) for client in clients]
    codes = [json.loads(body)["error"]["code"] for _, body in answers]
    # Those that were let in said nothing for a second.
    assert set(codes) == {"too_many_connections", "headers_timeout"}
    assert codes.count("too_many_connections") >= 5
    assert {status for status, _ in answers} == {503, 408}
    wait_for(lambda: speak(guarded, **guarded.headers).status_code == 200, "there is room again")


@both_forms
def test_more_sockets_than_may_be_are_told_so(guarded: Guarded) -> None:
    url = guarded.url.replace("http", "ws") + SOCKET
    with contextlib.ExitStack() as stack:
        opened: list[ClientConnection] = []

        def open_them() -> None:
            for _ in range(3 * guarded.answering + 1):
                client = connect(url, additional_headers=guarded.headers, open_timeout=TIMEOUT_S)
                opened.append(stack.enter_context(client))

        with pytest.raises(InvalidStatus) as raised:
            open_them()
        # Three at each process that answers clients; one of them may be full before the other.
        assert 3 <= len(opened) <= 3 * guarded.answering
        wait_for(lambda: counted(guarded, "speech_open_sockets") == len(opened), "they are open")
        answer = raised.value.response
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert json.loads(answer.body)["error"]["code"] == "too_many_sockets"
    wait_for(lambda: counted(guarded, "speech_open_sockets") == 0, "they are closed")
    with connect(url, additional_headers=guarded.headers, open_timeout=TIMEOUT_S):
        pass
