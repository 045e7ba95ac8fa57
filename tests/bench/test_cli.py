"""`speech-bench` as a user meets it: exit codes, files, interrupts, and plain words."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq
import pytest
from bench.speaking_server import speaking_server

from speech_assets.bench import cli
from speech_assets.bench.options import BenchOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A server that answers at once would have its client at the limit.
SHORT = ("--duration-s", "0.5", "--warmup-s", "0.2", "--header", "x-gap-ms: 30")
ANY_LAG = ("--lag-limit-ms", "60000")
ENDS_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with speaking_server() as (url, _):
        yield url


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "speech_assets.bench.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str) -> tuple[int, str, str]:
    with start(*arguments) as process:
        out, err = process.communicate(timeout=ENDS_WITHIN_S)
    return process.returncode, out, err


def measuring(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until the run measures; its client processes."""
    assert process.stderr is not None
    for line in process.stderr:
        if " measure " in line:
            return psutil.Process(process.pid).children()
    raise AssertionError("it never measured")


def test_a_run_writes_rows_and_summary_and_ends_in_a_table(url: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    code, table, log = run("--url", url, *SHORT, *ANY_LAG, "--streams", "1,2", "--out", str(out))
    assert code == 0, log
    summary = json.loads((out / "summary.json").read_text())
    rows = pq.read_table(out / "rows.parquet")
    assert [level["level"] for level in summary["levels"]] == [1.0, 2.0]
    measured = sum(not warmup for warmup in rows["warmup"].to_pylist())
    assert sum(level["completed"] for level in summary["levels"]) == measured > 0
    assert summary["status"] == "complete"
    assert "TTFA p50" in table
    assert sorted(path.name for path in out.iterdir()) == ["rows.parquet", "summary.json"]
    assert summary["command"] in log  # Said first, so that a log tells what was run.


def test_a_server_that_fails_requests_is_exit_code_1(url: str, tmp_path: Path) -> None:
    code, table, _ = run(
        *("--url", url, *SHORT, *ANY_LAG, "--header", "x-do: error", "--out", str(tmp_path))
    )
    assert code == cli.EXIT_ERRORS
    assert "http_error" in table


def test_a_client_that_was_too_late_is_exit_code_3(url: str, tmp_path: Path) -> None:
    code, _, log = run("--url", url, *SHORT, "--lag-limit-ms", "0.000001", "--out", str(tmp_path))
    assert code == cli.EXIT_CLIENT
    assert "client_was_the_limit" in log
    assert json.loads((tmp_path / "summary.json").read_text())["client"]["valid"] is False


@pytest.mark.parametrize(
    "numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 3], ids=["int", "term", "3"]
)
def test_an_interrupted_run_keeps_what_it_measured(
    url: str, tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    arguments = ("--duration-s", "600", "--warmup-s", "0.5", "--out", str(tmp_path))
    with start("--url", url, *arguments, "--header", "x-gap-ms: 20") as process:
        clients = measuring(process)
        for number in numbers:
            process.send_signal(number)
        process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == cli.EXIT_INTERRUPTED
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert "interrupted" in summary["levels"][0]["failures"][0]
    assert pq.read_table(tmp_path / "rows.parquet").num_rows > 0
    assert clients
    assert not any(client.is_running() for client in clients)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "summary.json"]


def test_a_killed_coordinator_leaves_no_client(url: str, tmp_path: Path) -> None:
    with start("--url", url, "--duration-s", "600", "--out", str(tmp_path)) as process:
        # Warm-up is long by default; the clients are there from its first line on.
        assert process.stderr is not None
        next(line for line in process.stderr if "warm-up" in line)
        clients = psutil.Process(process.pid).children()
        process.kill()
        process.communicate(timeout=ENDS_WITHIN_S)
    assert clients
    _, alive = psutil.wait_procs(clients, timeout=ENDS_WITHIN_S)
    assert alive == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mode", "sideways"), "invalid choice: 'sideways'"),
        (("--streams", "0"), "level 0 is not above 0"),
        (("--streams", "1.5"), "no whole number"),
        (("--streams", "two"), "'two' is not numbers"),
        (("--rate", "3"), "--rate is for --mode open"),
        (("--mode", "open"), "--mode open needs --rate"),
        (("--mode", "open", "--rate", "1", "--arrivals", "gamma:0"), "gamma:0"),
        (("--texts", "/nowhere/texts.txt"), "/nowhere/texts.txt"),
        (("--api", "ws", "--format", "mp3"), "pcm or wav"),
        (("--header", "no colon"), "'no colon'"),
        (("--duration-s", "0"), "--duration-s 0"),
        (("--url", "localhost:8000"), "http://host:port"),
        (("--url", "http://localhost:port"), "http://host:port"),
        (("--header", "X: \u00e9"), "is not 'Name: value'"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--url", "http://127.0.0.1:1", "--out", str(tmp_path), *arguments])
    assert end.value.code == cli.EXIT_USAGE
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("speech-bench: ")
    assert words in last


def test_texts_come_from_lines_or_json_lines(tmp_path: Path) -> None:
    lines, json_lines = tmp_path / "texts.txt", tmp_path / "texts.jsonl"
    lines.write_text("One.\n\n  Two. \n")
    json_lines.write_text('{"text": "One.", "id": 1}\n{"text": "Two."}\n')
    assert cli.read_texts(lines) == cli.read_texts(json_lines) == ("One.", "Two.")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.txt", "\n\n", "has no text"),
        ("bad.jsonl", '{"text": "One."}\nnot json\n', "line 2 is not JSON"),
        ("other.jsonl", '{"words": "One."}\n', 'line 1 has no "text"'),
        ("list.jsonl", "[1]\n", 'line 1 has no "text"'),
    ],
)
def test_texts_that_are_none_are_refused_with_their_place(
    name: str, content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(SystemExit) as end:
        cli.main(["--url", "http://127.0.0.1:1", "--out", str(tmp_path), "--texts", str(path)])
    assert end.value.code == cli.EXIT_USAGE
    message = capsys.readouterr().err
    assert words in message
    assert str(path) in message


def test_a_folder_that_cannot_be_written_is_said_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SystemExit) as end:
        cli.main(["--url", "http://127.0.0.1:1", "--out", str(file / "out")])
    assert end.value.code == cli.EXIT_USAGE
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "http", "socket"),
    [
        ("http://a:1", "http://a:1", "ws://a:1"),
        ("https://a/v1/", "https://a", "wss://a"),
        ("ws://a:1/x/v1/audio/speech/stream", "http://a:1/x", "ws://a:1/x"),
        ("http://a:1/v1/audio/speech", "http://a:1", "ws://a:1"),
    ],
)
def test_any_form_of_the_address_is_understood(url: str, http: str, socket: str) -> None:
    assert BenchOptions(url).speech_url == f"{http}/v1/audio/speech"
    assert BenchOptions(url, api="ws").speech_url == f"{socket}/v1/audio/speech/stream"
    assert BenchOptions(url).base_url == http


def test_the_command_tells_no_secret(url: str, tmp_path: Path) -> None:
    code, _, log = run(
        *("--url", url, *SHORT, *ANY_LAG, "--out", str(tmp_path)),
        *("--header", "Authorization: Bearer hush"),
    )
    assert code == 0
    assert "Authorization" in log
    assert "hush" not in log + (tmp_path / "summary.json").read_text()
