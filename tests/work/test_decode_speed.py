"""Decode speed through its command, with real engines; a harness that disturbs them is noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from engines import LIVE, opened, prompt
from lineage_run import ending, wait_for
from small_voice import write_small_voice

from server.checkpoint import open_checkpoint
from server.engine import EngineSettings, Sampling
from speech_assets.quantize.stepping import Speech, pair
from speech_assets.results.result import read_result
from speech_assets.work.decode_measurement import FULL_RUNS, FULL_STEPS, Options
from speech_assets.work.decode_speed import preset_names

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

ROOT = Path(__file__).parent.parent.parent
CHILD = "decode_speed_child"
SHORT = ("--tokens", "14", "--runs", "4", "--warm-up", "1")
# A capture as harnesses do it: output into a pipe, which a thread reads line by line.
CAPTURE = f"""
import os, sys, threading
if any({CHILD!r} in word for word in sys.orig_argv):
    end, start = os.pipe()
    for fd in (1, 2):
        os.dup2(start, fd)
    def read_log():
        for line in os.fdopen(end):
            pass
    threading.Thread(target=read_log, name="log-reader", daemon=True).start()
"""
# A reader that looks for new lines again and again, and a clock that costs more than a step.
BUSY_READER = f"""
import sys, threading, time
if any({CHILD!r} in word for word in sys.orig_argv):
    def read_log():
        with open(__file__) as log:
            while True:
                for _ in range(1_000):
                    log.readline()
                pause.wait(0.001)
    pause = threading.Event()  # Never set: it looks again a thousand times a second.
    threading.Thread(target=read_log, name="log-reader", daemon=True).start()
    read = time.perf_counter_ns
    def slow_clock():
        until = read() + 20_000_000
        while read() < until:
            pass
        return read()
    time.perf_counter_ns = slow_clock
"""


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of devices apart, so that no other work holds the one of this machine."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))


def measure(
    *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "speech_assets.work.decode_speed", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def injected(code: str, folder: Path) -> dict[str, str]:
    """An environment in which every Python runs `code` before anything else."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(folder)}


def test_presets_are_measured_in_turn_and_one_that_fails_is_a_row(tmp_path: Path) -> None:
    presets = "embedded-bf16,embedded-fp8-weight-only"  # No CPU kernel runs the latter.
    done = measure("--preset", presets, "--random-weights", "orpheus-tiny", "--out", tmp_path,
               "--profile", "--starts", "2", *SHORT)  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    good, bad = json.loads((tmp_path / "summary.json").read_text())
    assert bad["status"] == "skipped"
    assert "scheme fp8_weight_only: vLLM has no kernel for it on a CPU" in bad["error"]
    assert bad["preset"] == "embedded-fp8-weight-only"
    assert good["weights"] == bad["weights"] == "random weights"
    assert done.stderr.splitlines()[-1].startswith("error: preset embedded-")
    assert "embedded-bf16: pair 4 of 4" in done.stderr
    assert "(1 of 2 presets)" in done.stderr or good["status"] == "invalid"  # On a busy machine.

    value = read_result(tmp_path / "embedded-bf16-random-orpheus-tiny.json")
    assert value["kind"] == "decode_speed"
    assert value["reduced"]
    config: dict[str, Any] = value["config"]
    assert (config["weights"], config["shape"], config["scheme"]) == (
        *("random", "orpheus-tiny", "bf16"),
    )
    assert config["engine"]["head"] == "audio"
    assert config["quiet"]["stream_faults"] == []
    assert config["quiet"]["foreign_threads"] == []
    assert all(row["weights"] == "random weights" for row in value["rows"])
    runs = [row for row in value["rows"] if "run" in row]
    parts = {row["profile"] for row in value["rows"] if "profile" in row}
    assert [row["steps"] for row in runs] == [14] * 4
    assert {"matrix products", "attention", "head", "python"} <= parts
    found = value["figures"]
    assert found["ms_per_token_p50"]["n"] == 56
    assert (found["start_s"]["n"], found["memory_gib_p50"]["n"]) == (2, 4)
    first, second = config["starts_s"]
    assert {found["start_s"]["ci_low"], found["start_s"]["ci_high"]} == {first, second}
    assert 0.1 < found["memory_gib_p50"]["ci_low"] <= found["peak_memory_gib"]["value"]
    assert "ms_per_token_p95" in found
    assert "ms_per_token_p99" not in found
    # Two layers of 128 x 128 (q, o), 64 x 128 (k, v), 256 x 128 (gate, up, down) and five norms of
    # 128, and 4,096 rows of the head in float32.
    values = {"bfloat16": 2, "float32": 4}[config["engine"]["dtype"]]
    body = 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128) + 5 * 128
    assert found["bytes_per_step"]["value"] == body * values + 4_096 * 128 * 4


def test_a_captured_output_makes_the_measurement_invalid(tmp_path: Path) -> None:
    done = measure("--preset", "embedded-bf16", "--store", tmp_path / "store", *SHORT,
               environment=injected(CAPTURE, tmp_path))  # fmt: skip
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "preset embedded-bf16: the measurement does not count" in line
    assert "stdout of the measured process is not its starter's: it is redirected" in line
    assert "stderr of the measured process is not its starter's: it is redirected" in line
    (path,) = (tmp_path / "store" / "results" / "decode_speed").rglob("*.json")
    value = read_result(path)
    assert value["status"] == "invalid"
    assert value["config"]["weights"] == "real"
    assert len(value["config"]["faults"]) >= 2
    assert value["config"]["quiet"]["foreign_threads"] == ["log-reader"]


def test_a_log_reader_and_a_costly_clock_make_the_measurement_invalid(tmp_path: Path) -> None:
    arguments = ["--preset", "embedded-bf16", "--random-weights", "orpheus-tiny"]
    arguments += ["--allow-invalid", "--out", str(tmp_path)]
    done = measure(*arguments, *SHORT, environment=injected(BUSY_READER, tmp_path))
    assert done.returncode == 0, done.stderr  # As it was asked: said, and no failure.
    value = read_result(tmp_path / "embedded-bf16-random-orpheus-tiny.json")
    assert value["status"] == "invalid"
    said = "; ".join(value["config"]["faults"])
    assert "threads that the engine did not start (log-reader) took" in said
    assert "other threads of the process took" in said
    assert "reading the clock cost" in said
    assert "redirected" not in said
    assert "invalid: the measurement does not count" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--preset", "nobody"), "error: no preset 'nobody'"),
        (("--random-weights", "orpheus-9b"), "error: no shape 'orpheus-9b'"),
        (("--runs", "0"), "0 is less than 1"),
        (("--limit-s", "nan"), "nan is not a finite number above 0"),
        (("--limit-s", "0"), "0 is not a finite number above 0"),
        (("--streams", "100000"), "--streams 100000: preset embedded-bf16 has 16 (max_streams)"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = measure(*arguments, "--store", tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_preset_without_a_checkpoint_says_what_to_make(tmp_path: Path) -> None:
    done = measure("--preset", "embedded-w4a16", "--store", tmp_path)
    assert done.returncode == 2
    assert "preset embedded-w4a16 has no checkpoint yet; materialize checkpoints" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_nothing_can_be_written_nothing_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = measure("--out", tmp_path / "file" / "results")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert str(tmp_path / "file") in line
    assert "Traceback" not in done.stderr
    assert "pair 1 of" not in done.stderr


def test_a_preset_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    done = measure("--preset", "embedded-bf16", "--limit-s", "0.5", "--out", tmp_path)
    assert done.returncode == 2
    assert "preset embedded-bf16: not measured within 0.5 s; raise --limit-s" in done.stderr
    (row,) = json.loads((tmp_path / "summary.json").read_text())
    assert row["status"] == "failed"


def test_a_killed_command_leaves_no_measured_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "speech_assets.work.decode_speed", "--store", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # What a killed one leaves there.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def measured() -> list[psutil.Process]:
        assert process.poll() is None
        return [child for child in psutil.Process(process.pid).children() if is_measured(child)]

    with ending(process):
        children = wait_for(measured, "a process is measured")
        process.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert [child.pid for child in alive] == []
    assert len(gone) == 1


def is_measured(process: psutil.Process) -> bool:
    """Whether it is one that is measured, and no command that tells of the machine."""
    try:
        return any(CHILD in word for word in process.cmdline())
    except psutil.Error:  # It has ended.
        return False


def test_all_presets_are_those_for_the_device_of_this_machine() -> None:
    names = preset_names("all")
    assert ("w4a16_lmhead" in names) != ("embedded-w4a16-lmhead" in names)
    assert preset_names("embedded, embedded-fp8") == ["embedded-bf16", "embedded-fp8"]


def test_a_shorter_measurement_is_marked_reduced() -> None:
    assert not Options(store="s").reduced
    assert Options(store="s", runs=FULL_RUNS - 1).reduced
    assert Options(store="s", steps=FULL_STEPS - 1).reduced
    assert "--random-weights orpheus-3b" in Options(store="s", shape="orpheus-3b").command("bf16")


def test_speech_that_ends_early_is_followed_by_more(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_small_voice(tmp_path, live_codes=LIVE, ends=True))
    speech = Speech([prompt(checkpoint, "hello"), prompt(checkpoint, "so")], Sampling(), 90, 2)
    with opened(checkpoint, EngineSettings(max_streams=2, max_model_len=1_024)) as engine:
        runs = [pair(engine, speech, seed) for seed in (1, 2)]
        assert not engine.busy
    for run in runs:
        assert run.steps == len(run.intervals_ms) == 90
        # Half of the frames are the last: of 90 steps of two streams some 25 generations.
        assert len(run.first_token_ms) > 4
        assert run.timed_s > sum(run.intervals_ms) / 1e3
        assert run.inside_s + run.outside_s < run.timed_s
        assert run.plain_s > 0
