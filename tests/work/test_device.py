"""One process holds a device at a time; others wait, say so, and get it however the holder ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from speech_assets.errors import ConfigError
from speech_assets.work import device
from speech_assets.work.device import HeldDevice, candidates, hold_device

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parent.parent.parent
# Takes the device, says so, and keeps it until it is told to let go.
HOLDER = """
import sys
from speech_assets.work.device import hold_device

with hold_device("cpu", lambda message: print(message, flush=True)) as held:
    print("held", held.torch_name, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder apart, so that no other work holds the device."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(device.tempfile, "tempdir", None)
    return tmp_path / f"speech-assets-{os.getuid()}"


@contextlib.contextmanager
def _holder() -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_second_process_says_what_it_waits_for_and_gets_the_device_when_the_first_lets_go(
    locks: Path,
) -> None:
    with _holder() as first:
        assert _line(first) == "held cpu\n"
        with _holder() as second:
            said = f"waiting for a device: cpu held by other work (locks in {locks})\n"
            assert _line(second) == said
            assert first.stdin is not None
            first.stdin.write("let go\n")
            first.stdin.flush()
            assert _line(second) == "held cpu\n"


def test_the_device_is_free_after_its_holder_was_killed() -> None:
    with _holder() as first:
        assert _line(first) == "held cpu\n"
        with _holder() as second:
            assert _line(second).startswith("waiting for a device")
            first.kill()
            assert _line(second) == "held cpu\n"


def test_work_that_fails_gives_the_device_back() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="work"), hold_device("cpu", pytest.fail):
            raise ValueError("work")


def test_the_lock_belongs_to_one_user_and_is_hidden_from_others(locks: Path) -> None:
    with hold_device("cpu", pytest.fail) as held:
        assert held == HeldDevice("cpu", "CPU", "cpu")
        assert [path.name for path in locks.iterdir()] == ["cpu.lock"]
        assert locks.stat().st_mode & 0o777 == 0o700


def test_of_two_chips_each_process_gets_one_and_a_chip_has_one_lock_under_any_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _pretend_gpus(monkeypatch, ["one", "two"])
    with hold_device("auto", pytest.fail) as first, hold_device("cuda", pytest.fail) as second:
        assert [first.torch_name, second.torch_name] == ["cuda:0", "cuda:1"]
    _pretend_gpus(monkeypatch, ["two"])  # CUDA_VISIBLE_DEVICES=1
    with hold_device("auto", pytest.fail) as alone:
        assert alone.torch_name == "cuda:0"
        assert alone.lock_name == second.lock_name


def test_the_cpu_is_taken_where_there_is_no_gpu_unless_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _pretend_gpus(monkeypatch, [])
    assert [held.torch_name for held in candidates("auto")] == ["cpu"]
    with pytest.raises(ConfigError, match=r"torch sees no GPU.*device = 'auto'"):
        candidates("cuda")


def _pretend_gpus(monkeypatch: pytest.MonkeyPatch, uuids: list[str]) -> None:
    """torch's answers on a machine with these chips; the tests of the encoder use real ones."""

    def properties(index: int) -> Any:
        return type("Properties", (), {"name": "Chip", "uuid": uuids[index]})

    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(uuids))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
