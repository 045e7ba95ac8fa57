"""Servers that go wrong over real sockets: each fault has its name."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from bench.speaking_server import speaking_server
from websockets.asyncio.server import ServerConnection, serve

from speech_assets.bench.exchange import Exchange
from speech_assets.bench.http_client import HttpClient
from speech_assets.bench.rows import row
from speech_assets.bench.schedule import Plan
from speech_assets.bench.target import Target
from speech_assets.bench.ws_client import WsClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

PLAN = Plan(request=0, text=0, seed=1, cancel_after_s=None)
# Long enough for a busy machine where an answer is awaited, short where silence is.
PATIENT_S, BRIEF_S = 30.0, 0.5
PCM = b"\x00\x20" * 2_400


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


def test_a_wav_header_with_every_chunk_is_named(url: str) -> None:
    to = target(url, PATIENT_S, headers={"x-do": "headers"}, format="wav")
    found = ask(HttpClient, to)
    assert found["outcome"] == "header_per_chunk"
    # The audio between the headers is still known.
    assert found["audio_s"] == pytest.approx(0.8)


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "aac", "mulaw", "wav"])
def test_every_format_is_decoded_as_its_pieces_come(url: str, kind: str) -> None:
    headers = {"x-pieces": "10", "x-gap-ms": "30"}
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
