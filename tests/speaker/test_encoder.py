"""The speaker encoder against the package whose weights it has, and on real speakers."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
import soxr
from conftest import EMBEDDED
from numpy.typing import NDArray

from speech_assets.speaker.encoder import SpeakerEncoder, part_starts
from speech_assets.speaker.errors import SpeakerWeightsError
from speech_assets.speaker.voice import Voice, cosine
from speech_assets.speaker.voiced import voiced_part
from speech_assets.speaker.weights import read_weights, weights_file

RATE_HZ = 16_000
RESEMBLYZER = json.loads((Path(__file__).parent / "resemblyzer.json").read_text())
NAMES = [name for name in RESEMBLYZER if name != "made_by"]
SHORT, WOMAN, SAME_WOMAN, OTHER_READER = NAMES
OTHER_TOO = "librivox-sonnet-1-03-but-thou-contracted-to"


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    return SpeakerEncoder()


@pytest.fixture(scope="module")
def clips() -> dict[str, NDArray[np.float32]]:
    """The reference's clips and another speaker's, float32 at 16 kHz."""
    wanted = [("id", "in", [*NAMES, OTHER_TOO])]
    rows = pq.read_table(sorted(EMBEDDED.glob("train-*.parquet")), filters=wanted).to_pylist()
    found: dict[str, NDArray[np.float32]] = {}
    for row in rows:
        samples, rate_hz = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="float32")
        mono = samples.mean(1) if samples.ndim > 1 else samples
        found[row["id"]] = soxr.resample(mono, rate_hz, RATE_HZ).astype(np.float32)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_those_of_the_package_itself(
    name: str, encoder: SpeakerEncoder, clips: dict[str, NDArray[np.float32]]
) -> None:
    wanted = RESEMBLYZER[name]
    assert len(voiced_part(clips[name])) == wanted["voiced_samples"]
    found = encoder(clips[name])
    assert found.why == ""
    np.testing.assert_allclose(found.embedding, wanted["embedding"], atol=1e-5)
    assert np.linalg.norm(found.embedding) == pytest.approx(1, abs=1e-6)
    assert "resemblyzer" not in sys.modules
    assert "librosa" not in sys.modules


def test_a_speaker_is_more_alike_to_herself_than_to_others(
    encoder: SpeakerEncoder, clips: dict[str, NDArray[np.float32]]
) -> None:
    voices = {name: encoder(clip) for name, clip in clips.items()}
    herself = cosine(voices[WOMAN], voices[SAME_WOMAN])
    others = [
        cosine(voices[WOMAN], voices[OTHER_READER]),
        cosine(voices[WOMAN], voices[OTHER_TOO]),
        cosine(voices[OTHER_READER], voices[OTHER_TOO]),
    ]
    assert herself is not None
    assert herself > 0.8 > 0.75 > max(other for other in others if other is not None)
    assert cosine(voices[WOMAN], voices[WOMAN]) == pytest.approx(1, abs=1e-6)
    assert cosine(voices[WOMAN], Voice(why="silent")) is None


def test_how_loud_it_is_and_pauses_do_not_change_a_voice(
    encoder: SpeakerEncoder, clips: dict[str, NDArray[np.float32]]
) -> None:
    clip = clips[WOMAN]
    usual = encoder(clip)
    for other in (clip / 16, clip * 1.5):
        assert cosine(usual, encoder(other)) == pytest.approx(1, abs=1e-3)
    pause = np.zeros(2 * RATE_HZ, np.float32)
    paused = np.concatenate([pause, clip, pause])
    assert cosine(usual, encoder(paused)) == pytest.approx(1, abs=0.02)
    assert len(voiced_part(paused)) < len(clip) + RATE_HZ


def test_without_voice_enough_there_is_none_and_why(
    encoder: SpeakerEncoder, clips: dict[str, NDArray[np.float32]]
) -> None:
    nothing = [np.zeros(samples, np.float32) for samples in (0, 100, 2 * RATE_HZ)]
    nothing.append(clips[WOMAN] / 1_000)
    assert [encoder(samples).why for samples in nothing] == ["silent"] * 4
    assert len(voiced_part(clips[WOMAN][:300])) == 0  # Less than a window of 30 ms.
    assert encoder(clips[WOMAN][: RATE_HZ // 2]).why == "too_short"
    assert encoder(clips[WOMAN][: RATE_HZ // 2]).embedding is None


@pytest.mark.parametrize(
    ("seconds", "starts"),
    [
        (0.5, [0]),  # Shorter than a part of 160 steps of 10 ms: one, filled up.
        (1.6, [0]),  # Of the next one, at 77 steps, there is 52 %,
        (1.96, [0]),  # then 74.4 %,
        (1.97, [0, 77]),  # then 75 %.
        (2.6, [0, 77]),
        (3.0, [0, 77, 154]),
    ],
)
def test_parts_follow_each_other_by_077_s_as_far_as_three_quarters_are_speech(
    seconds: float, starts: list[int]
) -> None:
    assert part_starts(round(seconds * RATE_HZ)) == starts


def test_weights_that_are_not_the_releases_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "pretrained.pt"
    data = bytearray(weights_file().read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    with pytest.raises(SpeakerWeightsError, match=r"has sha256 .* pip install --force-reinstall"):
        read_weights(changed)
    with pytest.raises(SpeakerWeightsError, match="could not be read"):
        read_weights(tmp_path / "absent.pt")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpeakerWeightsError, match=r"pip install --no-deps Resemblyzer==0\.1\.4"):
        weights_file()
