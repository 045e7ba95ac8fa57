"""What a server counts: what changed, which samples are counts, and text that is no metrics."""

from __future__ import annotations

import pytest

from speech_assets.bench.metrics import Metrics, changes, fell

TEXT = """\
# TYPE requests_total counter
requests_total {requests}
# TYPE wait_seconds histogram
wait_seconds_bucket{{le="1"}} {bucket}
wait_seconds_bucket{{le="+Inf"}} {bucket}
wait_seconds_count {bucket}
wait_seconds_sum {total}
# TYPE jobs_total gauge
jobs_total {gauge}
# TYPE queue_count gauge
queue_count {gauge}
untyped_total {gauge}
"""


def metrics(
    requests: float = 5, bucket: float = 2, total: float = 1.5, gauge: float = 3
) -> Metrics:
    return Metrics.parse(TEXT.format(requests=requests, bucket=bucket, total=total, gauge=gauge))


def test_counters_are_what_they_grew_by_and_gauges_what_they_are() -> None:
    found = changes(metrics(), metrics(9, 6, 2.0, 1))
    assert found == {
        "requests_total": 4.0,
        'wait_seconds_bucket{le="1"}': 4.0,
        'wait_seconds_bucket{le="+Inf"}': 4.0,
        "wait_seconds_count": 4.0,
        "wait_seconds_sum": 0.5,
        "jobs_total": 1.0,
        "queue_count": 1.0,
        "untyped_total": 1.0,
    }


def test_a_counter_that_begins_within_the_window_grew_from_nothing() -> None:
    assert (changes(Metrics({}), metrics()) or {})["requests_total"] == 5.0


def test_without_one_of_the_two_looks_nothing_is_known() -> None:
    assert changes(None, metrics()) is None
    assert changes(metrics(), None) is None


def test_only_a_count_that_fell_is_a_restart_whatever_a_gauge_is_called() -> None:
    assert fell(metrics(), metrics(requests=1))
    assert fell(metrics(), metrics(bucket=1))
    assert not fell(metrics(), metrics(gauge=0))
    assert not fell(metrics(), metrics(total=-1))  # Of what can be negative.
    assert not fell(metrics(), Metrics({}))


def test_a_sample_that_is_no_finite_number_is_left_out() -> None:
    assert Metrics.parse("a NaN\nb +Inf\nc -Inf\nd 1\n").values == {"d": 1.0}


@pytest.mark.parametrize(
    "text", ['b{le=+Inf"} 3 123\n', "a{", 'a{b="c} 1\n', "a b c d\n", "# TYPE a\n{} 1", "<html>\n"]
)
def test_text_that_is_no_metrics_is_one_error_and_no_other(text: str) -> None:
    with pytest.raises(ValueError, match="no metrics"):
        Metrics.parse(text)
