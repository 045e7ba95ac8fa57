"""What a server says before and after a load: what changed, and whether it is the same server."""

from __future__ import annotations

import pytest

from speech_assets.bench.server_facts import ServerFacts, changes, was_restarted

BEFORE = {"requests_total": 5.0, 'bucket_bucket{le="1"}': 2.0, "active": 3.0, "x_sum": 1.5}


def facts(metrics: dict[str, float] | None, *identity: str) -> ServerFacts:
    return ServerFacts(None, metrics, identity)


def test_counters_are_what_they_grew_by_and_gauges_what_they_are() -> None:
    after = {"requests_total": 9.0, 'bucket_bucket{le="1"}': 6.0, "active": 1.0, "x_sum": 2.0}
    assert changes(BEFORE, after) == {
        "requests_total": 4.0,
        'bucket_bucket{le="1"}': 4.0,
        "active": 1.0,
        "x_sum": 0.5,
    }


def test_a_counter_that_begins_within_the_window_grew_from_nothing() -> None:
    assert changes({}, {"requests_total": 3.0}) == {"requests_total": 3.0}


def test_without_one_of_the_two_looks_nothing_is_known() -> None:
    assert changes(None, BEFORE) is None
    assert changes(BEFORE, None) is None


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        (facts(BEFORE, "1"), facts(BEFORE, "1"), False),
        (facts(BEFORE, "1"), facts(BEFORE, "2"), True),
        (facts(BEFORE, "1"), facts(None), True),  # It is gone.
        (facts(None), facts(None), False),  # It never said who it is.
        (facts(None), facts(BEFORE, "1"), False),
        (facts(BEFORE), facts({**BEFORE, "requests_total": 1.0}), True),  # A counter fell.
        (facts(BEFORE), facts({**BEFORE, "active": 0.0}), False),  # A gauge may.
        (facts(BEFORE), facts({}), False),
    ],
)
def test_a_restart_is_told_by_identity_or_by_a_counter_that_fell(
    before: ServerFacts, after: ServerFacts, restarted: bool
) -> None:
    assert was_restarted(before, after) is restarted
