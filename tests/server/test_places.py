"""Places: never more than there are, served in order, refused with a time that means something."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import places as places_module
from server.errors import OverloadedError
from server.places import Places
from server.step_times import STEP_BUDGET_S, StepTimes

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any


class Clock:
    """The time that places know; only the test moves it."""

    now_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(places_module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_who_waits_is_served_in_order() -> None:
    async def check() -> None:
        places, served = Places(1, 3), list[str]()

        async def ask(name: str) -> None:
            await places.take(name)
            served.append(name)

        tasks = [asyncio.create_task(ask(name)) for name in "abcd"]
        await settled()
        assert (served, places.taken, places.waiting) == (["a"], ["a"], 3)
        assert places.is_full
        for name in "abcd":
            places.free(name)
            await settled()
        assert served == list("abcd")
        assert (places.taken, places.waiting) == ([], 0)
        await asyncio.gather(*tasks)

    run(check())


def test_nobody_overtakes_the_queue_when_a_place_comes_free() -> None:
    async def check() -> None:
        places = Places(1, 2)
        await places.take("first")
        waiting = asyncio.create_task(places.take("waiting"))
        await settled()
        places.free("first")
        late = asyncio.create_task(places.take("late"))
        await settled()
        assert places.taken == ["waiting"]
        places.free("waiting")
        await asyncio.gather(waiting, late)
        assert places.taken == ["late"]

    run(check())


def test_one_who_waits_too_long_is_told_when_to_come_again(clock: Clock) -> None:
    async def check() -> None:
        places = Places(1, 2, longest_wait_s=0.001)
        await places.take("a")
        with pytest.raises(OverloadedError, match=r"no place came free in 0\.001 s") as raised:
            await places.take("b")
        assert raised.value.retry_after_s == 5  # Nothing has ended that would tell more.
        assert places.waiting == 0

    run(check())


def test_retry_after_is_when_a_place_is_likely_free(clock: Clock) -> None:
    async def check() -> None:
        places = Places(2, 2)
        assert places.retry_after_s() == 1
        for name in "ab":
            await places.take(name)
            clock.now_s += 10
            places.free(name)  # Both lasted 10 s.
        await places.take("c")
        clock.now_s += 4
        await places.take("d")
        clock.now_s += 3
        # c has 3 s left, d 7; the next round of two ends 10 s after those.
        assert places.retry_after_s() == 3
        tasks = [asyncio.create_task(places.take(name)) for name in "ef"]
        await settled()
        assert places.retry_after_s() == 13
        with pytest.raises(OverloadedError, match="all 2 places are taken and 2") as raised:
            await places.take("g")
        assert raised.value.retry_after_s == 13
        clock.now_s += 1_000
        assert places.retry_after_s() == 10  # Overdue: c and d may end any moment, e and f then.
        for name in "cdef":
            places.free(name)
            await settled()
        await asyncio.gather(*tasks)

    run(check())


def test_a_place_that_was_not_spoken_from_tells_nothing_of_how_long_others_last(
    clock: Clock,
) -> None:
    async def check() -> None:
        places = Places(1, 1)
        await places.take("spoken")
        clock.now_s += 10
        places.free("spoken")
        for number in range(100):
            await places.take(f"refused {number}")
            places.free(f"refused {number}", was_spoken=False)
        await places.take("now")
        assert places.retry_after_s() == 10

    run(check())


def test_retry_after_stays_within_a_minute(clock: Clock) -> None:
    async def check() -> None:
        places = Places(1, 1)
        await places.take("a")
        clock.now_s += 5_000
        places.free("a")
        await places.take("b")
        assert places.retry_after_s() == 60

    run(check())


def test_all_who_wait_are_refused_when_the_server_ends() -> None:
    async def check() -> None:
        places = Places(1, 2)
        await places.take("a")
        tasks = [asyncio.create_task(places.take(name)) for name in "bc"]
        await settled()
        places.refuse_waiting("the server is ending")
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in errors] == ["the server is ending"] * 2
        assert (places.taken, places.waiting) == (["a"], 0)

    run(check())


@given(
    st.integers(1, 3),
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from(["ask", "free", "leave"]), st.integers(0, 9)), max_size=60),
)
def test_no_place_is_lost_or_given_twice(
    max_streams: int, max_queue: int, acts: list[tuple[str, int]]
) -> None:
    async def check() -> None:
        places = Places(max_streams, max_queue, longest_wait_s=60)
        asked: dict[str, asyncio.Task[None]] = {}
        for number, (act, which) in enumerate(acts):
            if act == "ask":
                name = str(number)
                asked[name] = asyncio.create_task(places.take(name))
            elif act == "free" and places.taken:
                # Not settled in between: the end of one and the leave of another may coincide.
                places.free(places.taken[which % len(places.taken)])
            elif act == "leave" and asked:
                name = list(asked)[which % len(asked)]
                if not asked[name].done():
                    asked[name].cancel()
            if which % 2:
                await settled()
            assert len(places.taken) <= max_streams
            assert places.waiting <= max_queue
        await settled()
        # Nobody waits while a place is free.
        assert not places.waiting or len(places.taken) == max_streams
        while places.taken:
            places.free(places.taken[0])
            await settled()
        assert places.waiting == 0
        await asyncio.gather(*asked.values(), return_exceptions=True)
        # All of them are there again.
        for number in range(max_streams):
            await places.take(f"last {number}")
        assert places.is_full == (max_queue == 0)

    run(check())


def test_a_stream_too_many_waits_until_one_ends_though_places_are_free(clock: Clock) -> None:
    async def check() -> None:
        steps = StepTimes()
        places = Places(8, 1, steps=steps)
        await places.take("a")
        steps.stepped(1, STEP_BUDGET_S * 0.6, clock.now_s)  # Two would take 1.2 at most.
        waiting = asyncio.create_task(places.take("b"))
        await settled()
        assert places.taken == ["a"]
        with pytest.raises(OverloadedError, match="1 streams are as many as can be made in real"):
            await places.take("c")
        places.free("a")
        await waiting
        # What was measured of two is believed, not what one would let expect.
        steps.stepped(2, STEP_BUDGET_S * 0.7, clock.now_s)
        await places.take("d")
        assert places.taken == ["b", "d"]

    run(check())


def test_a_machine_that_is_too_slow_for_any_still_serves_one(clock: Clock) -> None:
    async def check() -> None:
        steps = StepTimes()
        places = Places(8, 8, steps=steps)
        for name in "abc":
            steps.stepped(1, STEP_BUDGET_S * 5, clock.now_s)
            await places.take(name)
            assert places.taken == [name]
            places.free(name)

    run(check())


def test_a_slow_moment_keeps_nobody_out_for_long() -> None:
    steps = StepTimes()
    steps.stepped(4, STEP_BUDGET_S * 9, 0.0)
    assert not steps.keep_pace(4, 9.9)
    assert steps.keep_pace(4, 10.1)  # Nothing tells any more.
    steps.stepped(3, STEP_BUDGET_S / 2, 10.2)
    assert steps.keep_pace(4, 10.3)


@given(st.floats(1e-4, 0.1), st.integers(1, 300), st.integers(1, 300))
def test_a_step_is_never_expected_to_grow_faster_than_its_streams(
    step_s: float, streams: int, more: int
) -> None:
    steps = StepTimes()
    steps.stepped(streams, step_s, 0.0)
    expected_s = steps.expected_s(streams + more, 1.0)
    assert expected_s == pytest.approx(step_s * (streams + more) / streams)
    assert steps.expected_s(streams - 1, 1.0) is None


def test_who_waits_for_a_slow_moment_to_pass_has_a_place_when_it_has(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_module, "_LOOK_S", 0.0)

    async def check() -> None:
        steps = StepTimes()
        places = Places(8, 1, longest_wait_s=600, steps=steps)
        await places.take("long")
        steps.stepped(1, STEP_BUDGET_S * 2, clock.now_s)
        waiting = asyncio.create_task(places.take("waiting"))
        await settled()
        assert places.taken == ["long"]
        clock.now_s += 60  # That was long ago; no stream has ended meanwhile.
        steps.stepped(1, STEP_BUDGET_S / 4, clock.now_s)
        await waiting
        assert places.taken == ["long", "waiting"]

    run(check())
