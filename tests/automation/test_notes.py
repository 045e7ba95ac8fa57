"""Notes on what failed: of a real run, in the store and over real HTTP."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from automation.conftest import PRESETS, Project
from history.runs import DEVICE, keep, load_run, rows_of

from resources.store import Store
from speech_assets import notes
from speech_assets.assets.regressions import AUTOMATIC, regression_checks
from speech_assets.notes import Note, tell
from speech_assets.profiles import load_profile

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

NOTE = Note(
    "failures", "run-1", "wer of x failed", "no WAV", ("Do it.", "Then that."), {"run": "1"}
)
LOG = logging.getLogger("notes")


@dg.asset(
    name="load_tests",
    partitions_def=dg.StaticPartitionsDefinition(list(PRESETS)),
    required_resource_keys={"store"},
)
def measured(context) -> dg.MaterializeResult:
    """In place of the asset, whose results the test has written: it names the last but those of
    the future."""
    root = context.resources.store.root
    keys = Store(root).keys("results/load_tests")
    made = [
        key for key in keys if key.split("/")[-2] == context.partition_key and "/2099" not in key
    ]
    return dg.MaterializeResult(metadata={"result": dg.MetadataValue.path(f"{root}/{made[-1]}")})


class Hook(ThreadingHTTPServer):
    """A webhook that keeps what it is sent and answers `status`, or nothing while `is_mute`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 204
        self.is_mute = False
        self.released = threading.Event()
        self.got: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/secret"


class _Handler(BaseHTTPRequestHandler):
    server: Hook  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.is_mute:
            self.server.released.wait()
            return
        self.server.got.append(json.loads(body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


@contextmanager
def dripping(start: bytes, piece: bytes) -> Generator[tuple[str, threading.Event]]:
    """A host that answers `start`, and then `piece` again and again for as long as it is read; the
    event is set when nobody reads."""
    ended = threading.Event()
    stop = threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(start)
            while not stop.wait(0.02):
                connection.sendall(piece)
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/secret", ended
        stop.set()
        thread.join(60)


def test_a_note_is_kept_and_sent(tmp_path: Path, hook: Hook) -> None:
    store = Store(str(tmp_path))
    tell(NOTE, store, LOG, {"SPEECH_ALERT_URL": hook.url})
    text = store.read_bytes("notes/failures/run-1.md").decode()
    assert text == (
        "# wer of x failed\n\n- run: 1\n\n## Why\n\nno WAV\n\n"
        "## What to do next\n\n1. Do it.\n2. Then that.\n"
    )
    [sent] = hook.got
    assert sent["text"] == text
    assert (sent["title"], sent["why"], sent["facts"]) == (
        "wer of x failed",
        "no WAV",
        {"run": "1"},
    )


def test_without_an_address_nothing_is_sent(tmp_path: Path, hook: Hook) -> None:
    tell(NOTE, Store(str(tmp_path)), LOG, {})
    assert hook.got == []


def test_a_hook_that_refuses_is_said_without_its_address(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = 500
    tell(NOTE, Store(str(tmp_path)), LOG, {"SPEECH_ALERT_URL": hook.url})
    assert "(127.0.0.1) did not take the note: it answered 500" in caplog.text
    assert "secret" not in caplog.text


def test_a_hook_that_never_answers_is_given_up(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "DEADLINE_S", 1.0)
    hook.is_mute = True
    tell(NOTE, Store(str(tmp_path)), LOG, {"SPEECH_ALERT_URL": hook.url})
    assert "the note was not sent (no answer within 1 s)" in caplog.text


@pytest.mark.parametrize("piece", [b"H", b"x: y\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_hook_that_never_ends_its_answer_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    monkeypatch.setattr(notes, "DEADLINE_S", 3.0)
    start = b"HTTP/1.1 204 No Content\r\n" if piece.startswith(b"x") else b""
    with dripping(start, piece) as (url, ended):
        tell(NOTE, Store(str(tmp_path)), LOG, {"SPEECH_ALERT_URL": url})
        assert "the note was not sent (no answer within 3 s)" in caplog.text
        assert ended.wait(60), "and nobody reads any more"


def test_of_an_answer_without_end_the_status_alone_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with dripping(b"HTTP/1.1 500 No\r\n\r\n", b"x" * 1_000) as (url, ended):
        tell(NOTE, Store(str(tmp_path)), LOG, {"SPEECH_ALERT_URL": url})
        assert "(127.0.0.1) did not take the note: it answered 500" in caplog.text
        assert ended.wait(60), "and nobody reads any more"


def test_who_posts_ends_by_itself_when_nobody_is_left_to_end_it() -> None:
    with dripping(b"", b"H") as (url, _):
        asked = json.dumps({"url": url, "value": {}}).encode()
        command = [sys.executable, "-m", "speech_assets.webhook", "1"]
        done = subprocess.run(command, input=asked, check=False, timeout=60)
        assert done.returncode == -signal.SIGALRM


def test_a_note_of_what_is_no_text_is_kept_and_sent(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    odd = "a\udcffb"
    note = Note("failures", "run-1", odd, odd, (odd,), {odd: odd})
    store = Store(str(tmp_path))
    tell(note, store, LOG, {"SPEECH_ALERT_URL": hook.url})
    text = store.read_bytes(note.key).decode()
    assert text == ("# a?b\n\n- a?b: a?b\n\n## Why\n\na?b\n\n## What to do next\n\n1. a?b\n")
    assert [(sent["text"], sent["why"]) for sent in hook.got] == [(text, "a?b")]
    assert "\udcff" not in caplog.text


@pytest.mark.parametrize(
    "url",
    ["no address", "http://[", "ftp://host/x", "http://127.0.0.1:1/x", "http://h/\udcff", "a\nb"],
)
def test_an_address_that_cannot_work_is_said_and_nothing_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    store = Store(str(tmp_path))
    tell(NOTE, store, LOG, {"SPEECH_ALERT_URL": url})
    assert "the note was not sent" in caplog.text
    assert store.exists(NOTE.key)


def test_a_note_that_cannot_be_kept_is_sent_all_the_same(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    tell(NOTE, Store(str(tmp_path / "file")), LOG, {"SPEECH_ALERT_URL": hook.url})
    assert "the note could not be kept" in caplog.text
    assert len(hook.got) == 1


def test_a_failed_run_leaves_a_note_that_says_what_why_and_how_to_go_on(
    project: Project, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_ALERT_URL", hook.url)
    job = project.defs.resolve_job_def("describe_split")
    result = job.execute_in_process(
        instance=project.instance,
        partition_key="train",
        run_config={"resources": {"store": {"config": {"root": str(project.root)}}}},
        raise_on_error=False,
    )
    assert not result.success
    context = dg.build_run_status_sensor_context(
        sensor_name="tell_of_failures",
        dagster_event=result.get_run_failure_event(),
        dagster_instance=project.instance,
        dagster_run=result.dagster_run,
        resources=project.resources,
    ).for_run_failure()
    project.defs.resolve_sensor_def("tell_of_failures")(context)
    store = Store(str(project.root))
    [key] = store.keys("notes")
    assert key == f"notes/failures/{result.run_id}.md"
    text = store.read_bytes(key).decode()
    assert text.startswith("# manifest of train failed\n")
    assert "manifest: split 'train': 3 of 3 token shards are missing (train.000" in text
    assert f"open the run {result.run_id} in the UI" in text
    assert [sent["facts"]["job"] for sent in hook.got] == ["describe_split"]


@pytest.mark.parametrize("started_by", ["", "weekly_rebenchmark"])
def test_a_regression_fails_its_check_and_is_told_of_when_nobody_watched(
    project: Project, started_by: str
) -> None:
    store = Store(str(project.root))
    preset = PRESETS[0]
    keep(store, load_run(1, rows_of(100.0)), load_run(2, rows_of(300.0)))
    keep(store, load_run(2, rows_of(100.0), name=PRESETS[1], device=DEVICE))
    # A clock that was wrong once hides nothing.
    keep(store, load_run(1, rows_of(900.0), started_at="2099-01-01T10:00:00Z"))
    profile = replace(load_profile({}), presets=PRESETS)
    checks = [one for one in regression_checks(profile) if one.check_key.asset_key == measured.key]
    for name in (preset, PRESETS[1]):
        done = dg.materialize(
            [measured, *checks],
            instance=project.instance,
            resources=project.resources,
            partition_key=name,
            tags={AUTOMATIC: started_by} if started_by else {},
        )
        assert done.success
        [found] = done.get_asset_check_evaluations()
        assert found.passed is (name != preset)
        assert found.severity == dg.AssetCheckSeverity.WARN
        assert found.partition == name
        assert found.description.startswith(f"{name} on A CPU 9000")
    kept = [store.read_bytes(key).decode() for key in store.keys("notes")]
    assert len(kept) == bool(started_by)
    for text in kept:
        assert text.startswith(f"# load_tests of {preset} is worse than in its last run\n")
        assert "ttfa_ms_p50 at generating 1: 300 ms, before 100" in text
        assert "Not compared with 2099-01-01T10:00:00Z: it lies in the future" in text


def test_a_check_that_is_made_after_all_judges_what_an_earlier_run_has_measured(
    project: Project,
) -> None:
    store = Store(str(project.root))
    keep(store, load_run(1, rows_of(100.0)), load_run(2, rows_of(300.0)))
    profile = replace(load_profile({}), presets=PRESETS)
    [check] = [one for one in regression_checks(profile) if one.check_key.asset_key == measured.key]
    defs = dg.Definitions(
        [measured],
        asset_checks=[check],
        jobs=[dg.define_asset_job("measure", "*")],
        resources=project.resources,
    )
    job = defs.resolve_job_def("measure")
    for step in ("load_tests", "load_tests_no_regression"):
        done = job.execute_in_process(
            instance=project.instance,
            partition_key=PRESETS[0],
            op_selection=[step],
        )
    [found] = done.get_asset_check_evaluations()
    assert "ttfa_ms_p50 at generating 1: 300 ms, before 100" in found.description


def test_a_check_of_which_no_result_is_recorded_says_what_to_do(project: Project) -> None:
    @dg.asset(name="load_tests", partitions_def=measured.partitions_def)
    def silent() -> None:
        pass

    profile = replace(load_profile({}), presets=PRESETS)
    [check] = [one for one in regression_checks(profile) if one.check_key.asset_key == silent.key]
    with pytest.raises(dg.Failure, match="no result of load_tests of embedded-bf16 is recorded"):
        dg.materialize(
            [silent, check],
            instance=project.instance,
            resources=project.resources,
            partition_key=PRESETS[0],
        )
