"""`speech-bench` as a user meets it: exit codes, files, interrupts, and plain words."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq
import pytest
from bench.asked_server import asked_server
from bench.speaking_server import speaking_server, speech
from lineage_run import ending

from speech_assets.bench import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

# A server that answers at once would have its client at the limit.
SHORT = ("--duration-s", "0.5", "--warmup-s", "0.2", "--header", "x-gap-ms: 30")
ANY_LAG = ("--lag-limit-ms", "60000")
ENDS_WITHIN_S = 60.0
FILE_LIMIT = 400_000  # Ten answers; rows of them are much less.


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with speaking_server() as (url, _):
        yield url


def start(*arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return ending(
        subprocess.Popen(
            [sys.executable, "-m", "speech_assets.bench.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
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
        (("--header", "no colon"), "--header number 1 is not 'Name: value'"),
        (("--header", "X: 1", "--header", "a b: c"), "--header number 2"),
        (("--header", "X:\x00"), "--header number 1"),
        (("--header", "content-LENGTH: 3"), "the client sets this itself"),
        (("--header", "Transfer-Encoding: chunked"), "the client sets this itself"),
        (("--header", "Content-Encoding: gzip"), "the client sets this itself"),
        (("--api", "ws", "--header", "Sec-WebSocket-Key: x"), "the client sets this itself"),
        (("--url", "http://u:hush@a", "--header", "Authorization: x"), "leave one out"),
        (("--duration-s", "0"), "--duration-s 0"),
        (("--duration-s", "inf"), "--duration-s inf is above"),
        (("--duration-s", "nan"), "--duration-s nan"),
        (("--warmup-s", "inf"), "--warmup-s inf is above"),
        (("--timeout-s", "inf"), "--timeout-s inf is above"),
        (("--lag-limit-ms", "inf"), "--lag-limit-ms inf is above"),
        (("--streams", "1e9"), "level 1e+09 is above 10,000"),
        (("--streams", "inf"), "level inf is above 10,000"),
        (("--processes", "100000"), "--processes 100000 is not in 1..256"),
        (("--max-in-flight", "1000000000"), "--max-in-flight 1000000000 is not in"),
        (("--mode", "open", "--rate", "1e9"), "level 1e+09 is above 10,000"),
        (("--mode", "open", "--rate", "9999", "--duration-s", "86400"), "take a lower rate"),
        (("--mode", "open", "--rate", "1", "--arrivals", f"gamma:{'9' * 400}"), "0.01 to 10"),
        (("--mode", "open", "--rate", "1", "--arrivals", f"gamma:0.{'0' * 200}1"), "0.01 to 10"),
        (("--url", "localhost:8000"), "http://host:port"),
        (("--url", "http://localhost:port"), "http://host:port"),
        (("--header", "X: \u00e9hush"), "is not 'Name: value'"),
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
    assert "hush" not in last


def test_a_folder_that_cannot_be_written_is_said_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SystemExit) as end:
        cli.main(["--url", "http://127.0.0.1:1", "--out", str(file / "out")])
    assert end.value.code == cli.EXIT_USAGE
    assert str(file) in capsys.readouterr().err


def test_where_nobody_listens_the_server_is_asked_for_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SystemExit) as end:
            cli.main(["--url", f"http://me:hush@{place}", "--out", str(tmp_path)])
    assert end.value.code == cli.EXIT_USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"speech-bench: nobody listens at http://{place} (Connection refused)")
    assert "is the server running? Start it first (this project's: make serve" in line
    assert not list(tmp_path.iterdir())


def test_a_run_tells_no_secret_and_its_requests_have_them_all(url: str, tmp_path: Path) -> None:
    secret = url.replace("http://", "http://me:hush@") + "/?key=hush"
    code, table, log = run("--url", secret, *SHORT, *ANY_LAG, "--out", str(tmp_path))
    assert code == 0, log
    told = table + log + (tmp_path / "summary.json").read_text()
    assert "...@127.0.0.1" in told
    assert "hush" not in told
    code, _, log = run(
        *("--url", url, *SHORT, *ANY_LAG, "--out", str(tmp_path)),
        *("--header", "Authorization: Bearer hush"),
    )
    assert code == 0
    assert "Authorization" in log
    assert "hush" not in log + (tmp_path / "summary.json").read_text()


@pytest.mark.parametrize("closed", ["stdout", "stderr", "both"])
def test_a_run_goes_on_when_nobody_reads_what_it_says(
    url: str, tmp_path: Path, closed: str
) -> None:
    with start("--url", url, *SHORT, *ANY_LAG, "--out", str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if closed != "stderr":
            process.stdout.close()
        if closed != "stdout":
            process.stderr.close()
        left = process.stderr if closed == "stdout" else process.stdout
        words = "" if closed == "both" else left.read()
        assert process.wait(ENDS_WITHIN_S) == 0
    assert "Traceback" not in words
    assert "Exception" not in words
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "complete"


def test_a_run_without_any_output_is_a_run(url: str, tmp_path: Path) -> None:
    words = shlex.join(["--url", url, *SHORT, *ANY_LAG, "--out", str(tmp_path)])
    shell = f"{shlex.quote(sys.executable)} -m speech_assets.bench.cli {words} >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], timeout=ENDS_WITHIN_S).returncode == 0
    assert (tmp_path / "rows.parquet").exists()


def test_results_that_cannot_be_written_are_told_all_the_same(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start("--url", url, *SHORT, *ANY_LAG, "--out", str(out)) as process:
        measuring(process)
        out.rmdir()
        table, log = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == cli.EXIT_USAGE
    assert f"{out} was not written" in log
    assert "TTFA p50" in table
    assert "summary.json" not in table


def test_a_full_disk_of_the_clients_is_named_and_what_was_kept_is_told(
    url: str, tmp_path: Path
) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_LIMIT},) * 2);"
    code = f"{limit} from speech_assets.bench.cli import main; main()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", code, "--url", url, *SHORT, *ANY_LAG, "--duration-s", "600"),
            *("--header", "x-gap-ms: 5", "--out", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
    )
    assert done.returncode == cli.EXIT_CLIENT, done.stderr
    assert f"temporary file in {tempfile.gettempdir()} cannot grow" in done.stderr
    assert "Traceback" not in done.stderr
    assert "invalid" in done.stdout
    assert pq.read_table(tmp_path / "rows.parquet").num_rows > 0


def test_a_hostile_server_ends_no_run(tmp_path: Path) -> None:
    answers = {
        "/config": b"[" * 200_000,
        "/metrics": b'b{le=+Inf"} 3 123\n',
        "/v1/audio/speech": speech(24_000),
    }
    with asked_server(answers) as (url, _):
        code, _, log = run(
            *("--url", url, "--duration-s", "0.5", "--warmup-s", "0.2", *ANY_LAG),
            *("--out", str(tmp_path)),
        )
    assert "Traceback" not in log
    assert code == 0, log


def test_a_summary_is_json_to_the_letter_whatever_a_server_says(tmp_path: Path) -> None:
    answers = {
        "/config": b'{"a": NaN, "b": 1e999}',
        "/metrics": b"# TYPE a gauge\na NaN\n# TYPE b_total counter\nb_total +Inf\n",
        "/v1/audio/speech": speech(24_000),
    }
    with asked_server(answers) as (url, _):
        code, _, log = run(
            *("--url", url, "--duration-s", "0.5", "--warmup-s", "0.2", *ANY_LAG),
            *("--out", str(tmp_path)),
        )
    assert code == 0, log

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
