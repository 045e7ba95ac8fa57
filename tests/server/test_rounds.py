"""Rounds: where a whole utterance ends does not depend on how far generation is ahead.

The engine's tokens are written here, in bursts of any size; the codec is real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from conftest import CODEC
from written_engine import Heard, WrittenEngine

from server.codec import load_codec
from server.codec_decoder import CodecDecoder
from server.engine import Sampling
from server.frames import TokenLayout
from server.metrics import Metrics
from server.plan import PlannerConfig
from server.planner import Planner
from server.rounds import PARK_S, Rounds, Submission
from server.speech import SpeechRequest, UtteranceReport

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAYOUT = TokenLayout()
CHARACTERS = 40  # 3.5 s expected, 6.2 s at the longest


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return CodecDecoder(load_codec(CODEC))


def spoken(decoder: CodecDecoder, codes: NDArray[np.integer], burst: int) -> tuple[bytes, str]:
    rounds = Rounds(
        WrittenEngine(LAYOUT.token_ids(codes.reshape(-1)).tolist(), burst),
        decoder,
        Planner(PlannerConfig(unpaced_in_batches=False)),
        LAYOUT,
        Metrics(),
    )
    request = SpeechRequest("it", "text", "heart", Sampling(seed=1), "keep", whole=True)
    rounds.begin(Submission(request, [1], CHARACTERS, Heard(), 0.0))
    while not rounds.idle:
        rounds.turn()
    *chunks, report = [event for _, event in rounds.events]
    assert isinstance(report, UtteranceReport)
    return b"".join(chunks), report.finish_reason


@pytest.mark.parametrize(
    ("frames", "period", "reason"),
    [(70, 6, "loop"), (60, 60, "stop"), (75, 75, "stop"), (90, 90, "length")],
)
def test_an_utterance_asked_for_whole_ends_where_its_codes_say(decoder, frames, period, reason):
    codes = np.random.default_rng(3).integers(0, 1_500, (period, 7))
    codes = np.resize(codes, (frames, 7))
    ways = {burst: spoken(decoder, codes, burst) for burst in (1, 7, 50, frames * 7)}
    assert {ended for _, ended in ways.values()} == {reason}
    assert len({audio for audio, _ in ways.values()}) == 1


class Clock:
    """A millisecond later each time that it is looked at."""

    now_ms = 0

    def monotonic(self) -> float:
        self.now_ms += 1
        return self.now_ms / 1e3


def test_a_stream_whose_reader_stalls_is_paused_at_the_next_whole_frame(
    decoder, monkeypatch
) -> None:
    monkeypatch.setattr("server.rounds.time", Clock())
    codes = np.random.default_rng(4).integers(0, 1_500, (400, 7))
    engine = WrittenEngine(LAYOUT.token_ids(codes.reshape(-1)).tolist(), 1)
    rounds = Rounds(engine, decoder, Planner(PlannerConfig()), LAYOUT, Metrics())
    request = SpeechRequest("it", "text", "heart", Sampling(seed=1), "keep")
    reader = Heard()
    rounds.begin(Submission(request, [1], 4 * CHARACTERS, reader, 0.0))
    for _ in range(7 * 12 + 3):  # Not at a frame's end.
        rounds.turn()
    assert engine.busy
    reader.lead_s = PARK_S + 1
    while engine.busy:  # It is looked at once audio comes, or time has passed.
        rounds.turn()
    assert engine.ids
    assert len(engine.ids) % 7 == 0
    assert not rounds.idle
