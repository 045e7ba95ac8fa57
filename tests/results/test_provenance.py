"""What results say of where they come from: no machine's folders, the chip without its driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from speech_assets.results import provenance
from speech_assets.results.provenance import device_of, place_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (str(ROOT / "server" / "embedded" / "voice"), "server/embedded/voice"),
        (str(ROOT / "server" / ".." / "server" / "embedded"), "server/embedded"),
        ("/models/somebody/mine", "mine"),
        ("server/embedded/voice", "server/embedded/voice"),
        ("owner/name@abc123", "owner/name@abc123"),
    ],
)
def test_a_folder_is_shown_without_where_this_machine_keeps_it(location: str, shown: str) -> None:
    assert place_of(location) == shown


def test_a_gpu_is_named_as_its_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771 MiB, 580.159.04'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = device_of("cuda")
    assert (found["name"], found["memory"]) == ("NVIDIA H200", "143771 MiB")
    assert found["driver"] == "580.159.04"
    assert provenance.device_of("cpu")["name"] != "NVIDIA H200"


def test_copied_files_name_the_commit_that_they_are_said_to_be_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_kept", [])
    monkeypatch.setattr(provenance, "_CHECKOUT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("SPEECH_COMMIT", raising=False)
    assert provenance.git_state() == {}
    monkeypatch.setenv("SPEECH_COMMIT", "4d9b4ae")
    assert provenance.git_state() == {"commit": "4d9b4ae", "stated": True}
    monkeypatch.undo()
    monkeypatch.setattr(provenance, "_kept", [])
    monkeypatch.setenv("SPEECH_COMMIT", "4d9b4ae")  # A checkout knows its own.
    assert provenance.git_state()["commit"] != "4d9b4ae"


def test_a_long_measurement_is_of_the_commit_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_kept", [])
    monkeypatch.setattr(provenance, "_CHECKOUT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("SPEECH_COMMIT", "4d9b4ae")
    assert provenance.measurement_began().endswith("Z")
    monkeypatch.setenv("SPEECH_COMMIT", "b2c3d4e")
    assert provenance.git_state() == {"commit": "4d9b4ae", "stated": True}
