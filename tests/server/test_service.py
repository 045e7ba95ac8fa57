"""The service on a real engine and the embedded codec: what streams is what one decode gives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
from conftest import CODEC
from letters import Letters
from small_voice import write_small_voice

from server import rounds
from server.checkpoint import open_checkpoint
from server.codec import load_codec
from server.codec_decoder import CodecDecoder
from server.engine import EngineSettings, Generation, Sampling, open_engine
from server.errors import BadRequestError, EngineDiedError, OverloadedError
from server.frames import SAMPLES_PER_FRAME
from server.metrics import Metrics
from server.plan import PlannerConfig
from server.service import EngineService
from server.speech import SpeechRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.checkpoint import Checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

SETTINGS = EngineSettings(max_streams=4, max_model_len=512)
SEEDS = range(1, 7)
FRAMES = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Checkpoint:
    return open_checkpoint(write_small_voice(tmp_path_factory.mktemp("voice"), ends=False))


def request(seed: int, *, text: str = "the same words", frames: int = FRAMES, name: str = ""):
    sampling = Sampling(seed=seed, repetition_penalty=1.0, max_tokens=7 * frames)
    return SpeechRequest(name or f"seed-{seed}", text, "heart", sampling, "keep")


@pytest.fixture(scope="module")
def one_shot(checkpoint) -> dict[int, np.ndarray]:
    """What one decode of all its codes gives, by seed, in -1..1."""
    engine = open_engine(checkpoint, SETTINGS)
    tokens: dict[str, list[int]] = {}
    try:
        for seed in SEEDS:
            asked = request(seed)
            ids = Letters(checkpoint).encode(asked.text, asked.voice)
            engine.add(Generation(asked.id, ids, asked.sampling))
            while engine.busy:
                for output in engine.step():
                    tokens.setdefault(output.request_id, []).extend(output.token_ids)
    finally:
        engine.close()
    decoder = CodecDecoder(load_codec(CODEC))
    layout = checkpoint.layout
    return {
        seed: decoder.decode_utterance(layout.codes(tokens[f"seed-{seed}"]), seed) for seed in SEEDS
    }


@pytest.fixture(scope="module")
def service(checkpoint, one_shot) -> Iterator[EngineService]:
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


async def spoken(service, asked, *, chunks: int | None = None):
    """Audio, int16, and the report; cancelled after so many chunks if asked to."""
    utterance = await service.speak(asked)
    parts = []
    async for chunk in utterance:
        parts.append(np.frombuffer(chunk, "<i2"))
        if len(parts) == chunks:
            utterance.cancel()
    return np.concatenate([np.zeros(0, np.int16), *parts]), utterance.report


async def drained(utterance) -> None:
    async for _ in utterance:
        pass


def assert_is_one_shot(audio: np.ndarray, whole: np.ndarray) -> None:
    """Within the tolerance of rows cut before the codes to their right exist."""
    expected = np.round(whole[: len(audio)] * 32_767)
    difference = audio[:-192].astype(np.float64) - expected[:-192]  # 8 ms fade at the end
    assert np.linalg.norm(difference) / np.linalg.norm(expected) < 4e-3
    steady = slice(3 * SAMPLES_PER_FRAME, None)
    assert np.linalg.norm(difference[steady]) / np.linalg.norm(expected[steady]) < 1e-3


def test_streams_side_by_side_give_what_one_decode_gives(service, one_shot):
    async def scenario():
        return await asyncio.gather(*(spoken(service, request(seed)) for seed in list(SEEDS)[:4]))

    for seed, (audio, report) in zip(SEEDS, asyncio.run(scenario()), strict=False):
        assert report.finish_reason == "length"
        assert report.frames == FRAMES
        assert report.samples == len(audio)
        assert report.samples + report.trimmed_samples == FRAMES * SAMPLES_PER_FRAME
        assert report.misaligned_tokens == 0
        assert report.output_tokens == 7 * FRAMES
        assert 0 < report.ttfa_ms <= report.total_ms
        assert_is_one_shot(audio, one_shot[seed])


def test_a_cancelled_neighbour_changes_nothing(service, one_shot):
    async def scenario():
        return await asyncio.gather(
            spoken(service, request(5)),
            spoken(service, request(99, name="cancelled"), chunks=1),
            spoken(service, request(6)),
        )

    whole, (_, cancelled), other = asyncio.run(scenario())
    assert cancelled.finish_reason == "cancelled"
    assert_is_one_shot(whole[0], one_shot[5])
    assert_is_one_shot(other[0], one_shot[6])
    assert service.health().active_streams == 0


def test_more_requests_than_places_wait_and_more_than_that_are_told_to_come_again(service):
    async def scenario():
        asked = [request(seed, name=f"crowd-{seed}", frames=4) for seed in range(9)]
        return await asyncio.gather(
            *(spoken(service, one) for one in asked), return_exceptions=True
        )

    outcomes = asyncio.run(scenario())
    refused = [o for o in outcomes if isinstance(o, OverloadedError)]
    assert len(refused) == 3  # 4 places, 2 in the queue
    assert all(o[1].finish_reason == "length" for o in outcomes if not isinstance(o, Exception))
    assert service.health().queued == service.health().active_streams == 0


def test_a_place_in_the_queue_is_given_up_with_its_request(service):
    async def scenario():
        talking = [await service.speak(request(s, name=f"talk-{s}")) for s in range(4)]
        waiting = asyncio.create_task(service.speak(request(9, name="waiting")))
        while service.health().queued < 1:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        queued = service.health().queued
        await asyncio.gather(*map(drained, talking))
        return queued, await spoken(service, request(1, name="after"))

    queued, (_, report) = asyncio.run(scenario())
    assert queued == 0
    assert report.finish_reason == "length"


def test_a_reader_that_takes_nothing_pauses_its_generation_and_loses_nothing(
    service, one_shot, monkeypatch
):
    monkeypatch.setattr(rounds, "PARK_S", 0.3)
    monkeypatch.setattr(rounds, "RESUME_S", 0.1)

    async def scenario():
        utterance = await service.speak(request(2, name="stalls"))
        other = await spoken(service, request(3, name="flows"))
        stalled_s = utterance.lead_s
        parts = [np.frombuffer(chunk, "<i2") async for chunk in utterance]
        return stalled_s, np.concatenate(parts), utterance.report, other

    stalled_s, audio, report, (flowed, _) = asyncio.run(scenario())
    assert stalled_s < 12 * SAMPLES_PER_FRAME / 24_000  # It did not run to its end.
    assert report.finish_reason == "length"
    assert report.frames == FRAMES
    assert report.samples + report.trimmed_samples == FRAMES * SAMPLES_PER_FRAME
    assert_is_one_shot(audio, one_shot[2])
    assert_is_one_shot(flowed, one_shot[3])


def test_a_text_with_nothing_to_speak_is_the_clients_fault(service):
    with pytest.raises(BadRequestError, match=r"nothing in the text .0123. can be spoken"):
        asyncio.run(service.speak(request(1, text="0123", name="nothing")))


def test_a_text_that_is_refused_tells_nothing_of_how_long_places_are_held(service):
    remembered = list(service._places._held_s)
    with pytest.raises(BadRequestError):
        asyncio.run(service.speak(request(1, text="0123", name="nothing")))
    assert list(service._places._held_s) == remembered


PARAGRAPHS = "ab\n\ncd\n\nef"  # Three pieces of some 2 s each: guards end them.


def passage(seed: int, name: str, **changed) -> SpeechRequest:
    sampling = Sampling(seed=seed, repetition_penalty=1.0, max_tokens=SETTINGS.max_model_len)
    return SpeechRequest(name, PARAGRAPHS, "heart", sampling, **{"whole": True, **changed})


def test_a_passage_is_the_same_bytes_for_a_seed_and_its_samples_are_exact(service):
    async def scenario():
        return await asyncio.gather(
            spoken(service, passage(1, "one")), spoken(service, passage(1, "two"))
        )

    (first, report), (second, _) = asyncio.run(scenario())
    assert np.array_equal(first, second)
    assert report.samples == len(first)
    assert report.finish_reason == "length"
    assert report.inserted_samples > 0
    made = report.samples - report.inserted_samples + report.trimmed_samples
    assert made == report.frames * SAMPLES_PER_FRAME
    assert service.health().active_streams == service.health().queued == 0


def test_passages_hold_a_place_each_and_more_of_them_than_places_are_all_spoken(service):
    async def scenario():
        asked = [passage(seed, f"crowd-of-{seed}") for seed in range(6)]
        tasks = [asyncio.create_task(spoken(service, one)) for one in asked]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, service.health().active_streams)
            await asyncio.sleep(0.05)
        return most, [task.result()[1] for task in tasks]

    most, reports = asyncio.run(scenario())
    assert most == 4
    assert [report.finish_reason for report in reports] == ["length"] * 6


def test_a_cancelled_passage_frees_its_place_at_once(service):
    async def scenario():
        cut = await spoken(service, passage(1, "cut", whole=False), chunks=2)
        return cut, service.health()

    (_, report), health = asyncio.run(scenario())
    assert report.finish_reason == "cancelled"
    assert health.active_streams == 0


def test_an_engine_that_dies_ends_what_it_speaks_and_all_that_comes(service, monkeypatch):
    # The last test: it leaves the service dead.
    def step():
        raise EngineDiedError("the test ends it")

    monkeypatch.setattr(service.engine, "step", step)

    async def scenario():
        return [(await spoken(service, request(s, name=f"dies-{s}")))[1] for s in (1, 2)]

    reports = asyncio.run(scenario())
    assert [r.finish_reason for r in reports] == ["error", "error"]
    assert all("the test ends it" in r.error for r in reports)
    assert service.health().status == "failed"
    service.close()  # Returns.
