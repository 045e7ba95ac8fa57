"""Percentiles and figures of rows made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speech_assets.bench.figures import ended_within, level_figures, percentiles
from speech_assets.bench.percentile import nearest_rank
from speech_assets.bench.rows import SCHEMA, table
from speech_assets.bench.verdict import failures, missing_streams

FRAME = 2_048


def row(**fields: Any) -> dict[str, Any]:
    """A request that went well: 1 s of audio in one chunk after 100 ms, 500 ms in all."""
    return {
        **dict.fromkeys(SCHEMA.names),
        "warmup": False,
        "outcome": "ok",
        "error": "",
        "dispatched_s": 1.0,
        "lag_ms": 0.1,
        "sent_ms": 0.0,
        **{name: 100.0 for name in ("ttfb_ms", "ttfa_ms", "ttfs_ms")},
        "total_ms": 500.0,
        "rtf": 0.5,
        "audio_s": 1.0,
        "samples": 24_000,
        **{name: 0 for name in ("underruns", "underruns_20_ms", "underruns_100_ms")},
        "underruns_in_speech": 0,
        "underrun_ms": 0.0,
        "worst_underrun_ms": 0.0,
        "chunk_at_ms": [100.0, 500.0],
        "chunk_samples": [12_000, 12_000],
        **fields,
    }


@pytest.mark.parametrize(
    ("percent", "value"), [(5, 15), (30, 20), (40, 20), (50, 35), (95, 50), (100, 50)]
)
def test_nearest_rank_is_the_textbook_one(percent: float, value: float) -> None:
    assert nearest_rank([35, 20, 15, 50, 40], percent) == value


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([50, 95, 99]))
def test_a_percentile_is_the_least_value_that_enough_do_not_exceed(
    values: list[float], percent: int
) -> None:
    found = nearest_rank(values, percent)
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (0, set()),
        (1, {"x_p50"}),
        (39, {"x_p50"}),
        (40, {"x_p50", "x_p95"}),
        (199, {"x_p50", "x_p95"}),
        (200, {"x_p50", "x_p95", "x_p99"}),
    ],
)
def test_a_tail_is_only_told_of_enough_values(count: int, names: set[str]) -> None:
    found = percentiles("x", [float(n) for n in range(count)], (50, 95, 99), "ms")
    assert set(found) == names
    assert all(figure.n == count for figure in found.values())


def test_figures_leave_out_the_warm_up_and_say_what_is_missing() -> None:
    rows = [
        row(warmup=True, ttfa_ms=9_000.0),
        row(ttfa_ms=100.0),
        row(ttfa_ms=200.0, ttfs_ms=None),
        row(outcome="stalled", ttfa_ms=7_000.0),
    ]
    figures, missing = level_figures(rows, 1.0, 10.0)
    assert (figures["ttfa_ms_p50"].value, figures["ttfa_ms_p50"].n) == (100.0, 2)
    assert (missing["ttfa_ms"], missing["ttfs_ms"]) == (1, 2)


def test_what_a_second_brings_counts_arrivals_within_the_window_only() -> None:
    # The window is 2 s to 4 s. Half a second of audio each: in at 2.0 and 3.5, out at 1.9 and 4.1.
    rows = [
        row(warmup=True, dispatched_s=1.5, chunk_at_ms=[400.0, 500.0]),
        row(dispatched_s=3.4, chunk_at_ms=[100.0, 700.0], total_ms=700.0),
    ]
    figures, _ = level_figures(rows, 2.0, 2.0)
    assert figures["audio_s_per_s"].value == pytest.approx(0.5)
    assert ended_within(rows, 2.0, 2.0) == 1
    assert figures["requests_per_s"].value == pytest.approx(0.5)
    # 1.5 s to 2.0 s is before the window; 3.4 s to 4.1 s reaches beyond it.
    assert figures["in_flight_mean"].value == pytest.approx(0.6 / 2)


def test_a_cancelled_request_ends_when_it_is_cancelled() -> None:
    # Heard until 2.5 s, cancelled at 3 s; one cancelled before anything came; both in the window.
    rows = [
        row(outcome="cancelled", dispatched_s=2.0, total_ms=500.0, cancel_ms=1_000.0),
        row(outcome="cancelled", dispatched_s=2.0, total_ms=None, cancel_ms=400.0),
    ]
    assert ended_within(rows, 2.0, 2.0) == 2
    figures, _ = level_figures(rows, 2.0, 2.0)
    assert figures["requests_per_s"].value == 0
    assert figures["in_flight_mean"].value == pytest.approx((1.0 + 0.4) / 2)


def test_a_server_is_not_behind_by_what_the_client_itself_cancelled_or_dropped() -> None:
    cancelled = [
        row(outcome="cancelled", planned_s=1.0, cancel_ms=300.0, total_ms=200.0) for _ in range(40)
    ]
    assert verdict(cancelled, mode="open") == []
    dropped = [row(outcome="dropped", planned_s=1.0, total_ms=None) for _ in range(40)]
    faults = verdict([row(planned_s=1.0), *dropped], mode="open")
    assert any("40 of 41 requests: dropped" in fault for fault in faults)
    assert not any("falls behind" in fault for fault in faults)
    late = [row(planned_s=1.0, total_ms=90_000.0) for _ in range(40)]
    assert any("the server falls behind" in fault for fault in verdict(late, mode="open"))


def test_latency_from_the_deadline_has_the_lateness_of_the_client_in_it() -> None:
    figures, _ = level_figures([row(planned_s=0.9, lag_ms=90.0, sent_ms=10.0)], 0.0, 5.0)
    assert figures["ttfa_from_deadline_ms_p50"].value == pytest.approx(200.0)
    assert figures["ttfa_ms_p50"].value == 100.0


def test_rows_made_by_hand_are_rows_of_the_schema() -> None:
    assert table([row()]).to_pylist() == [row()]


def verdict(rows: list[dict[str, Any]], **changes: Any) -> list[str]:
    facts = {"offered": len(rows), "was_restarted": False, "mode": "closed", **changes}
    mode, offered = facts.pop("mode"), facts.pop("offered")
    return failures(rows, mode, offered, 0.0, 60.0, **facts)


def test_a_level_where_all_went_well_passes() -> None:
    assert verdict([row() for _ in range(10)]) == []
    assert verdict([row(planned_s=1.0) for _ in range(10)], mode="open") == []


@pytest.mark.parametrize(
    ("changes", "facts", "words"),
    [
        ({"outcome": "dropped"}, {}, "1 of 11 requests: dropped"),
        ({"outcome": "truncated"}, {}, "1 of 11 requests: truncated"),
        ({"outcome": "silent"}, {}, "1 of 11 requests: silent"),
        ({"underruns": 1, "worst_underrun_ms": 0.5}, {}, "1 underruns in 1 of 11"),
        ({"rtf": 1.0}, {}, "RTF p95 1.000 of 11 requests is not below 1"),
        ({}, {"offered": 12}, "1 of 12 requests were never sent"),
        ({}, {"was_restarted": True}, "restarted"),
        (
            {"reported_samples": 24_000, "reported_trimmed_samples": 0, "reported_frames": 11},
            {},
            "2,048 a frame",
        ),
        (
            {"reported_samples": 24_001, "reported_trimmed_samples": 576, "reported_frames": 12},
            {},
            "2,048 a frame",
        ),
    ],
)
def test_each_condition_fails_a_level_by_itself(
    changes: dict[str, Any], facts: dict[str, Any], words: str
) -> None:
    found = verdict([*(row() for _ in range(10)), row(**changes)], **facts)
    assert any(words in failure for failure in found)


def test_a_request_of_the_warm_up_fails_the_level_only_if_it_ended_in_the_window_or_later() -> None:
    before = row(warmup=True, outcome="timeout", error="no answer", ended_s=-0.1)
    assert verdict([row(), before], offered=1) == []
    (failure,) = verdict([row(), {**before, "ended_s": 70.0}], offered=1)
    assert failure == "1 requests from before the window failed in it or later: timeout (no answer)"


def test_a_closed_loop_that_lacks_a_stream_fails_whatever_its_requests_say() -> None:
    assert missing_streams(1.95, 2) == []
    assert missing_streams(60.0, 64) == []
    assert missing_streams(0.999, 2) == ["only 1.00 of 2 streams were in flight on average"]
    assert missing_streams(0.0, 1) != []


def test_a_request_is_in_flight_until_the_client_was_done_with_it() -> None:
    failed = row(outcome="timeout", dispatched_s=1.0, total_ms=None, ended_s=3.0)
    figures, _ = level_figures([failed], 2.0, 2.0)
    assert figures["in_flight_mean"].value == pytest.approx(0.5)


def test_samples_and_trims_that_make_whole_frames_pass() -> None:
    fields = {"reported_samples": 24_000, "reported_trimmed_samples": 576, "reported_frames": 12}
    assert verdict([row(**fields)]) == []


def test_a_cancelled_request_fails_nothing() -> None:
    assert verdict([row(), row(outcome="cancelled", audio_s=0.1)]) == []


def test_an_open_load_of_which_less_ends_than_begins_fails() -> None:
    # Due from 0 s to 60 s; the later ones end after the window.
    rows = [
        row(planned_s=n * 0.6, dispatched_s=n * 0.6, total_ms=500.0 + 400 * n) for n in range(100)
    ]
    assert any("falls behind" in failure for failure in verdict(rows, mode="open"))
    assert verdict([{**one, "total_ms": 500.0} for one in rows], mode="open") == []


def test_a_level_without_a_request_fails() -> None:
    assert verdict([]) == ["no request was measured"]
