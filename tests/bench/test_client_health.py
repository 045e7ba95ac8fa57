"""Whether the client was the limit: late in its loop or its dispatch, or short of CPU."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
import pytest

from speech_assets.bench.clients import PartEnd
from speech_assets.bench.lag import LagMeter, sleep_until
from speech_assets.bench.summary import MOST_CPU, ClientHealth


def end(**changed: float | list[str] | None) -> PartEnd:
    given = {"lag_ms_p99": 1.0, "lag_ms_max": 2.0, "cpu_share": 0.2, **changed}
    return PartEnd(rows=pa.table({}), cut=0, cut_s=0.0, unfinished=0, **given)  # pyright: ignore[reportArgumentType]


def rows(lags_ms: list[float | None], *, is_warmup: bool = False) -> pa.Table:
    return pa.table(
        {
            "lag_ms": pa.array(lags_ms, pa.float64()),
            "warmup": pa.array([is_warmup] * len(lags_ms), pa.bool_()),
        }
    )


def test_a_client_in_time_is_valid() -> None:
    health = ClientHealth(5.0)
    health.look(1, [end(), end(cpu_share=MOST_CPU)], rows([0.1, None, 4.9]))
    assert health.as_json() == {
        "valid": True,
        "reasons": [],
        "lag_ms_p99": 1.0,
        "lag_ms_max": 2.0,
        "dispatch_lag_ms_p99": 4.9,
        "cpu_share_max": MOST_CPU,
    }


@pytest.mark.parametrize(
    ("ends", "table", "reason"),
    [
        (
            [end(), end(cpu_share=0.95)],
            rows([]),
            "level 4: client process 1 used 95% of a core (at most 90%); use more processes",
        ),
        (
            [end(lag_ms_p99=7.25)],
            rows([]),
            "level 4: process 0's event loop was late, p99 7.2 ms (at most 5 ms)",
        ),
        (
            [end(), end(faults=["it ran out of files"])],
            rows([]),
            "level 4: client process 1: it ran out of files",
        ),
        ([end()], rows([9.0]), "level 4: dispatch was late, p99 9.0 ms (at most 5 ms)"),
    ],
)
def test_each_way_to_be_the_limit_is_named(
    ends: list[PartEnd], table: pa.Table, reason: str
) -> None:
    health = ClientHealth(5.0)
    health.look(4, ends, table)
    assert health.reasons == [reason]
    assert not health.as_json()["valid"]


def test_lateness_in_the_warm_up_does_not_count() -> None:
    health = ClientHealth(5.0)
    health.look(1, [end()], rows([50.0], is_warmup=True))
    assert not health.reasons


def test_a_loop_that_stands_still_misses_every_wake_in_that_time() -> None:
    async def stand_still() -> list[float]:
        meter = LagMeter()
        meter.start()
        await asyncio.sleep(0.02)
        time.sleep(0.2)
        await asyncio.sleep(0.02)
        return meter.stop()

    late = sorted(asyncio.run(stand_still()))
    # 200 ms of wakes every 5 ms, each one as late as what was left of the standstill.
    assert sum(lag_ms >= 95 for lag_ms in late) >= 20
    assert late[-1] >= 190


def test_sleeping_until_a_moment_never_ends_before_it() -> None:
    async def wake() -> float:
        at_s = time.monotonic() + 0.01
        await sleep_until(at_s)
        return time.monotonic() - at_s

    assert asyncio.run(wake()) >= 0
    assert asyncio.run(sleep_until(time.monotonic() - 1)) is None
