"""Speech over the socket between processes, on a real engine: as if it were made on the spot."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import CODEC
from letters import Letters
from small_voice import write_small_voice

from server import rounds
from server.checkpoint import open_checkpoint
from server.codec import load_codec
from server.codec_decoder import CodecDecoder
from server.engine import EngineSettings, Sampling, open_engine
from server.errors import BadRequestError, OverloadedError
from server.frames import SAMPLE_RATE_HZ, SAMPLES_PER_FRAME
from server.link import Link
from server.metrics import Metrics
from server.plan import PlannerConfig
from server.relay import Relay
from server.remote import RemoteService
from server.service import EngineService
from server.speech import SpeechRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from server.speech import SpeechService, Utterance
    from server.wire import Frame


# torch's, of what vLLM imports.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
)

SETTINGS = EngineSettings(max_streams=4, max_model_len=512)
FRAMES = 12


def request(
    seed: int,
    name: str,
    *,
    text: str = "the same words",
    frames: int = FRAMES,
    whole: bool = False,
) -> SpeechRequest:
    """A request; its bytes do not depend on the clock if it is for a `whole` answer."""
    sampling = Sampling(seed=seed, repetition_penalty=1.0, max_tokens=7 * frames)
    return SpeechRequest(name, text, "heart", sampling, "keep", whole)


async def spoken(
    service: SpeechService, asked: SpeechRequest, *, chunks: int | None = None
) -> tuple[Any, Any]:
    """Audio, int16, and the report; cancelled after so many chunks if asked to."""
    utterance = await service.speak(asked)
    parts: list[Any] = []
    async for chunk in utterance:
        parts.append(np.frombuffer(chunk, "<i2"))
        if len(parts) == chunks:
            utterance.cancel()
    return np.concatenate([np.zeros(0, np.int16), *parts]), utterance.report


async def drained(utterance: Utterance) -> None:
    async for _ in utterance:
        pass


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[EngineService]:
    checkpoint = open_checkpoint(write_small_voice(tmp_path_factory.mktemp("voice"), ends=False))

    def open_parts():
        decoder = CodecDecoder(load_codec(CODEC))
        decoder.warm_up()
        return open_engine(checkpoint, SETTINGS), decoder

    service = EngineService(
        open_parts,
        Letters(checkpoint),
        checkpoint.layout,
        PlannerConfig(unpaced_in_batches=False),  # As on a CPU: bytes are of the seed alone.
        Metrics(),
        max_streams=4,
        max_queue=2,
        longest_wait_s=60,
    )
    yield service
    service.close()


@contextlib.asynccontextmanager
async def linked(service: EngineService) -> AsyncGenerator[tuple[RemoteService, Link, list[Frame]]]:
    """The service as an API process has it; its link, and what came over that."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    heard: list[Frame] = []

    def hear_there(frame: Frame) -> None:
        relay.taken(frame.taken)
        if frame.message is not None:
            relay.hear(frame.message)  # pyright: ignore[reportArgumentType]

    def hear_here(frame: Frame) -> None:
        heard.append(frame)
        remote.put(frame.audio)
        if frame.message is not None:
            remote.hear(frame.message)

    there, here = Link(hear_there), Link(hear_here)
    relay = Relay(service, there, lambda: None)
    remote = RemoteService(here, service.health())
    await loop.create_unix_connection(lambda: there, sock=theirs)
    await loop.create_unix_connection(lambda: here, sock=ours)
    try:
        yield remote, here, heard
    finally:
        here.close()
        await there.lost.wait()
        relay.close()
        await until(lambda: len(relay) == 0)
        await until(lambda: service.health().active_streams == 0)
        there.close()
        await here.lost.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, as long as the test may take."""
    while not condition():
        await asyncio.sleep(0.001)


def test_streams_are_the_bytes_that_the_service_itself_gives(service: EngineService) -> None:
    async def scenario() -> tuple[Any, Any, int]:
        direct = [
            await spoken(service, request(seed, f"direct-{seed}", whole=True)) for seed in (1, 2, 3)
        ]
        async with linked(service) as (remote, _, heard):
            apart = await asyncio.gather(
                *(spoken(remote, request(seed, f"whole-{seed}", whole=True)) for seed in (1, 2, 3))
            )
            return direct, apart, max(len(frame.audio) for frame in heard)

    direct, apart, most = asyncio.run(scenario())
    for (audio, report), (expected, by) in zip(apart, direct, strict=True):
        assert audio.tobytes() == expected.tobytes()
        assert (report.finish_reason, report.samples) == (by.finish_reason, by.samples)
        assert report.output_tokens == by.output_tokens
    assert most > 1  # Audio of several streams came in one frame.


def test_what_the_service_refuses_is_refused_as_there(service: EngineService) -> None:
    async def scenario() -> list[Any]:
        async with linked(service) as (remote, _, _):
            with pytest.raises(BadRequestError, match="can be spoken") as raised:
                await remote.speak(request(1, "nothing", text="0123"))
            assert (raised.value.param, raised.value.code) == ("input", "nothing_to_speak")
            crowd = [request(seed, f"crowd-{seed}", frames=4) for seed in range(9)]
            return await asyncio.gather(
                *(spoken(remote, one) for one in crowd), return_exceptions=True
            )

    outcomes = asyncio.run(scenario())
    refused = [o for o in outcomes if isinstance(o, OverloadedError)]
    assert len(refused) == 3  # 4 places, 2 in the queue
    assert all(error.retry_after_s == 1 and "2 requests wait" in str(error) for error in refused)
    assert all(o[1].finish_reason == "length" for o in outcomes if not isinstance(o, Exception))


def test_a_cancel_frees_the_place_and_changes_nothing_for_the_next(service: EngineService) -> None:
    async def scenario() -> tuple[Any, Any, Any]:
        async with linked(service) as (remote, _, _):
            cancelled, neighbour = await asyncio.gather(
                spoken(remote, request(99, "cancelled"), chunks=1),
                spoken(remote, request(4, "whole", whole=True)),
            )
            await until(lambda: service.health().active_streams == 0)
            return cancelled, neighbour, await spoken(remote, request(4, "again", whole=True))

    (_, report), (one, _), (other, _) = asyncio.run(scenario())
    assert report.finish_reason == "cancelled"
    assert one.tobytes() == other.tobytes()


def test_who_is_gone_before_it_began_leaves_no_place(service: EngineService) -> None:
    """Given up in the very turn that asked, in the text front end, and in the queue."""

    async def scenario() -> tuple[int, Any]:
        async with linked(service) as (remote, _, _):
            at_once = asyncio.create_task(remote.speak(request(1, "at-once")))
            await asyncio.sleep(0)
            at_once.cancel()
            talking = [await remote.speak(request(s, f"talk-{s}")) for s in range(4)]
            waiting = asyncio.create_task(remote.speak(request(9, "waiting")))
            await until(lambda: service.health().queued == 1)
            waiting.cancel()
            await until(lambda: service.health().queued == 0)
            await asyncio.gather(at_once, waiting, return_exceptions=True)
            active = service.health().active_streams
            await asyncio.gather(*map(drained, talking))
            return active, await spoken(remote, request(1, "after", whole=True))

    active, (_, report) = asyncio.run(scenario())
    assert active == 4
    assert report.finish_reason == "length"


def test_a_reader_that_takes_nothing_pauses_its_generation_and_loses_nothing(
    service: EngineService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "PARK_S", 0.3)
    monkeypatch.setattr(rounds, "RESUME_S", 0.1)

    async def scenario() -> tuple[float, Any, Any, Any]:
        async with linked(service) as (remote, _, _):
            expected, _ = await spoken(remote, request(2, "flows"))
            utterance = await remote.speak(request(2, "stalls"))
            await spoken(remote, request(3, "other"))
            stalled_s = utterance.lead_s
            parts = [np.frombuffer(chunk, "<i2") async for chunk in utterance]
            return stalled_s, np.concatenate(parts), utterance.report, expected

    stalled_s, audio, report, expected = asyncio.run(scenario())
    assert 0 < stalled_s < 12 * SAMPLES_PER_FRAME / SAMPLE_RATE_HZ  # It did not run to its end.
    assert report.finish_reason == "length"
    assert len(audio) == len(expected)
    difference = np.abs(audio.astype(np.float64) - expected)
    assert np.linalg.norm(difference) < 4e-3 * np.linalg.norm(expected.astype(np.float64))


def test_the_end_of_the_other_process_frees_every_place(service: EngineService) -> None:
    async def scenario() -> tuple[int, int]:
        async with linked(service) as (remote, _, _):
            for seed in range(4):
                await remote.speak(request(seed, f"left-{seed}"))
            waiting = asyncio.create_task(remote.speak(request(9, "left-waiting")))
            await until(lambda: service.health().queued == 1)
        # Leaving waits until the relay has nothing more.
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        now = service.health()
        return now.active_streams, now.queued

    assert asyncio.run(scenario()) == (0, 0)
