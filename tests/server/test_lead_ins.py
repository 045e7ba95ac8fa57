"""Utterances with seeded frames: heard as if they had made them, and counted so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import CODEC, ROOT
from written_engine import Heard, WrittenEngine

from server import frames
from server.codec import load_codec
from server.codec_decoder import CodecDecoder
from server.codec_form import origin_sha256
from server.engine import Sampling
from server.errors import ConfigurationError, WeightsError
from server.files import write_json
from server.frames import TokenLayout
from server.lead_ins import LeadIns, MadeBy, lead_ins_value, made_up, read_lead_ins
from server.loading import load_model
from server.metrics import Metrics
from server.plan import PlannerConfig
from server.planner import Planner
from server.presets import load_preset, load_presets
from server.rounds import Rounds, Submission
from server.speech import SpeechRequest, UtteranceReport
from server.stream import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.engine import Generation
    from server.presets import Preset

LAYOUT = TokenLayout()
SEEDED = 2  # frames
ROW = [[[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14]]]

MADE_BY = MadeBy("a preset", "of a model", "of a codec")


def written(**voices: object) -> dict[str, object]:
    """A file's value, whatever its voices are."""
    return {**lead_ins_value(MADE_BY, {}), "voices": voices}


def seeded_preset() -> Preset:
    """The embedded voice with its own lead-ins."""
    return load_preset("embedded-bf16-seeded", {"SPEECH_PRESETS": "server/seeded_presets.toml"})


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return CodecDecoder(load_codec(CODEC))


def spoken(
    decoder: CodecDecoder, seeded: NDArray[np.uint16], made: NDArray[np.integer]
) -> tuple[bytes, UtteranceReport, Generation]:
    engine = WrittenEngine(LAYOUT.token_ids(made.reshape(-1)).tolist(), 7)
    planner = Planner(PlannerConfig(unpaced_in_batches=False))
    rounds: Any = Rounds(engine, decoder, planner, LAYOUT, Metrics())  # type: ignore[arg-type]
    request = SpeechRequest("it", "text", "heart", Sampling(seed=1), "keep", whole=True)
    rounds.begin(Submission(request, [1, 2], 40, Heard(), 0.0, seeded))  # type: ignore[arg-type]
    while not rounds.idle:
        rounds.turn()
    *chunks, report = [event for _, event in rounds.events]
    return b"".join(chunks), report, engine.asked[0]


def test_what_begins_with_seeded_frames_sounds_as_if_it_had_made_them(
    decoder: CodecDecoder,
) -> None:
    codes = np.random.default_rng(5).integers(0, 1_500, (24, 7)).astype(np.uint16)
    nothing = np.zeros(0, np.uint16)
    audio, report, asked = spoken(decoder, codes[:SEEDED].reshape(-1), codes[SEEDED:])
    expected, whole, all_asked = spoken(decoder, nothing, codes)
    assert audio == expected
    assert report.frames == whole.frames == len(codes)
    assert report.output_tokens == whole.output_tokens - SEEDED * 7
    # The model goes on from them, and makes so many fewer.
    assert asked.prompt_ids == [1, 2, *LAYOUT.token_ids(codes[:SEEDED].reshape(-1)).tolist()]
    assert asked.sampling.max_tokens == all_asked.sampling.max_tokens - SEEDED * 7


def test_seeded_frames_alone_are_no_speech(decoder: CodecDecoder) -> None:
    codes = np.random.default_rng(5).integers(0, 1_500, (SEEDED + 1, 7)).astype(np.uint16)
    seeded, made = codes[:SEEDED].reshape(-1), codes[SEEDED:]
    audio, report, _ = spoken(decoder, seeded, made[:0])
    assert (audio, report.samples, report.ttfa_ms) == (b"", 0, None)
    audio, report, _ = spoken(decoder, seeded, made)
    assert len(audio) > 0
    assert report.frames == SEEDED + 1


def test_seeded_silence_is_first_audio_and_none_that_was_made() -> None:
    request = SpeechRequest("it", "text", "heart", Sampling(seed=1))
    seeded = np.zeros(SEEDED * 7, np.uint16)
    stream = Stream(request, [1], 40, Heard(), LAYOUT, 0.0, 0.0, seeded)  # type: ignore[arg-type]
    stream.sent(np.zeros(frames.SAMPLES_PER_FRAME, np.int16), 1.0)
    stream.sent(np.zeros(frames.SAMPLES_PER_FRAME, np.int16), 1.1)
    assert (stream.times.first_s, stream.times.made_s) == (1.0, None)
    stream.sent(np.zeros(1, np.int16), 1.2)
    assert (stream.times.first_s, stream.times.made_s) == (1.0, 1.2)
    report = stream.report("stop", 2.0)
    assert (report.ttfa_ms, report.first_made_ms) == pytest.approx((1_000.0, 1_200.0))
    assert stream.samples == SEEDED * frames.SAMPLES_PER_FRAME + 1


def test_a_seed_chooses_the_lead_in() -> None:
    lead_ins = made_up(3, ["tara"])
    picked = [lead_ins.pick("tara", seed).tolist() for seed in range(40)]
    assert picked[3] == lead_ins.pick("tara", 3).tolist()
    assert {len(codes) for codes in picked} == {21}
    assert len({tuple(codes) for codes in picked}) > 4
    assert LeadIns().pick("tara", 1).tolist() == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "no such file"),
        ("[]", "not readable as JSON"),
        (written(heart=ROW) | {"schema_version": 9}, "not lead-ins of this version"),
        # As the first version was: it did not say of which codec its codes are.
        ({"schema_version": 1, "voices": {"heart": ROW}}, "schema_version is 1, not 2"),
        (written(heart=ROW) | {"made_by": "it"}, "voices or made_by is missing"),
        (written(heart=ROW) | {"made_by": {}}, "codec with sha256 None"),
        (written(heart=ROW) | {"voices": [ROW]}, "voices or made_by is missing"),
        (written(tara=ROW), "no lead-in of voice 'heart'"),
        (written(heart=[[[1, 2]]]), "have shape (1, 1, 2)"),
        (written(heart=[]), "have shape"),
        (written(heart=[[1, "a"]]), "are no codes"),
        (written(heart=[ROW[0][:1]]), "fewer than the preset's"),
        (written(heart=[[[4096] * 7] * 2]), "outside 0..4,095"),
    ],
)
def test_a_file_that_holds_no_lead_ins_is_refused(tmp_path: Path, value: Any, words: str) -> None:
    path = tmp_path / "lead_ins.json"
    if value is not None:
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(WeightsError) as refused:
        read_lead_ins(path, SEEDED, ["heart"], codec_sha256=MADE_BY.codec_sha256)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


def test_what_is_written_is_read_for_its_codec_whatever_the_model(tmp_path: Path) -> None:
    path = tmp_path / "lead_ins.json"
    write_json(path, lead_ins_value(MADE_BY, {"heart": np.array(ROW, np.uint16)}))
    assert json.loads(path.read_text())["made_by"]["model_sha256"] == "of a model"
    held = read_lead_ins(path, SEEDED, ["heart"], codec_sha256=MADE_BY.codec_sha256)
    assert held.pick("heart", 1).tolist() == list(range(1, 15))


def test_lead_ins_of_another_codec_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    other = tmp_path / "codec"
    shutil.copytree(CODEC, other)
    with (other / "pytorch_model.bin").open("ab") as file:
        file.write(b"another")
    preset = replace(seeded_preset(), codec=str(other))
    with pytest.raises(WeightsError) as refused:
        load_model(preset, Metrics())
    for words in (
        str(preset.lead_ins_path),
        f"sha256 {origin_sha256(CODEC)}",
        f"the preset's is {origin_sha256(other)}",
        "python -m speech_assets.work.lead_ins",
        "seeded_frames = 0",
    ):
        assert words in str(refused.value)


def test_lead_ins_of_a_folder_without_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no weights file"):
        origin_sha256(tmp_path)


def test_the_embedded_voices_own_are_silent_and_of_its_codes(decoder: CodecDecoder) -> None:
    from speech_assets.work.lead_ins import is_silent

    preset = seeded_preset()
    assert preset.lead_ins_path is not None
    lead_ins = read_lead_ins(
        preset.lead_ins_path, preset.seeded_frames, ["heart"], codec_sha256=origin_sha256(CODEC)
    )
    for seed in range(16):
        codes = lead_ins.pick("heart", seed).reshape(-1, 7)
        assert len(codes) == preset.seeded_frames
        # Decoded without what followed it, its end is another; its first half is not.
        audio = decoder.decode_utterance(codes, seed)
        assert is_silent(audio[: len(audio) // 2])
    assert not is_silent(np.sin(np.arange(2_400) / 10) * 0.1)


def test_frames_to_begin_with_need_a_file_of_them(tmp_path: Path) -> None:
    table = tmp_path / "presets.toml"
    row = '[presets.mine]\nmodel = "."\ncodec = "."\n'
    for settings, words in (
        ("seeded_frames = 1\n", "lead_ins names no file"),
        ("seeded_frames = 5\n", "seeded_frames is 5; it must be 0 to 4"),
        ('untrained = true\nlead_ins = "a.json"\n', "lead_ins is 'a.json', and untrained presets"),
    ):
        table.write_text(row + settings)
        with pytest.raises(ConfigurationError) as refused:
            load_presets({"SPEECH_PRESETS": str(table)})
        assert words in str(refused.value)


def test_an_untrained_preset_needs_no_lead_ins_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "speech_assets.work.lead_ins", "--preset", "untrained-bf16",
         "--out", str(tmp_path / "lead_ins.json")],
        cwd=ROOT,
        env={**os.environ, "SPEECH_PRESETS": "server/untrained_presets.toml"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "is untrained and makes up its own lead-ins: seeded_frames alone is enough" in line
