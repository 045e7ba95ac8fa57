import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from speech_assets.voice.packs import Utterance, write_pack  # noqa: E402
from speech_assets.work.voice_codec import STALLED, main  # noqa: E402

SMALL = "--device cpu --encoder-dim 4 --decoder-dim 32 --live-codes 32 --batch 2 --quantize-step 1"
SHORT = "--crop-samples 4096 --judged-samples 2048 --minutes 9 --steps"


@pytest.fixture
def packs(tmp_path):
    """A pack with one utterance kept out of training and two to train on."""
    rng = np.random.default_rng(0)
    clips = [
        Utterance(n, "heart", (3_000 * rng.standard_normal(12_000)).astype(np.int16))
        for n in (0, 100, 101)
    ]
    write_pack(tmp_path / "packs", clips)
    return tmp_path / "packs"


def command(packs, out, rest: str) -> list[str]:
    return ["--packs", f"heart={packs}", "--out", str(out), *f"{SMALL} {SHORT} {rest}".split()]


def test_a_training_writes_a_codec_that_the_package_loads_and_goes_on(packs, tmp_path):
    from snac import SNAC

    assert main(command(packs, tmp_path / "out", "2")) == 0
    assert main(command(packs, tmp_path / "out", "3")) == 0
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert [row["step"] for row in figures["history"]] == [2, 3]
    assert len(figures["history"][-1]["dimensions"]) == 3
    codec = SNAC.from_pretrained(str(tmp_path / "out")).float()
    assert max(int(level.max()) for level in codec.encode(torch.randn(1, 1, 4096))) < 32


def test_a_training_that_does_not_learn_ends_with_its_own_status_and_writes_nothing(
    packs, tmp_path
):
    ending = "3 --stalled-step 2 --stalled-mel 0.0"
    assert main(command(packs, tmp_path / "out", ending)) == STALLED
    assert not list((tmp_path / "out").iterdir())
