"""Training of the language model, for a few steps on a CPU, on a codec that was trained so too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from voice import trained

from speech_assets.errors import ConfigError
from speech_assets.voice.held_out import SPOKEN_IDS, TEXTS
from speech_assets.voice.texts import VoiceText, write_texts
from speech_assets.work import voice_codec, voice_lm, voice_samples
from speech_assets.work.worker import Reporter

OPTIONS, _, _ = trained.LM_OPTIONS.rpartition(" --steps")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A codec and a language model as training leaves them, in one folder with their corpus."""
    return trained.train(tmp_path_factory.mktemp("trained"))


def command(folders: tuple[Path, Path], out: Path) -> str:
    corpus, codec = folders[0].parent, folders[0]
    packs, texts = corpus / "packs", corpus / "text.jsonl"
    return f"--packs heart={packs} --texts {texts} --codec {codec} --out {out} {OPTIONS}"


def test_a_training_goes_on_where_it_stopped_and_records_what_it_was_made_from(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    for steps in (1, 3, 3):  # The third finds nothing to do.
        trained.run(voice_lm, f"{command(folders, tmp_path)} --steps {steps}")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [row["step"] for row in figures["history"]] == [1, 3]
    assert set(figures["history"][-1]["held_out_nats"]) == {"heart"}
    assert figures["voices"] == ["heart"]
    assert len(figures["codec_sha256"]) == 64
    with np.load(tmp_path / "tokens.npz") as tokens:
        assert str(tokens["codec"]) == figures["codec_sha256"]
        assert len(tokens["ids"]) == 2 * len(trained.IDS)


def test_tokens_of_another_codec_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    trained.run(voice_lm, f"{command(folders, tmp_path / 'lm')} --only-tokens")
    packs = folders[0].parent / "packs"
    options = trained.CODEC_OPTIONS.replace("--steps 2", "--steps 1 --seed 9")
    trained.run(voice_codec, f"--packs heart={packs} --out {tmp_path / 'codec'} {options}")
    line = command(folders, tmp_path / "lm")
    with pytest.raises(ConfigError, match="made with the codec of sha256"):
        trained.run(voice_lm, line.replace(str(folders[0]), str(tmp_path / "codec")))


def test_codes_beyond_the_live_ones_and_clips_without_text_are_refused(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    line = command(folders, tmp_path / "lm")
    with pytest.raises(ConfigError, match="give the number that the codec was trained with"):
        trained.run(voice_lm, line.replace("--live-codes 32", "--live-codes 3"))
    texts = tmp_path / "text.jsonl.xz"
    write_texts(texts, [VoiceText(0, "held", "A cat.", "ə kæt.")])
    given = str(folders[0].parent / "text.jsonl")
    with pytest.raises(ConfigError, match="clip 2 has no text"):
        trained.run(voice_lm, line.replace(given, str(texts)))
    with pytest.raises(ConfigError, match="no clip to train on within 20 tokens"):
        trained.run(voice_lm, f"{line} --most-tokens 20")


def test_a_trained_voice_speaks_the_held_out_sentences(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    texts = tmp_path / "text.jsonl.xz"
    write_texts(texts, [VoiceText(n, "held", t, "ə kæt.") for n, t in enumerate(TEXTS)])
    codec, lm = folders
    line = f"speak --lm {lm} --codec {codec} --texts {texts} --out {tmp_path / 'a'} --device cpu"
    line += " --voices michael,heart --seeds 0,1 --most 3 --max-frames 4"
    for out in ("a", "b"):
        arguments = voice_samples.argument_parser().parse_args(
            line.replace(str(tmp_path / "a"), str(tmp_path / out)).split()
        )
        voice_samples.make_samples(arguments, Reporter("test"))
    said = json.loads((tmp_path / "a" / "clips.json").read_text())
    assert [(row["id"], row["voice"], row["seed"]) for row in said["clips"]] == [
        (number, voice, seed)
        for seed in (0, 1)
        for voice in ("michael", "heart")
        for number in SPOKEN_IDS[:3]
    ]
    assert all(row["frames"] <= 4 for row in said["clips"])
    assert said["made"]["lm"].startswith("voice-")
    assert said["made"]["codec"].startswith("snac-")
    # The same seeds speak the same.
    first, second = ((tmp_path / out / "speech.flac").read_bytes() for out in ("a", "b"))
    assert first == second
