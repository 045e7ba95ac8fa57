"""The whole chain of the voice's training, small, on a CPU: what a GPU machine rehearses first."""

import json
from pathlib import Path

import numpy as np
import pytest

from speech_assets.voice.packs import Utterance, write_pack
from speech_assets.work import worker
from speech_assets.work.voice_train import Chain, TrainingFailedError, rehearse

IDS = (0, 2, 100, 101, 102)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """Two recordings that judge and three to train on, with their texts."""
    rng = np.random.default_rng(0)
    clips = [
        Utterance(n, "heart", (3_000 * rng.standard_normal(24_000)).astype(np.int16)) for n in IDS
    ]
    write_pack(tmp_path / "packs", clips)
    rows = [{"id": n, "split": "train", "text": "So it is.", "ph": "it is so"} for n in range(103)]
    texts = tmp_path / "text.jsonl"
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    packs = (f"heart={tmp_path / 'packs'}",)
    return Chain(packs, packs, texts, live_codes=64, device=("--device", "cpu"))


def test_every_step_runs_and_a_rehearsal_leaves_nothing(chain, tmp_path):
    rehearse(chain, tmp_path / "rehearsal", worker.Reporter("rehearsal"))
    assert not (tmp_path / "rehearsal").exists()


def test_a_missing_folder_ends_the_rehearsal(chain, tmp_path):
    broken = Chain((f"heart={tmp_path / 'absent'}",), chain.judged, chain.texts, 64, chain.device)
    with pytest.raises(TrainingFailedError, match="codec failed with exit code"):
        rehearse(broken, tmp_path / "rehearsal", worker.Reporter("rehearsal"))
