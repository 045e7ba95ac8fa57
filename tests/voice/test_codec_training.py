"""Training of the codec, for a few steps on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from snac import SNAC
from voice import trained

from speech_assets.errors import ConfigError
from speech_assets.work import voice_codec

ROOT = Path(__file__).parents[2]
OPTIONS = trained.CODEC_OPTIONS.rpartition(" --steps")[0]


@pytest.fixture
def packs(tmp_path: Path) -> Path:
    """A pack with held-out utterances and others to train on."""
    return trained.write_corpus(tmp_path)[0]


def test_a_training_writes_a_codec_that_the_package_loads_and_goes_on(
    packs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for steps in (2, 3, 3):  # The third finds nothing to do.
        trained.run(voice_codec, f"--packs heart={packs} --out {out} {OPTIONS} --steps {steps}")
    figures = json.loads((out / "figures.json").read_text())
    assert [row["step"] for row in figures["history"]] == [2, 3]
    assert len(figures["history"][-1]["dimensions"]) == 3
    codec = SNAC.from_pretrained(str(out)).float()
    assert max(int(level.max()) for level in codec.encode(torch.randn(1, 1, 4096))) < 32


@pytest.mark.parametrize(("live_codes", "kept"), [(4_096, True), (32, False)])
def test_a_training_goes_on_from_a_trained_codec(
    packs: Path, tmp_path: Path, live_codes: int, kept: bool
) -> None:
    shape = voice_codec.CodecTraining(encoder_dim=8, decoder_dim=64).snac_config()
    torch.manual_seed(3)
    first = SNAC(**shape)
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    voice_codec.write_codec(given, shape, first.state_dict())
    line = f"--packs heart={packs} --out {out} --start-from {given} {OPTIONS} --steps 1"
    trained.run(voice_codec, f"{line} --live-codes {live_codes} --learning-rate 1e-9")
    made = SNAC.from_pretrained(str(out)).float()
    weights, before = made.state_dict(), first.state_dict()
    close = {
        name: torch.allclose(weights[name], before[name], rtol=2e-3, atol=1e-4)
        for name in before
        if kept or "codebook" not in name
    }
    assert close == dict.fromkeys(close, True)
    figures = json.loads((out / "figures.json").read_text())
    assert len(figures["config"]["started_from"]) == 64
    assert figures["snac"] == shape


def test_a_training_that_does_not_learn_ends_with_its_own_status_and_writes_nothing(
    packs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    line = f"--packs heart={packs} --out {out} {OPTIONS} --steps 3 --stalled-step 2 --stalled-mel 0"
    done = subprocess.run(
        [sys.executable, "-m", "speech_assets.work.voice_codec", *line.split()],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == voice_codec.STALLED, done.stderr
    assert "it does not learn; nothing is written, give another --seed" in done.stderr
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--packs {packs} {options}", "not of the form VOICE=DIR"),
        ("--packs heart={packs}/none {options}", "make packs with"),
        ("--packs heart={packs} {options} --crop-samples 400000", "fewer than a crop of 400000"),
        ("--packs heart={packs} --device cuda", "torch finds no GPU here"),
        ("--packs heart={packs} --device cpu --start-from {packs}", "no codec there"),
    ],
)
def test_what_cannot_be_trained_is_said(packs: Path, tmp_path: Path, line: str, says: str) -> None:
    if "cuda" in line and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match=says):
        trained.run(
            voice_codec, line.format(packs=packs, options=OPTIONS) + f" --out {tmp_path / 'out'}"
        )
