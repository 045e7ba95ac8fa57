"""Planner, decoder and trims together: what streams out is the one-shot decode of the codes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from server import frames
from server.codec import load_codec
from server.codec_decoder import CodecDecoder
from server.codec_rows import DecodeRow
from server.lead_in import LeadIn
from server.level import amplitude
from server.plan import PlannerConfig
from server.planner import Planner
from server.tail import Tail
from speech_assets.corpus.audio import decode_clip

if TYPE_CHECKING:
    from numpy.typing import NDArray

EMBEDDED = Path(__file__).parents[2] / "server" / "embedded" / "codec"


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    torch.set_num_threads(1)
    return CodecDecoder(load_codec(EMBEDDED))


@pytest.fixture(scope="module")
def utterances(decoder: CodecDecoder, short_rows: list[dict]) -> list[tuple[NDArray, NDArray]]:
    """Codes of 0.6 s of near-silence and 1.2 s of speech, with their one-shot decode."""
    codec = load_codec(EMBEDDED)
    made = []
    for number, row in enumerate(short_rows[:3]):
        clip = decode_clip(row["audio"]["bytes"], path=row["path"]).samples
        quiet = np.random.default_rng(number).normal(0, amplitude(-58) / 32_768, 14_400)
        samples = np.concatenate([quiet.astype(np.float32), clip])[: 20 * 2_048]
        codes = codec.encode(samples)
        made.append((codes, decoder.decode_utterance(codes, number)))
    return made


class Service:
    """One thread's loop in small: tokens in, plans, decodes, and samples to each player out."""

    def __init__(self, decoder: CodecDecoder, config: PlannerConfig) -> None:
        self.decoder, self.planner = decoder, Planner(config)
        self.codes: dict[str, NDArray] = {}
        self.tokens: dict[str, int] = {}
        self.lead_ins: dict[str, LeadIn] = {}
        self.tails: dict[str, Tail | None] = {}
        self.sent: dict[str, list[NDArray]] = {}
        self.now = 0.0

    def open(self, name: str, codes: NDArray, lead_in: LeadIn, tail: Tail | None) -> None:
        self.codes[name], self.tokens[name] = codes.reshape(-1), 0
        self.lead_ins[name], self.tails[name], self.sent[name] = lead_in, tail, []
        self.planner.open(name, lead_in=lead_in.searching)

    def step(self, counts: dict[str, int], step_s: float) -> None:
        self.now += step_s
        for name, count in counts.items():
            self.tokens[name] += count
        self.planner.add(counts, self.now)
        self.decode()

    def decode(self) -> None:
        for batch in self.planner.tick(self.now):
            rows = [
                DecodeRow(
                    self.codes[row.stream][: self.tokens[row.stream]],
                    row.start,
                    row.latents,
                    row.end,
                    int(row.stream),
                )
                for row in batch.rows
            ]
            audio = self.decoder.submit(rows, batch.hop).pcm()
            self.now += 0.01
            wanted = self.planner.delivered(batch, self.now)
            for row, pcm, want in zip(batch.rows, audio, wanted, strict=True):
                if want and row.lead_in == self.lead_ins[row.stream].searching:
                    self._take(row.stream, pcm, row.lead_in)

    def _take(self, name: str, pcm: NDArray, lead_in: bool) -> None:
        search, tail = self.lead_ins[name], self.tails[name]
        if lead_in:
            latent = search.search(pcm)
            if latent is None and self.planner.done(name):
                latent = search.give_up()
            if latent is not None:
                self.planner.speak(name, latent)
            self._send(name, search.due(self.planner.slack_s(name, self.now), 0.01, 0.0))
            return
        pcm = search.speech(pcm)
        if tail is not None:
            pcm = tail.push(pcm, last=self.planner.done(name))
        self._send(name, pcm)

    def _send(self, name: str, pcm: NDArray) -> None:
        if len(pcm):
            self.sent[name].append(pcm)
            self.planner.sent(name, len(pcm), self.now)

    def finish(self) -> None:
        for name in self.codes:
            self.planner.end(name)
        for _ in range(1_000):
            if all(self.planner.done(name) for name in self.codes):
                return
            self.now += 0.01
            self.decode()
        raise AssertionError("streams that ended are never done")


def errors(sent: list[NDArray], reference: NDArray) -> tuple[float, float]:
    """Relative error of the first chunk and of all that follows, less int16's own."""
    streamed = np.concatenate(sent) / 32_767
    assert streamed.shape == reference.shape
    power = np.sqrt(np.square(reference).mean())
    error, first = streamed - reference, len(sent[0])
    head, rest = (np.sqrt(np.square(part).mean()) for part in (error[:first], error[first:]))
    rounding = 1 / 32_767 / np.sqrt(12)
    return max(0, head - rounding) / power, max(0, rest - rounding) / power


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_streams_of_any_arrivals_give_their_one_shot_audio(
    decoder: CodecDecoder, utterances: list, data
) -> None:
    """Bursts, stalls and a cancel: sample counts exact, no row worse than a first chunk."""
    config = PlannerConfig(
        batched=data.draw(st.booleans()),
        first_chunk_frames=data.draw(st.sampled_from([None, 1, 4])),
        largest_hop=data.draw(st.sampled_from([1, 4])),
    )
    service = Service(decoder, config)
    for name, (codes, _) in enumerate(utterances):
        service.open(str(name), codes, LeadIn("keep"), None)
    cancelled = data.draw(st.sampled_from([None, "0", "1"]))
    for number in range(40):
        if number == 8 and cancelled:
            service.planner.close(cancelled)
        counts = {}
        for name, codes in service.codes.items():
            count = min(data.draw(st.integers(0, 12)), len(codes) - service.tokens[name])
            if count:
                counts[name] = count
        service.step(counts, data.draw(st.sampled_from([0.002, 0.03, 0.8])))
    for name, codes in service.codes.items():
        left = len(codes) - service.tokens[name]
        if left:
            service.step({name: left}, 0.01)
    service.finish()
    for name, (_, reference) in enumerate(utterances):
        if str(name) != cancelled:
            assert max(errors(service.sent[str(name)], reference)) <= 4e-3


def test_streams_whose_tokens_come_in_time_are_exact_after_the_first_chunk(
    decoder: CodecDecoder, utterances: list
) -> None:
    service = Service(decoder, PlannerConfig())
    for name, (codes, _) in enumerate(utterances):
        service.open(str(name), codes, LeadIn("keep"), None)
    for _ in range(140):
        service.step(dict.fromkeys(service.codes, 1), 0.006)
    service.finish()
    for name, (_, reference) in enumerate(utterances):
        first, rest = errors(service.sent[str(name)], reference)
        assert first <= 4e-3
        assert rest <= 1e-4


def test_a_trimmed_stream_is_the_one_shot_audio_without_its_silence(
    decoder: CodecDecoder, utterances: list
) -> None:
    service = Service(decoder, PlannerConfig())
    for name, (codes, _) in enumerate(utterances):
        service.open(str(name), codes, LeadIn(), Tail())
    for _ in range(140):
        service.step(dict.fromkeys(service.codes, 1), 0.006)
    service.finish()
    for name, (_, reference) in enumerate(utterances):
        lead_in, tail = service.lead_ins[str(name)], service.tails[str(name)]
        streamed = np.concatenate(service.sent[str(name)])
        trimmed = lead_in.trimmed_samples + tail.trimmed_samples
        assert len(streamed) + trimmed == len(reference) == 20 * frames.SAMPLES_PER_FRAME
        assert 0.1 * 24_000 < lead_in.trimmed_samples < 0.6 * 24_000
        # What was sent of the lead-in lies before the cut, and after it the fade-in.
        kept = len(reference) - tail.trimmed_samples
        speech = kept - round(0.58 * 24_000)
        sound, expected = streamed[-speech:-192] / 32_767, reference[kept - speech : kept - 192]
        assert np.linalg.norm(sound - expected) <= 4e-3 * np.linalg.norm(expected)
