"""The whole chain of the voice's training, small, on a CPU: what a GPU machine rehearses first."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lineage_run import wait_for

from speech_assets.voice.packs import Utterance, write_pack
from speech_assets.work import voice_train, worker
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


def test_a_step_that_is_interrupted_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, waited, slow = subprocess.Popen.wait, [], tmp_path / "slow"
    # Told to end, it keeps what it has, which takes it a second.
    slow.write_text(f"#!/bin/sh\ntrap 'sleep 1; exit 3' TERM\ntouch {tmp_path}/there\nread -r _\n")
    slow.chmod(0o755)

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waited.append(process)
        if len(waited) == 1:
            wait_for((tmp_path / "there").exists, "it is there")
            raise KeyboardInterrupt
        return wait(process, timeout)

    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        voice_train._run(["voice_codec"])
    assert waited[0].returncode == 3
