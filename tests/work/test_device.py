"""One process holds a device at a time; others wait, say so, and get it however the holder ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from speech_assets.errors import ConfigError
from speech_assets.work import device_lock
from speech_assets.work.device import candidates, device_facts, hold_device
from speech_assets.work.device_lock import (
    ORDER,
    VISIBLE,
    Gpu,
    HeldDevice,
    hold_engine_device,
    lock_name,
    visible_gpus,
)

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
    monkeypatch.setattr(tempfile, "tempdir", None)
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


def test_a_cpu_taken_for_two_devices_is_held_by_two_processes_and_a_third_waits_for_either(
    locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_CPU_DEVICES", "2")
    with _holder() as first:
        assert _line(first) == "held cpu\n"
        with _holder() as second:
            assert _line(second) == "held cpu\n"
            assert {path.name for path in locks.iterdir()} == {"cpu.lock", "cpu-1.lock"}
            with _holder() as third:
                assert _line(third).startswith("waiting for a device: cpu, cpu-1 held by other")
                first.kill()
                assert _line(third) == "held cpu\n"


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_number_of_devices_that_is_none_is_refused_with_its_name(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_CPU_DEVICES", text)
    with pytest.raises(ConfigError, match=f"SPEECH_CPU_DEVICES is '{text}'; set it to a number"):
        candidates("cpu")


def test_more_devices_than_a_cpu_is_taken_for_are_refused_with_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPEECH_CPU_DEVICES", "1024")
    assert len(candidates("cpu")) == 1_024
    monkeypatch.setenv("SPEECH_CPU_DEVICES", "1025")
    with pytest.raises(ConfigError, match=r"CPU_DEVICES is '1025'; .* devices from 1 to 1,024"):
        candidates("cpu")


def test_work_that_fails_gives_the_device_back() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="work"), hold_device("cpu", pytest.fail):
            raise ValueError("work")


def test_the_lock_belongs_to_one_user_and_is_hidden_from_others(locks: Path) -> None:
    with hold_device("cpu", pytest.fail) as held:
        assert held == HeldDevice("cpu", "CPU", "cpu")
        assert [path.name for path in locks.iterdir()] == ["cpu.lock"]
        assert locks.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("entry", "kind", "message"),
    [
        ("", "file", "the folder of device locks cannot be made: File exists"),
        ("", "link", "the folder of device locks cannot be made: File exists"),
        ("cpu.lock", "folder", "a device's lock cannot be made: Is a directory"),
        ("cpu.lock", "link", "a device's lock cannot be made: Too many levels of symbolic links"),
    ],
)
def test_what_lies_in_a_locks_place_is_named_with_the_remedy(
    locks: Path, entry: str, kind: str, message: str
) -> None:
    path = locks / entry
    path.parent.mkdir(exist_ok=True)
    if kind == "link":
        path.symlink_to(locks.parent / "none" / "there")
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
    with pytest.raises(ConfigError) as caught, hold_device("cpu", pytest.fail):
        pass
    said = str(caught.value)
    assert said == f"{path}: {message}; remove what is there, or set TMPDIR to another folder"


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


ONE, TWO = Gpu("0", "GPU-aaa", "Chip"), Gpu("1", "GPU-bbb", "Chip")


def test_an_engines_process_sees_the_chip_that_it_holds_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_lock, "_torch_has_cuda", lambda: True)
    monkeypatch.setattr(device_lock, "list_gpus", lambda: [ONE, TWO])
    monkeypatch.delenv(VISIBLE, raising=False)
    with hold_engine_device("auto", pytest.fail) as first:
        assert (os.environ[VISIBLE], os.environ[ORDER]) == ("0", "PCI_BUS_ID")
        assert visible_gpus(os.environ, [ONE, TWO]) == [ONE]
    assert VISIBLE not in os.environ
    with hold_engine_device("cuda", pytest.fail), monkeypatch.context() as other_process:
        other_process.delenv(VISIBLE)
        with hold_engine_device("cuda", pytest.fail) as second:
            assert (os.environ[VISIBLE], second.lock_name) == ("1", lock_name("bbb"))
    assert first.lock_name == lock_name("aaa")  # As torch writes a UUID.


def test_an_engine_on_a_cpu_holds_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_lock, "list_gpus", lambda: [ONE])
    with hold_engine_device("cpu", pytest.fail) as held:
        assert held == HeldDevice("cpu", "CPU", "cpu")
    monkeypatch.setattr(device_lock, "_torch_has_cuda", lambda: False)  # A GPU, and torch has none.
    with hold_engine_device("auto", pytest.fail) as held:
        assert held.torch_name == "cpu"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, ["GPU-aaa", "GPU-bbb"]),
        ("1,0", ["GPU-bbb", "GPU-aaa"]),
        ("GPU-b", ["GPU-bbb"]),
        ("1,-1,0", ["GPU-bbb"]),
        ("MIG-7", ["MIG-7"]),  # A part of a GPU: taken by its word.
        ("", []),
    ],
)
def test_visible_chips_are_those_of_cudas_variable(text: str | None, names: list[str]) -> None:
    environment = {} if text is None else {VISIBLE: text}
    assert [gpu.uuid for gpu in visible_gpus(environment, [ONE, TWO])] == names


def test_gpus_are_listed_by_the_command_that_knows_them(tmp_path: Path) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho '0, GPU-aaa, NVIDIA H200'\necho '1, GPU-bbb, Chip, big'\n")
    command.chmod(0o755)
    assert device_lock.list_gpus(str(command)) == [
        Gpu("0", "GPU-aaa", "NVIDIA H200"), Gpu("1", "GPU-bbb", "Chip, big")
    ]  # fmt: skip
    assert device_lock.list_gpus(str(tmp_path / "none")) == []


def test_a_cpu_without_avx512_is_known_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    for has in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda has=has: has)
        assert device_facts("cpu").avx512 is has


def _pretend_gpus(monkeypatch: pytest.MonkeyPatch, uuids: list[str]) -> None:
    """torch's answers on a machine with these chips; the tests of the encoder use real ones."""

    def properties(index: int) -> Any:
        return type("Properties", (), {"name": "Chip", "uuid": uuids[index]})

    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(uuids))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
