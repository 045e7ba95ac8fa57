"""Work processes: what they say is kept, and they end, children too, with whoever started them."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from conftest import archive_short_corpus
from lineage_run import ending, processes_with, wait_for

from resources import work
from resources.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speech_assets.profiles import Corpus

ROOT = Path(__file__).resolve().parent.parent.parent
MARK = "SPEECH_TEST_MARK"
SPEECH = [sys.executable, "-m", "speech_assets.work.speech"]

# A work process on the project's own frame: what it does is the text of its first argument.
SCRIPTED = """
import types
from speech_assets.work import worker

def work(arguments, reporter):
    # Not exec: Python remembers an interrupt that passes through it, and dies of it at its end.
    types.FunctionType(compile(arguments.script, "script", "exec"), {"reporter": reporter})()

if __name__ == "__main__":
    parser = worker.argument_parser("scripted", "runs a script")
    parser.add_argument("script")
    worker.run(work, parser)
"""
# A starter that never comes to its end by itself.
STARTER = """
import sys
from resources import work
with work.running("scripted", [sys.argv[1]]) as process:
    process.wait()
"""
SLEEP = "print('ready', flush=True); import time; time.sleep(600)"
# Ten minutes in a decoding pool's own way: spawned processes that ask to die with their parent.
POOL = """
import concurrent.futures, multiprocessing, time
from speech_assets.work import worker
pool = concurrent.futures.ProcessPoolExecutor(
    2, mp_context=multiprocessing.get_context("spawn"), initializer=worker.die_with_parent
)
sleeping = [pool.submit(time.sleep, 600) for _ in range(2)]
print("ready", flush=True)
sleeping[0].result()
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A variable by which the test's processes are known; none of them is left after it."""
    value = uuid.uuid4().hex
    (tmp_path / "scripted.py").write_text(SCRIPTED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    yield value
    for process in processes_with(MARK, value):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _run(script: str, mark: str) -> work.WorkProcess:
    with work.running("scripted", [script], {MARK: mark}) as process:
        process.wait()
    return process


def test_the_last_lines_are_in_the_error_and_a_failure_is_worth_trying_again(mark: str) -> None:
    script = "print('\\n'.join(f'line {n}' for n in range(100))); raise OSError('the disk is gone')"
    with pytest.raises(WorkError, match="exit code 1") as raised:
        _run(script, mark)
    assert raised.value.retryable
    lines = str(raised.value).splitlines()
    assert lines[-1] == "OSError: the disk is gone"
    assert len(lines) == work.TAIL_LINES + 1


@pytest.mark.parametrize(
    ("script", "retryable"),
    [
        ("raise ValueError('a fault of the program')", False),
        ("from speech_assets.errors import ConfigError; raise ConfigError('wrong value')", False),
        ("from resources.errors import StoreError; raise StoreError('not reached')", True),
        ("raise MemoryError", True),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", True),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", True),
        ("import os; os._exit(2)", False),
    ],
)
def test_only_what_can_pass_is_worth_trying_again(script: str, retryable: bool, mark: str) -> None:
    with pytest.raises(WorkError) as raised:
        _run(script, mark)
    assert raised.value.retryable is retryable


def test_an_argument_that_is_not_known_is_not_worth_trying_again() -> None:
    with (
        pytest.raises(WorkError, match=r"work\.speech failed with exit code 2") as raised,
        work.running("speech_assets.work.speech", ["--nonsense"]) as process,
    ):
        process.wait()
    assert not raised.value.retryable
    assert "the following arguments are required: --store" in str(raised.value)


def test_everything_that_a_process_says_is_passed_on_and_never_blocks_it(
    mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = _run("print('ä' * 200_000); print('ö€' * 70_000, end='')", mark)
    assert capfd.readouterr().err == "ä" * 200_000 + "\n" + "ö€" * 70_000
    assert done.tail[-1].endswith("ö€")
    assert "\N{REPLACEMENT CHARACTER}" not in done.tail[-1]


def test_a_starter_whose_own_output_nobody_reads_does_not_block_the_process(mark: str) -> None:
    with _start("print('x' * 500_000); print('y' * 500_000)", mark) as starter:
        assert starter.stderr is not None
        starter.stderr.close()
        assert starter.wait() == 0
    _assert_none_left(mark)


def test_the_process_and_its_children_end_when_the_starter_is_killed(mark: str) -> None:
    with _start(POOL, mark) as starter:
        _wait_ready(starter)
        wait_for(lambda: len(_spawned(mark)) == 2, "the pool runs")
        starter.kill()
    _assert_none_left(mark)


def test_the_process_and_its_children_end_when_standard_input_does(mark: str) -> None:
    with _scripted(POOL, mark, "--exit-on-stdin-eof") as process:
        _wait_ready(process)
        wait_for(lambda: len(_spawned(mark)) == 2, "the pool runs")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == -signal.SIGKILL
    _assert_none_left(mark)


def test_children_of_a_pool_end_when_their_parent_is_killed_without_its_group(mark: str) -> None:
    with _scripted(POOL, mark) as process:
        _wait_ready(process)
        wait_for(lambda: len(_spawned(mark)) == 2, "the pool runs")
        process.kill()
    _assert_none_left(mark)


def test_children_of_a_pool_end_when_their_parent_is_killed_before_they_have_begun(
    mark: str,
) -> None:
    with _scripted(POOL, mark) as process:
        wait_for(lambda: len(_spawned(mark)) > 0, "a child of the pool is starting")
        process.kill()
    _assert_none_left(mark)


def test_a_process_that_ignores_every_signal_is_killed(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "STOP_AFTER_S", (0.05, 0.05))
    script = f"""
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
{SLEEP}
"""
    process = _left_early(script, mark)
    assert process.process.returncode == -signal.SIGKILL
    _assert_none_left(mark)


def test_leaving_early_ends_the_process_in_its_own_time(
    mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    process = _left_early(SLEEP, mark)
    assert process.process.returncode == 130
    assert "interrupted; what is finished is kept" in capfd.readouterr().err
    _assert_none_left(mark)


def test_a_process_is_ended_where_there_is_no_thread_to_hear_it(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = psutil.Process().children()
    monkeypatch.setattr(threading.Thread, "start", _refuse)
    with pytest.raises(RuntimeError, match="no more threads"):
        _run(SLEEP, mark)
    assert psutil.Process().children() == before
    _assert_none_left(mark)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_from_the_terminal_ends_a_process_that_runs_by_hand(
    number: signal.Signals, mark: str
) -> None:
    with _scripted(SLEEP, mark) as process:
        _wait_ready(process)
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == 130
    assert said == "interrupted; what is finished is kept, run again to go on\n"
    _assert_none_left(mark)


def test_progress_is_a_bar_on_a_terminal_and_is_not_drawn_elsewhere(
    tmp_path: Path, short_corpus: Corpus
) -> None:
    store = archive_short_corpus(str(tmp_path), short_corpus)
    command = [*SPEECH, "--store", store.root, "--workers", "1", "--shards", "train.000"]
    with_bar = _under_terminal(command)
    assert "speech: 100%" in with_bar
    assert "1/1 shards" in with_bar
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "%|" not in done.stdout + done.stderr
    assert "shard: shard train.000, made False" in done.stderr
    starter = [sys.executable, "-c", STARTER.replace("scripted", "speech_assets.work.speech")]
    starter[-1] = starter[-1].replace("[sys.argv[1]]", "sys.argv[1:]")
    assert "speech: 100%" in _under_terminal([*starter, *command[3:]])
    quiet = subprocess.run([*starter, *command[3:]], cwd=ROOT, capture_output=True, text=True)
    assert quiet.returncode == 0, quiet.stderr
    assert "100%" not in quiet.stderr


def test_an_error_is_said_once_and_without_a_traceback(tmp_path: Path) -> None:
    command = [*SPEECH, "--store", str(tmp_path), "--shards", "train.000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("error: 1 of 1 shards failed") == 1
    assert "Traceback" not in done.stderr


def test_a_work_process_runs_by_hand_where_dagster_cannot_be_imported(
    tmp_path: Path, short_corpus: Corpus
) -> None:
    store = archive_short_corpus(str(tmp_path / "store"), short_corpus)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "for name in ('dagster', 'dagster_pipes', 'dagster_shared'):\n"
        "    sys.modules[name] = None\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "TMPDIR": str(tmp_path),
    }
    blocked = [sys.executable, "-c", "import dagster"]
    assert subprocess.run(blocked, env=environment, capture_output=True, check=False).returncode
    codec = str(ROOT / "server" / "embedded" / "codec")
    for command in (
        [*SPEECH, "--store", store.root, "--workers", "1", "--shards", "dev.000"],
        [
            *[sys.executable, "-m", "speech_assets.work.tokens", "--store", store.root],
            *["--codec", codec, "--device", "cpu", "--shards", "dev.000"],
        ],
    ):
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert store.keys("tokens") == ["tokens/dev/dev.000.parquet"]


def _left_early(script: str, mark: str) -> work.WorkProcess:
    """The scripted work process, whose starter stops waiting once it has begun."""
    processes: list[work.WorkProcess] = []
    with (
        contextlib.suppress(KeyError),
        work.running("scripted", [script], {MARK: mark}) as process,
    ):
        processes.append(process)
        wait_for(lambda: "ready" in process.tail, "the process has begun")
        raise KeyError
    return processes[0]


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError("no more threads")


def _scripted(
    script: str, mark: str, *arguments: str
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """The scripted work process, in a group of its own as its starter would have it."""
    return ending(
        subprocess.Popen(
            [sys.executable, "-u", "-m", "scripted", script, *arguments],
            env={**os.environ, MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )


def _start(script: str, mark: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A starter in a process of its own, which runs the scripted work process."""
    return ending(
        subprocess.Popen(
            [sys.executable, "-c", STARTER, script],
            env={**os.environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    )


def _wait_ready(process: subprocess.Popen[str]) -> None:
    """Read what a process says until it says `ready`; a starter says it on standard error."""
    stream = process.stdout or process.stderr
    assert stream is not None
    lines = iter(stream.readline, "")
    assert any("ready" in line for line in lines)


def _spawned(mark: str) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in processes_with(MARK, mark):
        with contextlib.suppress(psutil.Error):
            if any("spawn_main" in word for word in process.cmdline()):
                found.append(process)
    return found


def _assert_none_left(mark: str) -> None:
    wait_for(lambda: not processes_with(MARK, mark), "no process is left")


def _under_terminal(command: list[str]) -> str:
    """What `command` writes to a terminal."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 100))
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
    )
    os.close(follower)
    said = b""
    with ending(process):
        with contextlib.suppress(OSError):  # EIO: the last writer has closed the terminal.
            while select.select([leader], [], [], 120)[0] and (data := os.read(leader, 65_536)):
                said += data
        os.close(leader)
        assert process.wait() == 0, said.decode()
    return said.decode()
