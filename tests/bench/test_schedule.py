"""Schedules: when requests are due, from a seed."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speech_assets.bench.part import Part
from speech_assets.bench.schedule import arrivals, plan

KINDS = st.sampled_from(["poisson", "constant", "gamma:0.5", "gamma:2"])


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise([0.0, *times])]


@settings(deadline=None)
@given(KINDS, st.floats(0.1, 50), st.integers(0, 2**31), st.floats(0, 60))
def test_arrivals_ascend_within_their_time_and_come_again_of_the_same_seed(
    kind: str, rate: float, seed: int, until_s: float
) -> None:
    times = list(arrivals(kind, rate, seed, until_s))
    assert times == sorted(times)
    assert all(0 <= at < until_s for at in times)
    assert list(arrivals(kind, rate, seed, until_s)) == times


@settings(deadline=None)
@given(KINDS, st.integers(0, 1_000), st.floats(1, 30))
def test_a_longer_schedule_begins_as_a_shorter_one(kind: str, seed: int, until_s: float) -> None:
    short, long = (list(arrivals(kind, 5.0, seed, end)) for end in (until_s, 2 * until_s))
    assert long[: len(short)] == short


@pytest.mark.parametrize(
    ("kind", "cv"), [("poisson", 1.0), ("gamma:0.5", 0.5), ("gamma:2", 2.0), ("constant", 0.0)]
)
def test_arrivals_have_the_rate_and_the_variation_asked_for(kind: str, cv: float) -> None:
    between = gaps(list(arrivals(kind, 10.0, 1, 4_000.0)))[1:]
    mean = statistics.mean(between)
    assert mean == pytest.approx(0.1, rel=0.03)
    assert statistics.stdev(between) / mean == pytest.approx(cv, rel=0.03, abs=1e-6)


def test_arrivals_are_drawn_as_they_are_due_and_not_all_at_once() -> None:
    endless = arrivals("poisson", 1e9, 1, math.inf)
    assert len(list(itertools.islice(endless, 5))) == 5


def test_another_seed_is_another_schedule() -> None:
    first, second = (list(arrivals("poisson", 5.0, seed, 10.0)) for seed in (1, 2))
    assert first != second


@settings(deadline=None)
@given(st.integers(1, 7), st.integers(0, 1_000))
def test_processes_share_one_schedule_without_gap_or_double(processes: int, seed: int) -> None:
    shares = [open_part(process, processes, seed).due() for process in range(processes)]
    together = sorted(itertools.chain(*shares))
    assert [number for number, _ in together] == list(range(100, 100 + len(together)))
    assert [at for _, at in together] == [7.0 + at for at in arrivals("poisson", 4.0, seed, 9.0)]


def test_only_arrivals_of_the_window_are_offered() -> None:
    part = open_part(0, 1, 5)
    times = list(arrivals("poisson", 4.0, 5, 9.0))
    assert part.offered() == sum(1.0 <= at < 6.0 for at in times) > 0


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 1_000))
def test_every_round_of_requests_speaks_every_text_once(texts: int, seed: int) -> None:
    for start in (0, 3 * texts):
        spoken = [plan(start + n, texts, seed, 0.0).text for n in range(texts)]
        assert sorted(spoken) == list(range(texts))


def test_a_share_of_requests_is_cancelled_the_same_each_time() -> None:
    plans = [plan(n, 10, 3, 0.2) for n in range(2_000)]
    cancelled = [one for one in plans if one.cancel_after_s is not None]
    assert 300 < len(cancelled) < 500
    assert all(0.01 <= (one.cancel_after_s or 0) <= 2.0 for one in cancelled)
    assert plans == [plan(n, 10, 3, 0.2) for n in range(2_000)]
    assert all(plan(n, 10, 3, 0.0).cancel_after_s is None for n in range(100))


def open_part(process: int, processes: int, seed: int) -> Part:
    return Part(
        load="open",
        start_s=7.0,
        warmup_s=1.0,
        duration_s=5.0,
        process=process,
        processes=processes,
        first_request=100,
        seed=seed,
        texts=10,
        cancel_share=0.0,
        rate=4.0,
        until_s=9.0,
    )
