"""Servers that go wrong over real sockets: each fault has its name."""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from bench.speaking_server import speaking_server, speech
from websockets.asyncio.server import ServerConnection, serve

from speech_assets.bench.exchange import Exchange
from speech_assets.bench.http_client import HttpClient
from speech_assets.bench.rows import row, table
from speech_assets.bench.schedule import Plan
from speech_assets.bench.target import Target
from speech_assets.bench.ws_client import WsClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from websockets.http11 import Request, Response

PLAN = Plan(request=0, text=0, seed=1, cancel_after_s=None)
# Long enough for a busy machine where an answer is awaited, short where silence is.
PATIENT_S, BRIEF_S = 30.0, 0.5
PCM = speech(2_400)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with speaking_server() as (url, _):
        yield url


def target(url: str, timeout_s: float, **changes: Any) -> Target:
    facts: dict[str, Any] = {
        "api": "openai",
        "speech_url": f"{url}/v1/audio/speech",
        "is_ours": False,
        "format": "pcm",
        "texts": ("Hello.",),
        "voice": None,
        "model": None,
        "headers": {},
        "fresh_connections": False,
        "timeout_s": timeout_s,
        **changes,
    }
    return Target(**facts)


def ask(client_of: type[HttpClient | WsClient], to: Target, plan: Plan = PLAN) -> dict[str, Any]:
    """The row of one request."""

    async def once() -> Exchange:
        client = client_of(to)
        exchange = Exchange(0, 0, 1, None, 0.0)
        try:
            await client.speak(plan, exchange)
        finally:
            await client.close()
        return exchange

    return row(asyncio.run(once()), to.format)


@pytest.mark.parametrize(
    ("do", "timeout_s", "outcome", "words"),
    [
        ("", PATIENT_S, "ok", ""),
        ("odd", PATIENT_S, "ok", ""),
        ("error", PATIENT_S, "http_error", "500: "),
        ("refuse", PATIENT_S, "refused", "429: "),
        ("hang", BRIEF_S, "timeout", "no answer within 0.5 s"),
        ("stall", BRIEF_S, "stalled", "after 9600 bytes"),
        ("truncate", PATIENT_S, "truncated", "content-length"),
        ("page", PATIENT_S, "garbage", "text/html"),
        ("nonsense", PATIENT_S, "garbage", "ESMTP"),
        ("text", PATIENT_S, "garbage", "words came"),
        ("noise", PATIENT_S, "garbage", "white noise"),
        ("silence", PATIENT_S, "silent", "nothing can be heard"),
        ("nothing", PATIENT_S, "silent", "no audio at all"),
        ("leave", PATIENT_S, "disconnected", "after 9600 bytes"),
    ],
)
def test_each_fault_of_a_server_has_its_name(
    url: str, do: str, timeout_s: float, outcome: str, words: str
) -> None:
    found = ask(HttpClient, target(url, timeout_s, headers={"x-do": do}))
    assert (found["outcome"], words in found["error"]) == (outcome, True), found


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: audio/pcm\r\n"


def raw(head: bytes, body: bytes = b"", *, length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    return head + b"content-length: %d\r\n\r\n" % length + body


@pytest.mark.parametrize(
    ("answer", "then", "timeout_s", "outcome", "words"),
    [
        (raw(b"HTTP/1.1 500 X\r\n", length=100), "hang", PATIENT_S, "http_error", "500: no words"),
        (raw(b"HTTP/1.1 500 X\r\n", b"half", length=9), "close", PATIENT_S, "http_error", "half"),
        (raw(b"HTTP/1.1 429 X\r\n", length=100), "close", PATIENT_S, "refused", "429"),
        (
            raw(b"HTTP/1.1 307 X\r\nlocation: http://u:hush@b/?key=hush\r\n"),
            "",
            PATIENT_S,
            "http_error",
            "307 to http://...@b/?...: no words",
        ),
        (raw(HEAD, length=100), "hang", BRIEF_S, "timeout", "no audio after the headers"),
        (
            raw(HEAD.replace(b"audio/pcm", b"Text/HTML; x=y"), speech(2_400)),
            "",
            PATIENT_S,
            "garbage",
            "Text/HTML",
        ),
        (
            raw(HEAD.replace(b"audio/pcm", b"application/problem+json"), speech(2_400)),
            "",
            PATIENT_S,
            "garbage",
            "problem+json",
        ),
        (
            raw(HEAD + b"content-encoding: GZip\r\n", speech(2_400)),
            "",
            PATIENT_S,
            "garbage",
            "packed as GZip",
        ),
        (
            raw(HEAD, "<html>größer</html>".encode() * 9),
            "",
            PATIENT_S,
            "garbage",
            "words came",
        ),
        (raw(HEAD + b"x-finish-reason: st\xffop\r\n", speech(2_400)), "", PATIENT_S, "ok", ""),
        (
            raw(HEAD.replace(b"audio/pcm", b"text/\xff\x1b[2J"), b"hello"),
            "",
            PATIENT_S,
            "garbage",
            "text/",
        ),
    ],
)
def test_an_answer_that_is_odd_to_the_byte_has_its_name_and_can_be_kept(
    url: str, answer: bytes, then: str, timeout_s: float, outcome: str, words: str
) -> None:
    headers = {"x-answer": base64.b64encode(answer).decode(), "x-then": then}
    found = ask(HttpClient, target(url, timeout_s, headers=headers))
    assert (found["outcome"], words in found["error"]) == (outcome, True), found
    # Arrow and a terminal take only what is whole and can be printed.
    kept = table([found]).to_pylist()[0]
    assert kept["error"].isprintable()
    assert (kept["finish_reason"] or "").isprintable()


def test_a_connection_that_breaks_when_used_again_says_so(url: str) -> None:
    broken = {"x-answer": base64.b64encode(HEAD).decode(), "x-then": "close"}

    async def twice() -> tuple[Exchange, Exchange]:
        client = HttpClient(target(url, PATIENT_S))
        first, second = (Exchange(n, 0, 1, None, 0.0) for n in range(2))
        await client.speak(PLAN, first)
        client._target.headers.update(broken)  # pyright: ignore[reportPrivateUsage]
        await client.speak(PLAN, second)
        await client.close()
        return first, second

    first, second = asyncio.run(twice())
    assert (first.outcome, second.outcome) == ("ok", "disconnected")
    assert "used again" in second.error


def test_a_client_out_of_files_knows_that_it_is_its_own_limit(url: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def without_files() -> Exchange:
        client = HttpClient(target(url, PATIENT_S))
        exchange = Exchange(0, 0, 1, None, 0.0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            await client.speak(PLAN, exchange)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await client.close()
        return exchange

    exchange = asyncio.run(without_files())
    assert exchange.outcome == "connect_error"
    assert "EMFILE" in exchange.client_limit
    assert "this client's own limit" in exchange.error


def test_a_wav_header_with_every_chunk_is_named(url: str) -> None:
    to = target(url, PATIENT_S, headers={"x-do": "headers"}, format="wav")
    found = ask(HttpClient, to)
    assert found["outcome"] == "header_per_chunk"
    # The audio between the headers is still known.
    assert found["audio_s"] == pytest.approx(0.8)


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "aac", "mulaw", "wav"])
def test_every_format_is_decoded_as_its_pieces_come(url: str, kind: str) -> None:
    headers = {"x-pieces": "10", "x-gap-ms": "100"}
    found = ask(HttpClient, target(url, PATIENT_S, headers=headers, format=kind))
    assert found["outcome"] == "ok"
    rate = 8_000 if kind == "mulaw" else 24_000
    assert found["audio_s"] == pytest.approx(10 * 4_800 / rate, abs=0.13)
    assert sum(found["chunk_samples"]) == found["samples"]
    assert len(found["chunk_samples"]) > 1
    assert found["ttfb_ms"] <= found["ttfa_ms"] < found["total_ms"]


def test_a_port_where_nobody_listens_is_a_connect_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for client in (HttpClient, WsClient):
        to = target(f"http://127.0.0.1:{port}", PATIENT_S)
        if client is WsClient:
            to = target(f"ws://127.0.0.1:{port}", PATIENT_S, api="ws")
        found = ask(client, to)
        assert found["outcome"] == "connect_error"
        assert str(port) in found["error"]
        assert found["ttfb_ms"] is None


def test_a_server_killed_in_the_middle_of_speech_is_disconnected() -> None:
    with speaking_server() as (url, process):

        async def killed() -> Exchange:
            client = HttpClient(target(url, PATIENT_S, headers={"x-do": "stall"}))
            exchange = Exchange(0, 0, 1, None, 0.0)
            speaking = asyncio.create_task(client.speak(PLAN, exchange))
            while not exchange.arrivals:
                await asyncio.sleep(0)
            process.kill()
            await speaking
            await client.close()
            return exchange

        exchange = asyncio.run(killed())
    assert exchange.outcome == "disconnected"
    assert sum(len(data) for _, data in exchange.arrivals) == 9_600


def test_a_request_cancelled_on_purpose_is_no_failure(url: str) -> None:
    plan = Plan(request=0, text=0, seed=1, cancel_after_s=0.2)
    found = ask(HttpClient, target(url, PATIENT_S, headers={"x-do": "stall"}), plan)
    assert found["outcome"] == "cancelled"
    assert found["cancel_ms"] >= 150
    assert found["samples"] == 4_800


def ask_socket(
    answer: Callable[[ServerConnection], Awaitable[None]],
    *,
    timeout_s: float = PATIENT_S,
    plan: Plan = PLAN,
    times: int = 1,
) -> list[dict[str, Any]]:
    """Rows of requests to a WebSocket server whose connections are handled by `answer`."""

    async def all_of_them() -> list[dict[str, Any]]:
        async with serve(answer, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            to = target("", timeout_s, api="ws", speech_url=f"ws://127.0.0.1:{port}/")
            client = WsClient(to)
            rows: list[dict[str, Any]] = []
            for _ in range(times):
                exchange = Exchange(0, 0, 1, None, 0.0)
                await client.speak(plan, exchange)
                rows.append(row(exchange, "pcm"))
            await client.close()
            return rows

    return asyncio.run(all_of_them())


async def until_done(client: ServerConnection) -> None:
    """Take in an utterance."""
    while json.loads(await client.recv())["type"] != "input.done":
        pass


async def tell(client: ServerConnection, *messages: dict[str, Any] | bytes) -> None:
    for message in messages:
        await client.send(message if isinstance(message, bytes) else json.dumps(message))


DONE = {"type": "audio.done", "finish_reason": "stop"}
COUNTS = {"samples": 2_400, "frames": 2, "trimmed_samples": 1_696}
END = {"type": "session.done"}


@pytest.mark.parametrize(
    ("messages", "outcome", "words"),
    [
        ([{"type": "audio.start"}, PCM, {**DONE, **COUNTS}, END], "ok", ""),
        ([{"type": "error", "code": "overloaded", "message": "full"}, END], "refused", "full"),
        ([{"type": "error", "code": "engine_error", "message": "x"}, END], "http_error", "engine"),
        ([PCM], "disconnected", "closed"),
        ([DONE, END], "silent", "no audio"),
        ([b"\x00" * 4_800, DONE, END], "silent", "nothing can be heard"),
    ],
)
def test_each_answer_of_a_socket_has_its_name(
    messages: list[dict[str, Any] | bytes], outcome: str, words: str
) -> None:
    async def answer(client: ServerConnection) -> None:
        await until_done(client)
        await tell(client, *messages)

    (found,) = ask_socket(answer)
    assert (found["outcome"], words in found["error"]) == (outcome, True), found


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{**DONE, **COUNTS, "samples": 2_400.5}], "samples that are no count: 2400.5"),
        ([{**DONE, **COUNTS, "samples": 10**30}], "no count"),
        ([{**DONE, **COUNTS, "frames": True}], "no count"),
        ([{**DONE, **COUNTS, "trimmed_samples": -1}], "no count"),
        ([{**DONE, "samples": "many"}], "no count"),
        ([{**DONE, "finish_reason": 5}], "finish_reason that is no string"),
        ([{**DONE, "finish_reason": {}}], "finish_reason that is no string"),
        (["[" * 100_000], "RecursionError"),
        (["[1]"], "TypeError"),
        (["5"], "TypeError"),
    ],
)
def test_a_message_that_cannot_be_is_garbage_and_not_the_end_of_the_client(
    messages: list[dict[str, Any] | str], words: str
) -> None:
    async def answer(client: ServerConnection) -> None:
        await until_done(client)
        for message in messages:
            await client.send(message if isinstance(message, str) else json.dumps(message))
        await client.send(json.dumps(END))

    (found,) = ask_socket(answer)
    assert (found["outcome"], words in found["error"]) == ("garbage", True), found


def test_half_a_character_in_an_error_can_be_kept() -> None:
    async def answer(client: ServerConnection) -> None:
        await until_done(client)
        await client.send('{"type": "error", "code": "x", "message": "\\ud800 \\u001b[2J"}')

    (found,) = ask_socket(answer)
    assert found["outcome"] == "http_error"
    assert table([found]).to_pylist()[0]["error"].isprintable()


@pytest.mark.parametrize("place", ["http://127.0.0.1:1/", "::::", "/elsewhere"])
def test_a_handshake_that_is_sent_elsewhere_is_an_http_error_that_names_the_place(
    place: str,
) -> None:
    async def all_of_it() -> dict[str, Any]:
        def redirect(connection: ServerConnection, _: Request) -> Response:
            response = connection.respond(HTTPStatus.FOUND, "")
            response.headers["Location"] = place
            return response

        async def never(_: ServerConnection) -> None:
            raise AssertionError

        async with serve(never, "127.0.0.1", 0, process_request=redirect) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            client = WsClient(target("", PATIENT_S, api="ws", speech_url=f"ws://127.0.0.1:{port}/"))
            exchange = Exchange(0, 0, 1, None, 0.0)
            await client.speak(PLAN, exchange)
            return row(exchange, "pcm")

    found = asyncio.run(all_of_it())
    assert found["outcome"] == "http_error"
    assert f"302 to {place}" in found["error"]


def test_a_socket_is_used_again_and_its_counts_are_kept() -> None:
    async def answer(client: ServerConnection) -> None:
        while True:
            await until_done(client)
            await tell(client, PCM, {**DONE, **COUNTS}, END)

    first, second = ask_socket(answer, times=2)
    assert first["connect_ms"] > 0
    assert second["connect_ms"] is None
    assert second["outcome"] == "ok"
    reported = {name: second[f"reported_{name}"] for name in COUNTS}
    assert reported == COUNTS
    assert second["finish_reason"] == "stop"


def test_a_socket_that_falls_silent_is_stalled_or_timed_out() -> None:
    async def speechless(client: ServerConnection) -> None:
        await client.wait_closed()

    async def stalled(client: ServerConnection) -> None:
        await tell(client, PCM)
        await client.wait_closed()

    for answer, outcome in ((speechless, "timeout"), (stalled, "stalled")):
        (found,) = ask_socket(answer, timeout_s=BRIEF_S)
        assert found["outcome"] == outcome


def test_a_message_that_is_none_is_garbage() -> None:
    async def answer(client: ServerConnection) -> None:
        await client.send("<html>")
        await client.wait_closed()

    (found,) = ask_socket(answer)
    assert found["outcome"] == "garbage"


def test_a_cancelled_utterance_leaves_its_socket_for_the_next() -> None:
    async def answer(client: ServerConnection) -> None:
        while True:
            await until_done(client)
            await tell(client, PCM)
            assert json.loads(await client.recv())["type"] == "session.cancel"
            await tell(client, {**END, "cancelled": True})

    plan = Plan(request=0, text=0, seed=1, cancel_after_s=0.1)
    first, second = ask_socket(answer, plan=plan, times=2)
    assert [found["outcome"] for found in (first, second)] == ["cancelled", "cancelled"]
    assert second["connect_ms"] is None
