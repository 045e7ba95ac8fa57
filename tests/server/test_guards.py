"""Guards cut what does not end, at a dip, and leave speech alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import frames
from server.codec import load_codec
from server.guards import Cut, Guard, GuardConfig
from server.level import amplitude
from speech_assets.corpus.audio import decode_clip

RATE = frames.SAMPLE_RATE_HZ
EMBEDDED = Path(__file__).parents[2] / "server" / "embedded" / "codec"


def noise(seconds: float, dbfs: float, seed: int = 0) -> np.ndarray:
    samples = np.random.default_rng(seed).normal(0, amplitude(dbfs), round(seconds * RATE))
    return samples.round().clip(-32_768, 32_767).astype(np.int16)


def hear(guard: Guard, samples: np.ndarray, chunk: int = 2_048) -> tuple[Cut | None, int]:
    """The cut and its sample of the utterance."""
    for at in range(0, len(samples), chunk):
        cut = guard.hear(samples[at : at + chunk])
        if cut is not None:
            assert 0 < cut.samples <= len(samples[at : at + chunk])
            return cut, at + cut.samples
    return None, len(samples)


def random_codes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4_096, (count, 7)).astype(np.uint16)


def test_what_a_text_should_last() -> None:
    guard = Guard(140)
    assert guard.expected_s == pytest.approx(10.6)
    assert guard.longest_s == pytest.approx(1.8 * 10.6)
    assert guard.max_tokens == 7 * 248  # ceil(11.72 * (1.8 * 10.6 + 2))
    short = Guard(3)
    assert short.longest_s == pytest.approx(short.expected_s + 1.5)
    assert Guard(140, GuardConfig(characters_per_s=20)).expected_s == pytest.approx(7.6)


def test_speech_that_does_not_end_is_cut_at_the_next_dip() -> None:
    guard = Guard(14)  # 1.6 s expected, 3.1 s at the longest
    samples = np.concatenate([noise(3.3, -24), noise(0.04, -45), noise(2, -24)])
    cut, at = hear(guard, samples)
    assert cut.reason == "length"
    assert 3.3 * RATE < at <= 3.34 * RATE


def test_without_a_dip_it_is_cut_all_the_same() -> None:
    cut, at = hear(Guard(14), noise(6, -24))
    assert cut.reason == "length"
    assert at == pytest.approx(3.6 * RATE, abs=240)


def test_a_silence_is_cut_only_when_most_of_the_text_must_have_been_said() -> None:
    pause = np.concatenate([noise(1.0, -24), noise(2.5, -60), noise(1.0, -24)])
    assert hear(Guard(84), pause) == (None, len(pause))  # 6.6 s expected
    cut, at = hear(Guard(14), pause)
    assert cut.reason == "silence"
    assert at == pytest.approx(2.5 * RATE, abs=240)
    ends = np.concatenate([noise(2.0, -24), noise(1.4, -60)])
    assert hear(Guard(30), ends)[0] is None


@settings(max_examples=20, deadline=None)
@given(st.integers(100, 5_000))
def test_a_cut_is_at_the_same_sample_however_it_is_heard(chunk: int) -> None:
    samples = np.concatenate([noise(1.0, -24), noise(2.5, -60)])
    cut, at = hear(Guard(14), samples, chunk)
    assert cut.reason == "silence"
    assert at == hear(Guard(14), samples)[1]


def test_a_lead_in_that_was_not_heard_counts() -> None:
    guard = Guard(14)
    guard.begin(2 * RATE)
    cut, at = hear(guard, noise(6, -24))
    assert cut.reason == "length"
    assert at == pytest.approx(1.6 * RATE, abs=240)


@pytest.mark.parametrize("period", [2, 7, 16, 23])
def test_a_loop_of_codes_is_found_whatever_its_period(period: int) -> None:
    guard = Guard(500)
    once = random_codes(30)
    loop = np.tile(random_codes(period, seed=1), (60 // period + 1, 1))
    codes = np.concatenate([once, loop])
    sound = noise(frames.SAMPLES_PER_FRAME / RATE, -24)
    cuts = []
    for count in range(1, len(codes) + 1):
        guard.read(codes[:count])
        if (cut := guard.hear(sound)) is not None:
            cuts.append((count, cut.reason))
            break
    ((count, reason),) = cuts
    assert reason == "loop"
    # 2 s of it and the period before them, a check each 8 frames, and 0.5 s to find a dip.
    assert 30 + 23 < count <= 30 + 23 + period + 8 + 7


def test_a_loop_that_varies_is_found_and_near_repetitions_are_not() -> None:
    loop = np.tile(random_codes(12, seed=1), (6, 1))
    rng = np.random.default_rng(3)
    varied, different = loop.copy(), loop.copy()
    varied[rng.random(varied.shape) < 0.03] = 7
    varied[:, list(frames.SLOTS_OF_LEVEL[2])] = random_codes(72)[:, list(frames.SLOTS_OF_LEVEL[2])]
    different[rng.random(different.shape) < 0.2] = 7
    for codes, found in ((varied, True), (different, False), (random_codes(72), False)):
        guard = Guard(500)
        guard.hear(noise(1.0, -24))
        guard.read(codes)
        cut, at = hear(guard, noise(1.0, -24, seed=5))
        assert (cut is not None) == found
        assert cut is None or (cut.reason == "loop" and at <= 0.51 * RATE)


def test_a_silence_that_repeats_its_codes_is_no_loop() -> None:
    guard = Guard(500)
    guard.hear(noise(1.0, -70))
    guard.read(np.tile(random_codes(1), (60, 1)))
    assert guard.hear(noise(1.0, -24)) is None


def test_real_speech_is_never_cut(embedded_rows: list[dict]) -> None:
    """Clips of the corpus with their own texts, and the codes of some."""
    codec = load_codec(EMBEDDED)
    for number, row in enumerate(embedded_rows[:60]):
        clip = decode_clip(row["audio"]["bytes"], path=row["path"]).samples
        guard = Guard(len(row["text_normalized"]))
        if number < 4:
            codes = codec.encode(clip[: 8 * RATE])
            for count in range(0, len(codes), 5):
                guard.read(codes[:count])
        assert hear(guard, (clip * 32_767).astype(np.int16))[0] is None, row["id"]
