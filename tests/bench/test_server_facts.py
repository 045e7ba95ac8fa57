"""Whether the server after a load is the one before it."""

from __future__ import annotations

import pytest

from speech_assets.bench.metrics import Metrics
from speech_assets.bench.server_facts import ServerFacts, was_restarted

TEXT = "# TYPE requests_total counter\nrequests_total {}\n# TYPE active gauge\nactive {}\n"


def facts(text: str | None, *identity: str) -> ServerFacts:
    return ServerFacts(None, None if text is None else Metrics.parse(text), identity)


BEFORE = TEXT.format(5, 3)


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        (facts(BEFORE, "1"), facts(BEFORE, "1"), False),
        (facts(BEFORE, "1"), facts(BEFORE, "2"), True),
        (facts(BEFORE, "1"), facts(None), True),  # It is gone.
        (facts(None), facts(None), False),  # It never said who it is.
        (facts(None), facts(BEFORE, "1"), False),
        (facts(BEFORE), facts(TEXT.format(1, 3)), True),  # A counter fell.
        (facts(BEFORE), facts(TEXT.format(5, 0)), False),  # A gauge may.
        (facts(BEFORE), facts(""), False),
    ],
)
def test_a_restart_is_told_by_identity_or_by_a_counter_that_fell(
    before: ServerFacts, after: ServerFacts, restarted: bool
) -> None:
    assert was_restarted(before, after) is restarted
