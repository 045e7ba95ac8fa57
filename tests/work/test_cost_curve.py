"""The cost curve of a real preset: levels in one start, errors in one line, no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from lineage_run import ending, wait_for

from speech_assets.load.cost_tables import cost_curve_table
from speech_assets.results.result import read_result

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "speech_assets.work.cost_curve"]


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of devices apart, so that no other work holds the one of this machine."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))


def measure(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_levels_are_measured_in_one_start_and_what_a_preset_has_no_place_for_is_left_out(
    tmp_path: Path,
) -> None:
    done = measure("--levels", "1,2,500", "--duration-s", "3", "--warmup-s", "1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    value = read_result(tmp_path / "embedded-bf16.json")
    assert value["kind"] == "cost_curve"
    assert value["reduced"] is True
    assert value["config"]["weights"] == "real"
    assert value["config"]["served"]["engine"]["device"] == "cpu"
    assert [row["streams"] for row in value["rows"]] == [1, 2]
    for row in value["rows"]:
        assert row["steps"] > 5
        assert row["decode_calls"] > 0
        assert row["audio_s"] > 0
        # The engine's thread is what makes speech; the event loop passes it on.
        assert row["thread_cores"]["engine"] > row["thread_cores"]["event_loop"] > 0
        assert min(row[name] for name in ("step_ms_mean", "beside_ms_mean")) > 0
        assert row["device_memory_gib"] is None
        assert "lm_ms" not in row  # Traces are of a GPU.
    assert value["command"].endswith(
        "--levels 1,2 --duration-s 3 --warmup-s 1 --trace-s 0.5 --seed 1"
    )
    assert "embedded-bf16, 2 streams: step " in done.stderr
    assert "embedded-bf16 (reduced), real weights" in cost_curve_table([value])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--levels", "64,128"), "--levels 64,128: preset embedded-bf16 takes at most 16 streams"),
        (("--levels", "1,x"), "levels '1,x': 'x' is no number"),
        (("--preset", "no-such"), "no-such"),
        (("--preset", "embedded-w4a16"), "has no checkpoint yet; materialize checkpoints"),
        (("--limit-s", "0.5"), "preset embedded-bf16: not measured within 0.5 s; raise --limit-s"),
        (("--trace-s", "-1"), "-1 is no time"),
        (("--trace-s", "nan"), "nan is no time"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    done = measure("--store", tmp_path / "store", "--out", tmp_path / "out", *words)
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "out").glob("*.json")) == []


def test_a_killed_command_leaves_no_measured_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--store", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # What a killed one leaves there.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def measured() -> list[psutil.Process]:
        assert process.poll() is None
        return psutil.Process(process.pid).children()

    with ending(process):
        children = wait_for(measured, "a process is measured")
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert [child.pid for child in alive] == []
