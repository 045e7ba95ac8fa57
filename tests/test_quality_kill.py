"""Samples, WER, A/B and report that are killed: nothing is left, and the next run works."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from lineage_run import StepsRun, wait_for

from speech_assets.results.result import slug
from speech_assets.step import Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRESET = "embedded-bf16"
SHORT = {"sentences": 1, "seeds": "1"}
JUDGE = Step("judge_samples", "", PRESET, {"ops": {"samples": {"config": SHORT}}})
# Beside itself: no checkpoint need be made for it.
COMPARE = Step(
    "compare_presets",
    "",
    PRESET,
    {"ops": {"ab": {"config": {**SHORT, "settings_b": "codec_dtype=bfloat16"}}}},
)
REPORT = Step("write_report", "")
pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture
def quality_run(tmp_path: Path) -> Iterator[StepsRun]:
    quality_run = StepsRun(tmp_path, {"SPEECH_PROFILE": "embedded"}, steps=[JUDGE, COMPARE, REPORT])
    yield quality_run
    quality_run.end()


@pytest.mark.parametrize(
    ("step", "module", "processes", "number"),
    [
        pytest.param(JUDGE, "server", 1, signal.SIGKILL, id="speaking"),
        pytest.param(COMPARE, "server", 2, signal.SIGINT, id="comparing, by Ctrl-C"),
        pytest.param(REPORT, "speech_assets.work.report", 1, signal.SIGKILL, id="reporting"),
    ],
)
def test_a_run_that_is_ended_leaves_no_process_and_no_result(
    quality_run: StepsRun, step: Step, module: str, processes: int, number: signal.Signals
) -> None:
    end_at(quality_run, step, module, processes, number)


def test_all_that_was_killed_while_listening_and_comparing_works_the_next_time(
    quality_run: StepsRun,
) -> None:
    """What the one has left is there when the other is killed, and all of it at the next run."""
    end_at(quality_run, JUDGE, "speech_assets.work.wer", 1, signal.SIGKILL)
    end_at(quality_run, COMPARE, "server", 2, signal.SIGKILL)
    quality_run.run()
    assert {result["kind"] for result in quality_run.stored()} == {"wer", "ab"}
    assert not [name for name in quality_run.objects() if name.endswith("/owner.json")]
    assert len({name.split("/")[2] for name in quality_run.objects() if name[:3] == "ab/"}) == 1
    page = quality_run.objects()["report/index.html"].decode()
    [compared] = quality_run.stored("ab")
    assert slug(compared["name"]) in page  # By its id: the page breaks long names.


def end_at(
    quality_run: StepsRun, step: Step, module: str, processes: int, number: signal.Signals
) -> None:
    """End a run of `step` when so many processes of `module` run: nothing is left of it."""
    one = replace(quality_run, steps=[step])
    run = one.start()
    wait_for(lambda: len(one.processes(module)) >= processes, f"{processes} of {module} run")
    run.send_signal(number)
    if number == signal.SIGINT:
        run.wait()
    one.kill(run)  # Waits until no process of it is left.
    assert run.returncode != 0
    assert one.stored() == []
    assert "report/index.html" not in one.objects()
    if number == signal.SIGINT:  # Killed, it can clean up nothing: the next run does.
        assert not [name for name in one.objects() if name.startswith("ab/")]
