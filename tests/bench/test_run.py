"""Whole runs with real client processes against a server that stamps what it does."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pyarrow.compute as pc
import pytest
from bench.asked_server import TRICKLE, asked_server
from bench.speaking_server import speaking_server, speech

from speech_assets.bench import clients, server_probe
from speech_assets.bench.options import BenchOptions
from speech_assets.bench.rows import SCHEMA
from speech_assets.bench.run import BenchRun, run_bench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speech_assets.bench.level import LevelSummary
    from speech_assets.bench.progress import Progress

# A busy machine's lateness is not what these tests are about.
ANY_LAG_MS = 60_000.0
FIRST_MS, GAP_MS = 60, 40
NEAR_MS = 2.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with speaking_server() as (url, _):
        yield url


def options(url: str, do: str = "", **changes: Any) -> BenchOptions:
    headers = {"x-do": do, "x-first-ms": str(FIRST_MS), "x-gap-ms": str(GAP_MS)}
    facts: dict[str, Any] = {
        "url": url,
        "duration_s": 1.5,
        "warmup_s": 0.5,
        "headers": tuple(headers.items()),
        "lag_limit_ms": ANY_LAG_MS,
        **changes,
    }
    return BenchOptions(**facts)


def client_processes() -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # It ends while it is looked at.
            if "speech_assets.bench.client" in child.cmdline():
                found.append(child)
    return found


@pytest.fixture(scope="module")
def closed(url: str) -> tuple[BenchRun, list[list[float]]]:
    """Two levels of a closed loop, and the delays that the server stamped."""
    httpx.get(f"{url}/log", timeout=60.0)
    run = run_bench(options(url, levels=(1.0, 4.0), processes=2))
    return run, httpx.get(f"{url}/log", timeout=60.0).json()


def test_medians_are_those_that_the_server_stamped(
    closed: tuple[BenchRun, list[list[float]]],
) -> None:
    run, log = closed
    rows = run.rows.to_pylist()
    assert len(rows) > 20
    for name, stamp in (("ttfb_ms", 0), ("ttfa_ms", 0), ("total_ms", -1)):
        measured = statistics.median(row[name] for row in rows)
        stamped = statistics.median(times[stamp] for times in log)
        assert abs(measured - stamped) < NEAR_MS, name
    arrived = statistics.median(row["chunk_at_ms"][2] for row in rows)
    assert abs(arrived - statistics.median(times[2] for times in log)) < NEAR_MS


def test_rows_and_summary_say_the_same(closed: tuple[BenchRun, list[list[float]]]) -> None:
    run, _ = closed
    assert run.rows.schema == SCHEMA
    assert run.valid
    assert not run.has_errors
    for level in run.summary["levels"]:
        rows = run.rows.filter(pc.equal(run.rows["level"], level["level"])).to_pylist()
        measured = [row for row in rows if not row["warmup"]]
        assert level["completed"] == level["started"] == level["offered"] == len(measured) > 0
        ordered = sorted(row["ttfa_ms"] for row in measured)
        assert level["figures"]["ttfa_ms_p50"]["value"] == ordered[(len(ordered) + 1) // 2 - 1]
        assert level["outcomes"] == {"ok": len(measured)}
        assert len({row["request"] for row in rows}) == len(rows)
        # 0.2 s every 40 ms.
        assert all(row["underruns"] == 0 or row["least_margin_ms"] < 0 for row in rows)
        assert {row["samples"] for row in rows} == {19_200}


def test_a_closed_loop_has_its_streams_in_flight_on_connections_used_again(
    closed: tuple[BenchRun, list[list[float]]],
) -> None:
    run, _ = closed
    four = run.rows.filter(pc.equal(run.rows["level"], 4.0)).to_pylist()
    assert {row["process"] for row in four} == {0, 1}
    at_s = 1.0
    begun = [row for row in four if row["dispatched_s"] <= at_s]
    assert sum(row["dispatched_s"] + row["total_ms"] / 1e3 > at_s - 0.05 for row in begun) >= 4
    connected = sum(row["connect_ms"] is not None for row in run.rows.to_pylist())
    assert connected <= 5


def test_fresh_connections_are_timed_each(url: str) -> None:
    run = run_bench(options(url, fresh_connections=True))
    assert run.rows["connect_ms"].null_count == 0
    assert run.levels[0].figures["connect_ms_p50"].n == run.levels[0].completed


def test_an_open_load_is_sent_at_its_deadlines_whatever_is_outstanding(url: str) -> None:
    run = run_bench(options(url, mode="open", levels=(12.0,), processes=2))
    rows = run.rows.to_pylist()
    (level,) = run.levels
    assert level.offered == level.started == sum(not row["warmup"] for row in rows) > 5
    assert all(row["dispatched_s"] >= row["planned_s"] for row in rows)
    assert all(row["lag_ms"] >= 0 for row in rows)
    # Of 12 a second that take 180 ms each some overlap: nothing waited for its turn.
    ends = sorted(
        (row["dispatched_s"] + row["total_ms"] / 1e3, row["dispatched_s"]) for row in rows
    )
    assert any(start < end for (end, _), (_, start) in itertools.pairwise(ends))


def test_an_arrival_above_the_cap_is_dropped_and_fails_the_level(url: str) -> None:
    run = run_bench(options(url, mode="open", levels=(40.0,), max_in_flight=1))
    (level,) = run.levels
    assert level.dropped > 0
    assert any("dropped" in failure for failure in level.failures)
    assert run.has_errors


def test_listeners_come_at_the_rate_that_keeps_so_many_listening(url: str) -> None:
    run = run_bench(options(url, mode="listening", levels=(6.0,), warmup_s=1.0))
    (level,) = run.levels
    rows = run.rows.to_pylist()
    estimated = [row for row in rows if row["planned_s"] is None]
    assert len(estimated) >= 8
    assert all(row["warmup"] for row in estimated)
    figures = {name: figure.value for name, figure in level.figures.items()}
    assert figures["estimated_audio_s"] == pytest.approx(0.8)
    cycle_s = figures["estimated_audio_s"] + figures["estimated_ttfa_ms"] / 1e3
    assert figures["offered_per_s"] == pytest.approx(6 / cycle_s)
    assert level.offered > 0
    assert len({row["request"] for row in rows}) == len(rows)


def test_more_processes_than_streams_end_as_well(url: str) -> None:
    for changes in ({"mode": "listening", "levels": (4.0,)}, {"levels": (1.0,)}):
        run = run_bench(options(url, processes=3, duration_s=0.5, **changes))
        assert not run.has_errors
        assert run.levels[0].completed > 0


def test_a_request_longer_than_the_window_is_measured(url: str) -> None:
    run = run_bench(options(url, levels=(2.0,), warmup_s=0.1, duration_s=0.05))
    assert run.levels[0].completed >= 2


def test_a_share_is_cancelled_and_the_server_is_free_of_them(url: str) -> None:
    changes = {"x-pieces": "100", "x-first-ms": "0", "x-gap-ms": "40"}
    run = run_bench(options(url, levels=(3.0,), cancel_share=0.9, headers=tuple(changes.items())))
    assert run.levels[0].outcomes["cancelled"] > 0
    assert not run.has_errors
    assert run.levels[0].figures["cancel_to_free_ms"].value >= 0


@pytest.mark.parametrize(
    ("mode", "level"), [("closed", 2.0), ("open", 8.0)], ids=["closed", "open"]
)
def test_a_request_that_hangs_from_the_warm_up_on_fails_the_level_and_has_a_row(
    mode: str, level: float
) -> None:
    with speaking_server() as (url, _):
        run = run_bench(options(url, "hang-second", mode=mode, levels=(level,), timeout_s=4.0))
    (summary,) = run.levels
    assert not summary.passed
    assert any("before the window failed in it or later" in one for one in summary.failures)
    assert run.has_errors
    hung = [row for row in run.rows.to_pylist() if row["outcome"] == "timeout"]
    assert len(hung) == 1
    assert hung[0]["warmup"]
    assert hung[0]["ended_s"] - hung[0]["dispatched_s"] >= 4.0
    assert summary.completed > 0


def test_a_client_that_is_killed_between_two_levels_leaves_the_first(url: str) -> None:
    def kill(_: LevelSummary) -> bool:
        process = client_processes()[0]
        process.kill()
        # Its end is seen by the next order only if it has come; its pipe is closed by then.
        with contextlib.suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                pass
        return True

    run = run_bench(options(url, levels=(1.0, 2.0), duration_s=0.5), after_level=kill)
    assert [level.level for level in run.levels] == [1.0]
    assert run.rows.num_rows > 0
    assert not run.valid
    assert "killed by signal 9" in run.summary["client"]["reasons"][0]


def test_slow_probes_hold_up_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_probe, "_ASK_WITHIN_S", 1.0)
    answers = {"/config": TRICKLE, "/metrics": TRICKLE, "/v1/audio/speech": speech(24_000)}
    with asked_server(answers) as (url, asked):
        run = run_bench(options(url, levels=(1.0, 2.0), duration_s=0.5))
    assert [level.passed for level in run.levels] == [True, True], run.levels
    assert (asked["/config"], asked["/metrics"]) == (1, 1)


def test_a_restart_of_the_server_fails_the_level(url: str) -> None:
    run = run_bench(options(url, "restart"))
    assert any("restarted" in failure for failure in run.levels[0].failures)


def test_a_sweep_ends_where_it_is_told_to(url: str) -> None:
    seen: list[LevelSummary] = []

    def look(level: LevelSummary) -> bool:
        seen.append(level)
        return len(seen) < 2

    run = run_bench(options(url, levels=(1.0, 2.0, 3.0), duration_s=0.5), after_level=look)
    assert [level.level for level in run.levels] == [1.0, 2.0]
    assert client_processes() == []


def test_a_hopeless_level_is_given_up_and_the_sweep_with_it(url: str) -> None:
    run = run_bench(options(url, "error", levels=(8.0, 9.0), duration_s=600.0))
    (level,) = run.levels
    assert level.failures[0].startswith("given up after")
    assert set(level.outcomes) == {"http_error"}


def test_a_client_that_stood_still_makes_the_run_invalid(url: str) -> None:
    stopped: list[psutil.Process] = []

    def halt(progress: Progress) -> None:
        if progress.phase == "measure" and not stopped:
            stopped.extend(client_processes())
            for process in stopped:
                process.suspend()
        elif stopped:
            for process in stopped:
                process.resume()

    # Between two calls pass 250 ms, of 1.5 s: far more than one in a hundred.
    run = run_bench(options(url, lag_limit_ms=50.0), progress=halt)
    assert stopped
    assert not run.valid
    assert any("event loop was late" in reason for reason in run.summary["client"]["reasons"])
    assert run.summary["client"]["lag_ms_p99"] > 50


def test_a_client_that_is_killed_ends_the_run_and_says_so(url: str) -> None:
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.phase == "measure" and not killed:
            killed.append(client_processes()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    run = run_bench(options(url, processes=2, duration_s=600.0), progress=kill)
    assert not run.valid
    assert "killed by signal 9" in run.summary["client"]["reasons"][0]
    assert client_processes() == []


def test_a_client_that_never_goes_on_ends_the_run_and_is_ended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_SILENT_S", 1.0)
    stopped: list[psutil.Process] = []

    def halt(progress: Progress) -> None:
        if progress.phase == "measure" and not stopped:
            stopped.extend(client_processes())
            stopped[0].suspend()

    run = run_bench(options(url, duration_s=600.0), progress=halt)
    assert "has said nothing" in run.summary["client"]["reasons"][0]
    assert not stopped[0].is_running()


def test_an_exception_of_whoever_listens_is_raised_and_leaves_no_client(url: str) -> None:
    def fail(progress: Progress) -> None:
        if progress.phase == "measure":
            raise LookupError

    with pytest.raises(LookupError):
        run_bench(options(url, duration_s=600.0), progress=fail)
    assert client_processes() == []


def test_an_interrupt_is_raised_unless_what_was_measured_is_asked_for(url: str) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.phase == "measure" and progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench(options(url, duration_s=600.0), progress=interrupt)
    run = run_bench(options(url, duration_s=600.0), progress=interrupt, keep_interrupted=True)
    assert run.interrupted
    assert run.rows.num_rows > 0
    assert client_processes() == []
