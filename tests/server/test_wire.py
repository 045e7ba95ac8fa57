"""What two processes say to each other: whole again however the bytes come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import wire
from server.engine import Sampling
from server.speech import Health, SpeechRequest, UtteranceReport
from server.wire import Unpacker, packed

REPORT = UtteranceReport("stop", 15, 30_000, 720, 0, 21, 105, 80.5, None, 900.0, 0.7, None)
MESSAGES = [
    wire.Open(),
    wire.Answering(),
    wire.Speak(
        7, SpeechRequest("a1", "grüße 💬", "heart", Sampling(seed=3, logprobs=2), "keep", True)
    ),
    wire.Cancel(2**40),
    wire.Unfinished(3, busy=True),
    wire.Figures([wire.Family("n", "words", "counter", [("n_total", {"a": "b"}, 2.5)])], 4),
    wire.Scrape(1),
    wire.Loaded(("x", "y"), ("heart",), Sampling(), {"a": [1, {"b": None}]}, 9, Health("ok", 1, 2)),
    wire.Began(7),
    wire.Refused(7, "bad_request", "no", param="input"),
    wire.Ended(7, REPORT),
    wire.HealthIs(Health("degraded", 4, 2)),
    wire.Collect(5),
    wire.Scraped(5, [[], [wire.Family("n", "", "gauge", [])]]),
    wire.Finish("draining"),
    wire.Close(),
]
NUMBERS = st.integers(0, 2**64 - 1)
CHUNKS = st.binary(max_size=200).map(lambda data: data[: len(data) // 2 * 2])


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_the_same_at_the_other_end(message: Any) -> None:
    (frame,) = Unpacker().feed(packed([], [], [message]))
    assert frame.message == message
    assert (frame.audio, frame.taken) == ((), ())


@given(
    audio=st.lists(st.tuples(NUMBERS, CHUNKS)),
    taken=st.lists(st.tuples(NUMBERS, st.integers(0, 2**32 - 1))),
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_audio_is_whole_however_the_bytes_come(
    audio: list[tuple[int, bytes]], taken: list[tuple[int, int]], cuts: list[int]
) -> None:
    data = packed(audio, taken, MESSAGES[:3]) + packed(audio, [], [])
    unpacker, frames, begin = Unpacker(), [], 0
    while begin < len(data):
        size = cuts[begin % len(cuts)]
        frames += unpacker.feed(data[begin : begin + size])
        begin += size
    assert [each for frame in frames for each in frame.audio] == audio + audio
    assert [count for frame in frames for count in frame.taken] == taken
    assert [frame.message for frame in frames if frame.message] == MESSAGES[:3]


def test_an_utterances_end_comes_after_its_audio() -> None:
    frames = list(Unpacker().feed(packed([(7, b"ab")], [], [wire.Ended(7, REPORT)])))
    assert [bool(frame.audio) for frame in frames] == [True, False]
