"""Silence at both ends is found, paced and cut, and every sample is accounted for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import frames
from server.lead_in import LeadIn, LeadInConfig
from server.level import BLOCK_SAMPLES, BlockReader, amplitude, block_rms
from server.tail import Tail
from speech_assets.corpus.audio import decode_clip

RATE = frames.SAMPLE_RATE_HZ
LATENT = frames.SAMPLES_PER_LATENT


def noise(seconds: float, dbfs: float, seed: int = 0) -> np.ndarray:
    samples = np.random.default_rng(seed).normal(0, amplitude(dbfs), round(seconds * RATE))
    return samples.round().clip(-32_768, 32_767).astype(np.int16)


def utterance(*parts: tuple[float, float]) -> np.ndarray:
    """Noise of (seconds, dBFS) one after the other, filled up to whole latents with silence."""
    joined = np.concatenate([noise(*part, seed=i) for i, part in enumerate(parts)])
    return np.pad(joined, (0, -len(joined) % LATENT))


def pieces(samples: np.ndarray, latents: list[int]):
    """Consecutive chunks of so many latents, the list over and over."""
    at, index = 0, 0
    while at < len(samples):
        size = latents[index % len(latents)] * LATENT
        yield samples[at : at + size]
        at, index = at + size, index + 1


def speak(
    samples: np.ndarray,
    lead_in: LeadIn,
    tail: Tail,
    chunks: list[int],
    slack_s: float = 0.0,
    reserve_s: float = 0.01,
    until_speech_s: float = 0.0,
) -> tuple[np.ndarray, int]:
    """What a service sends of an utterance whose decode is `samples`, and the onset's latent."""
    out, begin = [], 0
    if lead_in.searching:
        found = None
        for chunk in pieces(samples, [2, 4, 4]):
            found = lead_in.search(chunk)
            if found is not None:
                break
            out.append(lead_in.due(slack_s, reserve_s, until_speech_s))
        begin = lead_in.give_up() if found is None else found
        out.append(lead_in.due(slack_s, reserve_s, until_speech_s))
    for chunk in pieces(samples[begin * LATENT :], chunks):
        out.append(tail.push(lead_in.speech(chunk)))
        out.append(tail.due(slack_s, reserve_s))
    out.append(tail.push(samples[:0], last=True))
    return np.concatenate(out), begin


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.floats(0, 1.5), st.sampled_from([-80.0, -53.0, -47.0, -24.0])), max_size=6
    ),
    chunks=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    slack_s=st.sampled_from([0.0, 0.005, 0.2]),
    reserve_s=st.sampled_from([0.01, 0.08]),
    until_speech_s=st.sampled_from([0.0, 0.1, 0.5]),
    mode=st.sampled_from(["trim", "keep"]),
)
def test_what_is_sent_and_what_is_trimmed_make_the_utterance(
    parts, chunks, slack_s, reserve_s, until_speech_s, mode
) -> None:
    samples = utterance(*parts, (0.1, -30.0))
    lead_in, tail = LeadIn(mode), Tail()
    sent, _ = speak(samples, lead_in, tail, chunks, slack_s, reserve_s, until_speech_s)
    trimmed = lead_in.trimmed_samples + tail.trimmed_samples
    assert len(sent) + trimmed == len(samples)
    if mode == "keep":
        assert lead_in.trimmed_samples == 0
        assert np.array_equal(sent[:-192], samples[: len(sent) - 192])


def test_lead_in_is_cut_to_30_ms_before_the_onset_and_faded_in() -> None:
    samples = utterance((0.6, -53.0), (0.5, -24.0))
    lead_in = LeadIn()
    sent, begin = speak(samples, lead_in, Tail(), [4], slack_s=1.0)
    onset = round(0.6 * RATE)
    first = 2 * LATENT  # the first piece is sent whatever comes
    start = first + lead_in.trimmed_samples
    assert onset - 0.040 * RATE <= start <= onset - 0.020 * RATE
    assert begin == start // LATENT
    assert np.array_equal(sent[:first], samples[:first])
    fade = round(0.005 * RATE)
    assert sent[first] == 0
    assert np.abs(sent[first : first + fade]).sum() < np.abs(samples[start : start + fade]).sum()
    spoken = samples[start + fade : onset + 2_400]
    assert np.array_equal(sent[first + fade :][: len(spoken)], spoken)


def test_the_more_slack_is_asked_for_the_more_silence_is_sent() -> None:
    samples = utterance((0.6, -53.0), (0.5, -24.0))

    def lead_in_sent(reserve_s: float) -> int:
        """With a player in real time: 43 ms of silence decoded every 43 ms."""
        lead_in, sent, dry_s, now = LeadIn(), 0, 0.0, 0.0
        for chunk in pieces(samples, [2]):
            now += 2 * LATENT / RATE
            if lead_in.search(chunk) is not None:
                return sent
            piece = lead_in.due(max(0.0, dry_s - now), reserve_s, 0.0)
            sent += len(piece)
            dry_s = max(dry_s, now) + len(piece) / RATE
        raise AssertionError("no onset")

    little, much = lead_in_sent(0.010), lead_in_sent(0.100)
    assert 2 * LATENT < little < much <= round(0.6 * RATE)


def test_pieces_are_sent_only_as_the_player_needs_them() -> None:
    lead_in = LeadIn()
    assert lead_in.search(noise(0.03, -60)) is None
    assert len(lead_in.due(0.0, 0.010, 0.0)) == 0  # the first piece is whole
    assert lead_in.search(noise(0.27, -60)) is None
    assert len(lead_in.due(0.0, 0.010, 0.0)) == 2 * LATENT
    assert len(lead_in.due(0.043, 0.010, 0.0)) == 0
    assert len(lead_in.due(0.004, 0.010, 0.0)) == 240
    assert len(lead_in.due(0.0, 0.035, 0.0)) == 4 * 240
    assert len(lead_in.due(0.0, 10.0, 0.0)) == round(0.3 * RATE) - 2 * LATENT - 5 * 240
    assert len(lead_in.due(0.0, 10.0, 0.0)) == 0


def test_nothing_is_sent_before_what_is_held_lasts_until_speech() -> None:
    lead_in = LeadIn()
    assert lead_in.search(noise(0.15, -60)) is None
    assert len(lead_in.due(0.0, 0.010, until_speech_s=0.160)) == 0
    assert len(lead_in.due(0.0, 0.010, until_speech_s=0.150)) == 2 * LATENT


def test_silence_goes_on_after_the_onset_is_found_until_speech_is_there() -> None:
    """Speech is decoded after it was found: a player would run dry meanwhile."""
    samples = utterance((0.4, -53.0), (0.5, -24.0))
    lead_in = LeadIn()
    begin = lead_in.search(samples)
    assert begin is not None
    sent = len(lead_in.due(0.0, 0.010, 0.1))
    for _ in range(3):
        sent += len(lead_in.due(0.0, 0.040, 0.1))
    assert sent == 2 * LATENT + 3 * 4 * 240
    sent += len(lead_in.due(0.0, 10.0, 0.1))
    assert abs(sent - 0.37 * RATE) <= 0.010 * RATE  # Up to 30 ms before it, all there is.
    assert len(lead_in.due(0.0, 10.0, 0.1)) == 0
    spoken = lead_in.speech(samples[begin * LATENT :])
    assert lead_in.trimmed_samples == 0
    assert np.array_equal(spoken, samples[sent:])


def test_a_whisper_is_sent_whole_when_the_search_gives_up() -> None:
    samples = utterance((2.0, -53.0))
    lead_in = LeadIn()
    sent, begin = speak(samples, lead_in, Tail(), [4], slack_s=1.0)
    assert begin == 2
    assert lead_in.trimmed_samples == 0
    assert np.array_equal(sent[: 3 * LATENT], samples[: 3 * LATENT])


def test_an_utterance_of_silence_alone_still_gives_audio() -> None:
    samples = utterance((0.4, -70.0))
    lead_in, tail = LeadIn(), Tail()
    sent, _ = speak(samples, lead_in, tail, [4])
    assert len(sent) > 0.15 * RATE
    assert lead_in.trimmed_samples == 0


def test_a_click_or_an_offset_is_no_onset() -> None:
    samples = noise(1.0, -60).astype(np.int32)
    samples[6_000:6_100] += 5_000  # 4 ms: above in one window or two that overlap
    offset = (samples * 0 + 600 + noise(1.0, -60)).astype(np.int16)
    assert LeadIn().search(offset) is None
    lead_in = LeadIn(config=LeadInConfig(search_s=0.9))
    assert lead_in.search(noise(1.0, -44.0)) == 0
    assert LeadIn().search(noise(1.0, -46.5)) is None


def test_the_onset_of_real_speech_is_found_where_its_level_rises(short_rows: list[dict]) -> None:
    for row in short_rows[:6]:
        clip = decode_clip(row["audio"]["bytes"], path=row["path"]).samples
        speech = (clip * 32_767).astype(np.int16)
        samples = np.concatenate([noise(0.6, -58), speech])
        samples = np.pad(samples, (0, -len(samples) % LATENT))
        lead_in = LeadIn()
        sent, _ = speak(samples, lead_in, Tail(), [4, 8, 16], slack_s=1.0)
        start = 2 * LATENT + lead_in.trimmed_samples
        loud = np.flatnonzero(block_rms(samples) > amplitude(-40.0))[0] * BLOCK_SAMPLES
        assert 0.5 * RATE < start <= loud
        assert math.isclose(len(sent) + lead_in.trimmed_samples, len(samples), rel_tol=0.2)


def test_keep_sends_everything_unchanged() -> None:
    samples = utterance((0.6, -53.0), (0.5, -24.0))
    lead_in = LeadIn("keep")
    assert not lead_in.searching
    assert lead_in.search(samples) is None
    assert len(lead_in.due(0.0, 1.0, 0.0)) == 0
    assert np.array_equal(lead_in.speech(samples), samples)


@pytest.mark.parametrize("chunks", [[1], [4], [3, 16], [100]])
def test_a_long_tail_is_cut_to_150_ms_however_it_comes_and_faded(chunks: list[int]) -> None:
    samples = utterance((0.5, -24.0), (0.7, -60.0))
    tail = Tail()
    sent, _ = speak(samples, LeadIn("keep"), tail, chunks, slack_s=1.0)
    assert len(sent) == round((0.5 + 0.15) * RATE)
    assert tail.trimmed_samples == len(samples) - len(sent)
    assert np.array_equal(sent[:12_000], samples[:12_000])


def test_speech_that_ends_at_once_is_faded_out_in_8_ms() -> None:
    samples = utterance((0.512, -24.0))
    tail = Tail()
    first, last = tail.push(samples[: 16 * LATENT]), tail.push(samples[16 * LATENT :], last=True)
    sent = np.concatenate([first, last])
    assert len(sent) == len(samples)
    assert sent[-1] == 0
    assert np.array_equal(sent[:-192], samples[:-192])
    ratio = np.abs(sent[-192:]).astype(float).sum() / np.abs(samples[-192:]).astype(float).sum()
    assert ratio == pytest.approx(0.5, abs=0.1)


def test_a_pause_is_held_while_the_player_has_audio_and_sent_when_sound_returns() -> None:
    samples = utterance((0.4, -24.0), (0.6, -60.0), (0.4, -24.0))
    speech, pause = round(0.4 * RATE), round(0.6 * RATE)
    tail = Tail()
    sent = tail.push(samples[: speech + pause])
    assert len(sent) == speech + 3_600
    assert len(tail.due(slack_s=1.0, reserve_s=0.1)) == 0
    assert len(tail.due(slack_s=0.05, reserve_s=0.1)) == 5 * 240
    rest = tail.push(samples[speech + pause :])
    assert len(sent) + 5 * 240 + len(rest) == len(samples)
    assert tail.trimmed_samples == 0


@given(st.lists(st.integers(0, 700), max_size=20))
def test_blocks_are_the_same_however_samples_are_cut(sizes: list[int]) -> None:
    samples = noise(sum(sizes) / RATE, -30.0)
    reader, levels = BlockReader(), []
    at = 0
    for size in sizes:
        levels += reader.read(samples[at : at + size]).tolist()
        at += size
        assert reader.carried == at % BLOCK_SAMPLES
    assert np.array_equal(levels, block_rms(samples))
