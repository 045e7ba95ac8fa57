"""The engine whose core is another process: the same answers, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from engines import LIVE, ids, opened, prompt, run
from lineage_run import ending
from small_voice import write_small_voice

from server.checkpoint import Checkpoint, open_checkpoint
from server.engine import Engine, EngineSettings, Generation, Sampling
from server.errors import ConfigurationError, EngineDiedError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

SETTINGS = EngineSettings(max_streams=3, max_model_len=512)
CHILD = EngineSettings(max_streams=3, max_model_len=512, form="child")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("voice")
    return open_checkpoint(write_small_voice(folder, live_codes=LIVE))


@pytest.fixture(scope="module")
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    with opened(checkpoint, CHILD) as engine:
        yield engine


def test_both_forms_give_the_same(engine: Engine, checkpoint: Checkpoint) -> None:
    assert engine.facts.form == "child"
    generations = [
        Generation(f"r{n}", prompt(checkpoint, "so"), Sampling(seed=n, max_tokens=60, logprobs=3))
        for n in range(4)
    ]
    there = run(engine, *generations)
    with opened(checkpoint, SETTINGS) as other:
        here = run(other, *generations)
    for name, outputs in here.items():
        assert ids(there[name]) == ids(outputs)
        assert there[name][-1].finish_reason == outputs[-1].finish_reason
        rows = [
            [row for output in form[name] for row in output.logprobs or []]
            for form in (there, here)
        ]
        assert rows[0] == [pytest.approx(row) for row in rows[1]]


def test_an_abort_frees_the_slot_and_the_id(engine: Engine, checkpoint: Checkpoint) -> None:
    text, long = prompt(checkpoint, "a"), Sampling(max_tokens=450)
    for name in ("a", "b", "c", "waits"):
        engine.add(Generation(name, text, long))
    seen: set[str] = set()
    while len(seen) < 3:
        seen |= {output.request_id for output in engine.step()}
    assert seen == {"a", "b", "c"}
    engine.abort(["b"])
    while "waits" not in seen:
        got = engine.step()
        seen |= {output.request_id for output in got}
        assert "b" not in {output.request_id for output in got}
    engine.abort(["a", "c", "waits"])
    assert not engine.busy
    assert engine.step() == []
    assert len(ids(run(engine, Generation("b", text, Sampling(max_tokens=3)))["b"])) == 3


def test_what_cannot_run_is_refused(engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match="prompt id 99999"):
        engine.add(Generation("bad", [99_999]))
    assert not engine.busy


def test_a_core_that_is_killed_is_an_engine_that_died(checkpoint: Checkpoint) -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    with opened(checkpoint, CHILD) as engine:
        engine.add(Generation("r", prompt(checkpoint, "a"), Sampling(max_tokens=450)))
        engine.step()
        (core,) = [c for c in multiprocessing.active_children() if c.pid not in before]
        os.kill(core.pid or 0, signal.SIGKILL)
        with pytest.raises(EngineDiedError, match="the engine stopped"):
            step_on(engine)
        with pytest.raises(EngineDiedError):
            engine.add(Generation("s", [1, 3]))
    assert {child.pid for child in multiprocessing.active_children()} <= before


def step_on(engine: Engine) -> None:
    """Step until something breaks."""
    while True:
        engine.step()


def test_a_killed_parent_leaves_no_process(checkpoint: Checkpoint) -> None:
    code = """
import sys
from pathlib import Path
from server.checkpoint import open_checkpoint
from server.engine import EngineSettings, open_engine
if __name__ == "__main__":
    checkpoint = open_checkpoint(Path(sys.argv[1]))
    engine = open_engine(checkpoint, EngineSettings(max_streams=1, max_model_len=512, form="child"))
    print("open", flush=True)
    sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(checkpoint.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with ending(parent):
        assert parent.stdout is not None
        assert parent.stdout.readline() == "open\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert any("EngineCore" in name_of(child) for child in children)
        parent.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def name_of(process: psutil.Process) -> str:
    """Its name, empty if it has ended: libraries ask the system by commands of a moment."""
    try:
        return process.name()
    except psutil.Error:
        return ""
