"""`--admission pace` on a real server: places are withheld by the engine's own steps."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from lineage_run import wait_for
from speech_servers import LONG_TEXT, health, load_of, logged, metric, post, raw_request

if TYPE_CHECKING:
    from pathlib import Path

PLACES = 8
STEPS = 5  # That tell how long one takes with so many streams.
# The server as it is, but in slow motion, beside which the machine's own time is nothing: a step
# takes 0.15 s for each stream and may take 0.75 s. So four keep pace, and a fifth would not.
SLOW = """
import sys, time
import server.engine_core as core, server.step_times as step_times
step_times.STEP_BUDGET_S = 0.75
step = core.CoreEngine.step
def slow_step(self):
    outputs = step(self)
    time.sleep(0.15 * len(outputs))
    return outputs
core.CoreEngine.step = slow_step
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "form", [(), ("--api-processes", "2")], ids=["one_process", "api_processes"]
)
def test_streams_are_taken_while_all_keep_pace_and_then_told_to_come_again(
    endless_voice: Path, tmp_path: Path, form: tuple[str, ...]
) -> None:
    with (
        logged(
            *(endless_voice, tmp_path / "log", "--admission", "pace", *form),
            *("--max-streams", str(PLACES), "--max-queue", "1", "--limit", "queue_s=100"),
            program=("-c", SLOW),
        ) as server,
        contextlib.ExitStack() as stack,
    ):

        def ask() -> None:
            streams.append(stack.enter_context(raw_request(server, LONG_TEXT)))

        def steps() -> float:
            return metric(server, "speech_engine_step_seconds_count")

        streams = []
        for count in range(1, 5):
            ask()
            wait_for(lambda count=count: load_of(server) == (count, 0), f"{count} are spoken")
            seen = steps()
            wait_for(lambda seen=seen: steps() >= seen + STEPS, "it is known how fast these are")
        ask()
        wait_for(lambda: load_of(server) == (4, 1), "the fifth waits, though places are free")
        assert health(server)["status"] == "degraded"
        refused = post(server, LONG_TEXT)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "overloaded"
        assert "4 streams are as many as can be made in realtime" in refused.text
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        streams[0].close()
        wait_for(lambda: load_of(server) == (4, 0), "the fifth has the place of one that went")
        for stream in streams:
            stream.close()
        wait_for(lambda: load_of(server) == (0, 0), "no place is taken")
