"""Temporary folders: gone with their block, or with the next one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from resources.scratch import scratch_folder
from speech_assets.ab.arm import parse_arm

if TYPE_CHECKING:
    from pathlib import Path

KILLED = """
import os, signal
from resources.scratch import scratch_folder
with scratch_folder("ab") as folder:
    (folder / "presets.toml").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_killed_comparison_left_is_removed_by_the_next(temporary: Path) -> None:
    def kill_one() -> None:
        assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -9
        assert len(list(temporary.glob("speech-assets-ab-*/presets.toml"))) == 1

    kill_one()
    (temporary / "speech-assets-ab-somebody").mkdir()
    with scratch_folder("ab") as running, scratch_folder("ab") as folder:
        assert {entry.name for entry in temporary.iterdir()} == {
            *("speech-assets-ab-somebody", running.name, folder.name)
        }
    kill_one()
    parse_arm("embedded-bf16,codec_dtype=bfloat16")
    assert [entry.name for entry in temporary.iterdir()] == ["speech-assets-ab-somebody"]
