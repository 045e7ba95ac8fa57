"""One process' share of a load, run in this one: what it counts, and what it survives."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from bench.speaking_server import speaking_server

from speech_assets.bench.http_client import HttpClient
from speech_assets.bench.load import Load
from speech_assets.bench.part import Part
from speech_assets.bench.target import Target

if TYPE_CHECKING:
    from speech_assets.bench.exchange import Exchange
    from speech_assets.bench.schedule import Plan


def part(load: str) -> Part:
    """One request now; the next arrival of an open load is far away."""
    return Part(
        load=load,  # pyright: ignore[reportArgumentType]
        start_s=time.monotonic(),
        warmup_s=0.0,
        duration_s=0.2,
        process=0,
        processes=1,
        first_request=0,
        seed=1,
        texts=1,
        cancel_share=0.0,
        streams=1,
        least=1,
        rate=0.001,
        arrivals="constant",
        until_s=3_600.0,
        in_flight_cap=9,
    )


def target(url: str) -> Target:
    return Target(
        api="openai",
        speech_url=f"{url}/v1/audio/speech",
        is_ours=False,
        format="pcm",
        texts=("Hello.",),
        voice=None,
        model=None,
        headers={},
        fresh_connections=False,
        timeout_s=30.0,
    )


def test_the_task_that_waits_for_arrivals_is_no_request_that_was_cut() -> None:
    async def run(url: str) -> tuple[dict[str, Any], list[Exchange]]:
        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "complete":
                load.finish()

        client = HttpClient(target(url))
        load = Load(part("open"), client, tell)
        try:
            return await load.run(), list(load.exchanges())
        finally:
            load.close()
            await client.close()

    with speaking_server() as (url, _):
        facts, exchanges = asyncio.run(run(url))
    assert [exchange.outcome for exchange in exchanges] == ["ok"]
    assert (facts["cut"], facts["unfinished"], facts["faults"]) == (0, 0, [])


def test_a_client_that_raises_ends_one_request_and_not_the_process() -> None:
    class Surprised:
        async def speak(self, plan: Plan, exchange: Exchange) -> None:
            exchange.sent_s = time.monotonic()
            raise LookupError(f"request {plan.request}")

    async def run() -> list[Exchange]:
        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "complete":
                load.finish()

        load = Load(part("closed"), Surprised(), tell)
        try:
            await load.run()
            return list(load.exchanges())
        finally:
            load.close()

    exchanges = asyncio.run(run())
    assert exchanges
    assert {exchange.outcome for exchange in exchanges} == {"garbage"}
    assert exchanges[0].error == "LookupError: request 0"
