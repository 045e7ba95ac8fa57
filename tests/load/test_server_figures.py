"""Figures from a server's own counters, by hand."""

from __future__ import annotations

import pytest

from speech_assets.load.server_figures import BUSY, busy_name, server_figures


def test_means_shares_and_memory_come_from_what_counters_grew_by() -> None:
    figures = server_figures(
        {
            "speech_engine_step_seconds_sum": 0.6,
            "speech_engine_step_seconds_count": 40.0,
            "speech_decode_batch_size_sum": 30.0,
            "speech_decode_batch_size_count": 20.0,
            "speech_decode_seconds_sum": 0.05,
            "speech_decode_seconds_count": 20.0,
            "speech_busy_seconds_total": 15.0,
            "process_resident_memory_bytes": 3.0 * 1024**3,
        },
        60.0,
    )
    assert figures == {
        "engine_step_ms_mean": {"value": pytest.approx(15.0), "unit": "ms", "n": 40},
        "decode_batch_rows_mean": {"value": 1.5, "unit": "rows", "n": 20},
        "decode_ms_mean": {"value": pytest.approx(2.5), "unit": "ms", "n": 20},
        "round_ms_mean": {"value": 375.0, "unit": "ms", "n": 40},
        "engine_thread_busy_share": {"value": 0.25, "unit": "share", "n": 1},
        "resident_memory_mib": {"value": 3072.0, "unit": "MiB", "n": 1},
    }


def test_what_a_server_does_not_export_or_did_not_do_is_no_figure() -> None:
    assert server_figures({}, 60.0) == {}
    idle = {"speech_engine_step_seconds_sum": 0.0, "speech_engine_step_seconds_count": 0.0}
    assert server_figures(idle, 60.0) == {}
    assert "engine_thread_busy_share" not in server_figures({"speech_busy_seconds_total": 1.0}, 0.0)


def test_a_share_is_at_most_one() -> None:
    figures = server_figures({"speech_busy_seconds_total": 61.0}, 60.0)
    assert figures["engine_thread_busy_share"]["value"] == 1.0


def test_the_busy_share_is_read_by_the_name_that_a_result_has_it_by() -> None:
    assert busy_name({"device_busy_share": {}}) == "device_busy_share"
    assert busy_name({"engine_thread_busy_share": {}, "device_busy_share": {}}) == BUSY
    assert busy_name({}) == BUSY
