"""The environment that quantizes: made once from its lock, by a real pip, from wheels made here."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

from speech_assets.quantize import environment
from speech_assets.quantize.environment import (
    NAME,
    ROOT,
    EnvironmentFailedError,
    QuantizeEnvironment,
    ensure_environment,
    lock_of,
    main_stack,
)


def write_wheel(folder: Path, name: str, version: str) -> None:
    """A wheel of one empty module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": b"",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    record: list[str] = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record.append(f"{path},sha256={digest},{len(data)}")
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]) + "\n")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose lock names two wheels that pip finds, and nothing else is found."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name, version in (("torch", "0.0.1"), ("quantizer", "1.0"), ("quantizer", "2.0")):
        write_wheel(wheels, name, version)
    for name, value in {
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": "/dev/null",
        "SPEECH_TORCH_INDEX": "http://127.0.0.1:9/nothing",
    }.items():
        monkeypatch.setenv(name, value)
    write_lock(tmp_path, "torch==0.0.1\nquantizer==1.0\n")
    return tmp_path


def write_lock(root: Path, pins: str) -> None:
    (root / "requirements-quantize-cpu.lock").write_text(pins)


def installed(made: QuantizeEnvironment) -> str:
    code = "import importlib.metadata as m; print(m.version('quantizer'))"
    return subprocess.run(
        [made.python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_it_is_made_once_and_again_when_the_lock_changes(root: Path) -> None:
    said: list[str] = []
    made = ensure_environment(said.append, root=root, stack="cpu")
    assert made.made_s > 0
    assert installed(made) == "1.0"
    assert "Installing llm-compressor" in said[0]
    again = ensure_environment(said.append, root=root, stack="cpu")
    assert (again.made_s, again.python, len(said)) == (0, made.python, 2)
    write_lock(root, "torch==0.0.1\nquantizer==2.0\n")
    assert installed(ensure_environment(said.append, root=root, stack="cpu")) == "2.0"


def test_one_that_was_interrupted_is_made_anew(root: Path) -> None:
    half = root / NAME
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "python").write_text("half")
    (half / ".installed.part").write_text("half")
    assert installed(ensure_environment(print, root=root, stack="cpu")) == "1.0"


def test_two_at_once_make_it_once(root: Path) -> None:
    said: list[str] = []
    made: list[QuantizeEnvironment] = []

    def ensure() -> None:
        made.append(ensure_environment(said.append, root=root, stack="cpu"))

    threads = [threading.Thread(target=ensure) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.made_s > 0 for one in made) == [False, True]
    assert len([line for line in said if "Installing" in line]) == 1


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ("torch==0.0.2\n", "neither where pip looks nor at SPEECH_TORCH_INDEX"),
        ("torch==0.0.1\nquantizer==3.0\n", r"installing failed \(requirements-quantize-cpu.lock\)"),
        ("quantizer==1.0\n", "no line torch=="),
    ],
)
def test_what_pip_cannot_find_is_one_line_and_leaves_nothing_that_looks_whole(
    root: Path, pins: str, message: str
) -> None:
    write_lock(root, pins)
    with pytest.raises(EnvironmentFailedError, match=message) as caught:
        ensure_environment(print, root=root, stack="cpu")
    assert "\n" not in str(caught.value)
    assert not (root / NAME / ".installed").exists()
    write_lock(root, "torch==0.0.1\nquantizer==1.0\n")
    assert installed(ensure_environment(print, root=root, stack="cpu")) == "1.0"


def test_what_this_machine_lacks_is_said_before_anything_is_installed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(environment._SIZES, "cpu", (1 << 60, "much"))
    with pytest.raises(EnvironmentFailedError, match=r"GB are free, .* GB are needed"):
        ensure_environment(print, root=root, stack="cpu")
    monkeypatch.setattr(environment, "PYTHON_VERSION", (2, 7))
    with pytest.raises(EnvironmentFailedError, match=r"needs Python 2\.7, this is 3\.11"):
        ensure_environment(print, root=root, stack="cpu")
    with pytest.raises(EnvironmentFailedError, match="needs a checkout of the project"):
        ensure_environment(print, root=root / "elsewhere", stack="cpu")


@pytest.mark.parametrize("stack", ["cpu", "gpu"])
def test_the_locks_have_a_pin_of_all_that_the_input_asks_for(
    stack: environment.Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = lock_of(stack=stack)[0].read_text()
    asked = (ROOT / "requirements-quantize.in").read_text().splitlines()
    for line in asked:
        if not line.startswith("#"):
            assert f"\n{line}" in pins
    assert ("torch==2.13.0+cpu" in pins) == (stack == "cpu")
    monkeypatch.setattr(importlib.metadata, "version", {"torch": "2.13.0+cpu"}.get)
    assert main_stack() == "cpu"
    monkeypatch.setattr(importlib.metadata, "version", {"torch": "2.13.0"}.get)
    assert main_stack() == "gpu"
