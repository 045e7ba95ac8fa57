"""`python -m speech_assets.scaling`: a plain table, or one clear line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from load.rows import level_row
from results.examples import example

from speech_assets.load.summary import load_figures
from speech_assets.results import published
from speech_assets.scaling.__main__ import main

ROOT = Path(__file__).parent.parent.parent
GIVEN = ["--price-per-hour", "2.5", "--utilisation", "0.6", "--streams", "1000"]


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    return tmp_path


def test_a_published_load_test_is_priced(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [level_row(5), level_row(6), level_row(7, is_passed=False)]
    config = {"sweep": {"duration_s": 60.0}, "client_faults": ["late"], "no_level_failed": []}
    published.publish(
        example(
            kind="load_tests",
            name="bf16",
            config=config,
            rows=[asdict(row) for row in rows],
            figures=load_figures(rows),
        ),
        "run",
    )
    assert main([*GIVEN, "--bought-per-stream-hour", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if line.startswith("bf16 (client late)") and "167" in line]
    # 167 devices cost 417.5; 2.5 / (6 x 0.6) = 0.694, with margin 2.5 / 3; 2.5 / 6 / 0.5 = 83.3 %.
    assert row.split()[-8:] == ["generating", "6", "167", "200", "418", "0.694", "0.833", "83.3%"]
    [breakeven] = [line for line in lines if line.startswith("bf16, A CPU")]
    assert breakeven.split()[-4:] == ["no", "no", "no", "yes"]
    assert any(line.startswith("Published by others, not measured here") for line in lines)
    assert any("216" in line for line in lines)


def test_streams_of_ones_own_device_take_the_place_of_published_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*GIVEN, "--streams-per-device", "300"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    # 1,000 / 300 = 3.3; 2.5 / (300 x 0.6).
    assert row.split() == ["yours", "yours", "-", "300", "4", "-", "10", "0.0139", "-"]


def test_without_a_published_load_test_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(GIVEN) == 0
    assert "No load test is published" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--price-per-hour", "x", "--streams", "1"], "--price-per-hour 'x' is no number"),
        (["--price-per-hour", "-1", "--streams", "1"], "--price-per-hour -1 cannot work"),
        (["--price-per-hour", "nan", "--streams", "1"], "--price-per-hour nan cannot work"),
        (["--price-per-hour", "1", "--streams", "0"], "--streams 0 cannot work"),
        (["--price-per-hour", "1", "--streams", "1.5"], "--streams 1.5 is no number of streams"),
        (["--price-per-hour", "1", "--streams", "1e12"], "give a whole number, 1 to"),
        ([*GIVEN, "--utilisation", "60"], "--utilisation 60 is no share"),
        ([*GIVEN, "--utilisation", "0"], "--utilisation 0 cannot work"),
        ([*GIVEN, "--streams-per-device", "0"], "--streams-per-device 0 cannot work"),
        ([*GIVEN, "--bought-per-stream-hour", "free"], "--bought-per-stream-hour 'free' is no"),
        (["--streams", "1"], "--price-per-hour; --help says"),
        ([*GIVEN, "--assumptions", "nowhere.toml"], "nowhere.toml: No such file"),
    ],
)
def test_a_bad_value_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_the_command_runs_by_hand_and_loads_no_torch() -> None:
    code = (
        "import sys; from speech_assets.scaling.__main__ import main;"
        f"code = main({GIVEN!r}); print('torch' in sys.modules, 'dagster' in sys.modules);"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
    assert done.stderr == ""
