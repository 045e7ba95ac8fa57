"""A passage: pieces one after the other, joined exactly, ended as one. The engine's part is played
here, chunk by chunk; test_service.py has the real one."""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest

from server.engine import Sampling
from server.errors import BadRequestError
from server.frames import SAMPLE_RATE_HZ
from server.limits import Limits
from server.metrics import Metrics
from server.passage import Part, Passage, PassagePiece, piece_seed
from server.rendition import Rendition
from server.serving import Model, Serving
from server.speech import (
    FinishReason,
    Health,
    SpeechRequest,
    Utterance,
    UtteranceReport,
)
from server.speech_options import SpeechBody
from server.voices import Voices

SOUND = np.full(4_800, 8_000, "<i2").tobytes()
QUIET_SAMPLES = 2_400  # 0.1 s
LEAD_IN_S = 0.03


def report(reason: FinishReason = "stop", samples: int = 7_200, **changed) -> UtteranceReport:
    given = {
        "frames": 4, "samples": samples, "trimmed_samples": 992, "misaligned_tokens": 0,
        "input_tokens": 10, "output_tokens": 28, "ttfa_ms": 5.0, "first_made_ms": 5.5,
        "ttfs_ms": 6.0, "total_ms": 50.0, "rtf": 0.5, **changed,
    }  # fmt: skip
    return UtteranceReport(finish_reason=reason, **given)


@dataclass
class Engine:
    """Plays the engine and the text: parts to give, pieces begun, and what has been ended."""

    parts: list[Part | Exception] = field(default_factory=list)
    begun: list[PassagePiece] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def next_part(self) -> Part | None:
        part = self.parts.pop(0) if self.parts else None
        if isinstance(part, Exception):
            raise part
        return part

    def cancel(self, name: str) -> None:
        self.cancelled.append(name)

    def passage(self, *, most_tokens: int | None = None) -> Passage:
        request = SpeechRequest("it", "the text", "heart", Sampling(seed=7), "keep")
        return Passage(
            request,
            self.next_part,
            lambda _, piece: self.begun.append(piece),
            self.cancel,
            self.ended.append,
            asked_s=0.0,
            most_tokens=most_tokens,
        )

    async def piece(self, number: int) -> PassagePiece:
        while len(self.begun) <= number:
            await asyncio.sleep(0)
        return self.begun[number]

    async def speak(self, number: int, made: UtteranceReport | None = None) -> None:
        """Make a piece: sound, 0.1 s of silence, and its end."""
        piece = await self.piece(number)
        piece.put(SOUND)
        piece.put(bytes(2 * QUIET_SAMPLES))
        piece.end(made or report())


def part(name: str, pause_s: float = 0.4) -> Part:
    return Part(name, len(name), [1, 2], pause_s)


async def read(passage: Passage) -> list[bytes]:
    return [chunk async for chunk in passage.audio]


def test_pieces_follow_each_other_with_the_rest_of_their_pause_between() -> None:
    async def scenario():
        engine = Engine([part("two", pause_s=0.05), part("three")])
        passage = engine.passage()
        passage.begin(part("one", pause_s=0.4))
        for number in range(3):
            assert len(engine.begun) <= number  # Never two at once.
            await engine.speak(number)
        return engine, passage, await read(passage)

    engine, passage, chunks = asyncio.run(scenario())
    # 0.1 s of the pause is there already, and the next lead-in keeps 30 ms; 50 ms are over.
    silence = round((0.4 - 0.1 - LEAD_IN_S) * SAMPLE_RATE_HZ)
    quiet = bytes(2 * QUIET_SAMPLES)
    assert chunks == [SOUND, quiet, bytes(2 * silence), SOUND, quiet, SOUND, quiet]
    made = passage.audio.report
    assert made.finish_reason == "stop"
    assert made.inserted_samples == silence
    assert made.samples == 3 * 7_200 + silence == len(b"".join(chunks)) // 2
    assert (made.frames, made.output_tokens, made.input_tokens) == (12, 84, 30)
    assert (made.ttfa_ms, made.first_made_ms, made.rtf) == (5.0, 5.5, 0.5)
    assert made.trimmed_samples == 3 * 992
    assert engine.ended == ["it"]
    asked = [piece.request for piece in engine.begun]
    assert [one.id for one in asked] == ["it/0", "it/1", "it/2"]
    assert [one.lead_in for one in asked] == ["keep", "trim", "trim"]
    assert [one.whole for one in asked] == [False, True, True]
    assert [one.sampling.seed for one in asked] == [piece_seed(7, n) for n in range(3)]
    # What is kept of a piece's end is no more than the pause holds.
    assert [round(one.tail_s, 3) for one in asked] == [0.15, 0.02, 0.15]


def test_seeds_of_pieces_are_their_own_and_the_first_is_the_requests() -> None:
    seeds = [piece_seed(5, number) for number in range(100)] + [piece_seed(6, n) for n in range(9)]
    assert seeds[0] == 5
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_cancel_ends_the_piece_that_is_spoken_and_begins_no_other() -> None:
    async def scenario():
        engine = Engine([part("two")])
        passage = engine.passage()
        passage.begin(part("one"))
        piece = await engine.piece(0)
        piece.put(SOUND)
        passage.audio.cancel()
        assert engine.cancelled == ["it/0"]
        assert engine.ended == []  # Its place is free when the engine's slot is.
        piece.end(report("cancelled"))
        chunks = await read(passage)
        return engine, passage.audio.report, chunks

    engine, made, chunks = asyncio.run(scenario())
    assert chunks == [SOUND]
    assert made.finish_reason == "cancelled"
    assert (len(engine.begun), engine.ended) == (1, ["it"])


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_cancel_at_once_or_just_after_a_piece_leaves_no_place_behind(has_begun: bool) -> None:
    async def scenario():
        engine = Engine([part("two")])
        passage = engine.passage()
        passage.begin(part("one"))
        if has_begun:
            piece = await engine.piece(0)
            piece.put(bytes(2 * 30 * SAMPLE_RATE_HZ))  # The next would wait for its reader.
            piece.end(report())
        passage.cancel()
        await read(passage)
        return engine, passage.audio.report

    engine, made = asyncio.run(scenario())
    assert made.finish_reason == "cancelled"
    assert (len(engine.begun), engine.ended) == (int(has_begun), ["it"])


def test_the_next_piece_waits_for_a_reader_that_takes_nothing_and_for_no_other() -> None:
    async def scenario():
        engine = Engine([part("two")])
        passage = engine.passage()
        passage.begin(part("one"))
        piece = await engine.piece(0)
        for _ in range(25):
            piece.put(bytes(2 * SAMPLE_RATE_HZ))
        piece.end(report(samples=25 * SAMPLE_RATE_HZ))
        while engine.parts:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        waits = len(engine.begun) == 1
        taking = asyncio.create_task(read(passage))
        await engine.speak(1)
        return waits, await taking, engine

    waits, chunks, engine = asyncio.run(scenario())
    assert waits
    assert sum(map(len, chunks)) > 50 * SAMPLE_RATE_HZ
    assert engine.ended == ["it"]


@pytest.mark.parametrize(
    ("end", "second", "reason", "words"),
    [
        (None, BadRequestError("cannot be put into phonemes"), "error", "phonemes"),
        (None, RuntimeError("a fault of ours"), "error", "RuntimeError: a fault of ours"),
        (report("error", error="the engine died"), part("two"), "error", "the engine died"),
        (report(samples=0), part("two"), "error", "no audio for 'one'"),
    ],
)
def test_what_fails_in_a_piece_ends_the_whole(end, second, reason, words) -> None:
    async def scenario():
        engine = Engine([second, part("three")])
        passage = engine.passage()
        passage.begin(part("one"))
        await engine.speak(0, end)
        await read(passage)
        return engine, passage.audio.report

    engine, made = asyncio.run(scenario())
    assert made.finish_reason == reason
    assert words in made.error
    assert (len(engine.begun), engine.ended) == (1, ["it"])


def test_a_piece_that_a_guard_cut_is_told_and_the_rest_is_spoken() -> None:
    async def scenario():
        engine = Engine([part("two")])
        passage = engine.passage()
        passage.begin(part("one"))
        await engine.speak(0, report("loop"))
        await engine.speak(1)
        await read(passage)
        return passage.audio.report

    made = asyncio.run(scenario())
    assert (made.finish_reason, made.frames) == ("loop", 8)


def test_tokens_that_a_client_allows_are_of_all_pieces_together() -> None:
    async def scenario():
        engine = Engine([part("two"), part("three")])
        passage = engine.passage(most_tokens=40)
        passage.begin(part("one"))
        await engine.speak(0)
        await engine.speak(1, report("length", output_tokens=12))
        await read(passage)
        return engine, passage.audio.report

    engine, made = asyncio.run(scenario())
    assert [piece.request.sampling.max_tokens for piece in engine.begun] == [40, 12]
    assert made.finish_reason == "length"


class Reciter:
    """Plays a service: any text is so many pieces of a second each, as fast as they are taken."""

    def __init__(self, pieces: int) -> None:
        self._pieces = itertools.repeat(part("more"), pieces - 1)

    async def speak(self, request: SpeechRequest) -> Utterance:
        passage = Passage(
            *(request, lambda: next(self._pieces, None), self._submit),
            *(lambda _: None, lambda _: None),
            asked_s=0.0,
            most_tokens=None,
        )
        passage.begin(part("one"))
        return passage.audio

    def _submit(self, _: Part, piece: PassagePiece) -> None:
        def play() -> None:
            piece.put(bytes(bytearray(5 * SOUND)))  # Its own, as the codec's is.
            piece.end(report(samples=SAMPLE_RATE_HZ))

        asyncio.get_running_loop().call_soon(play)

    def health(self) -> Health:
        return Health("ok", 1, 0)

    def abandon(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("name", "speed"), [("pcm", 1.0), ("mp3", 1.25)])
def test_a_text_of_hundreds_of_pieces_leaves_nothing_of_its_audio_in_memory(name, speed) -> None:
    pieces, warm = 400, 100  # 250 letters each are the hundred thousand that a text may have.
    serving = Serving(Limits(), Metrics())
    serving.loaded(Model(Reciter(pieces), ("it",), Voices(("heart",)), Sampling(), {}))
    body = SpeechBody(input="the text", response_format=name, speed=speed)

    async def scenario() -> tuple[int, int]:
        kept = 0
        with (
            await serving.begin(body.input, body, "http", "label") as delivery,
            Rendition(delivery, name, speed) as rendition,
        ):
            while (audio := await rendition.next()) is not None:
                rendition.sent(audio)
                if not kept and delivery.sent_samples > warm * SAMPLE_RATE_HZ:
                    gc.collect()
                    kept = tracemalloc.get_traced_memory()[0]
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - kept, delivery.sent_samples

    tracemalloc.start()
    try:
        grown, samples = asyncio.run(scenario())
    finally:
        tracemalloc.stop()
    assert samples >= pieces * SAMPLE_RATE_HZ
    # 300 pieces of 48,000 bytes went out meanwhile; as mp3 of 6,400.
    assert grown < 256 * 1024
