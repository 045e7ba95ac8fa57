"""The server's figures: the names that dashboards rely on, and the player that counts underruns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from server.metrics import Metrics, PlaybackClock

DESIGN = {
    *("speech_ttfa_seconds", "speech_ttfs_seconds", "speech_engine_step_seconds", "speech_rtf"),
    "speech_first_made_seconds",
    *("speech_active_streams", "speech_queue_depth", "speech_decode_batch_size"),
    "speech_decode_seconds",
    *("speech_requests", "speech_misaligned_tokens", "speech_underruns"),
}


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """One sample of what a scrape would get."""
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"no {name} {labels}")


def test_every_metric_of_the_design_is_there_from_the_start() -> None:
    text = Metrics().render().decode()
    assert {family.name for family in text_string_to_metric_families(text)} >= DESIGN


def test_memory_and_start_of_the_process_are_there() -> None:
    metrics = Metrics()
    assert value(metrics, "process_resident_memory_bytes") > 1 << 20
    assert value(metrics, "process_start_time_seconds") > 0
    assert value(metrics, "speech_busy_seconds_total") == 0


def test_an_end_is_counted_with_the_figures_that_it_reached() -> None:
    metrics = Metrics()
    metrics.ended(
        *("http", "stop"),
        ttfa_ms=120, first_made_ms=130, ttfs_ms=140, rtf=0.5, misaligned_tokens=3,
    )  # fmt: skip
    metrics.ended("websocket", "refused")
    assert value(metrics, "speech_requests_total", transport="http", outcome="stop") == 1
    assert value(metrics, "speech_requests_total", transport="websocket", outcome="refused") == 1
    assert value(metrics, "speech_ttfa_seconds_sum") == pytest.approx(0.12)
    assert value(metrics, "speech_first_made_seconds_sum") == pytest.approx(0.13)
    assert value(metrics, "speech_ttfs_seconds_bucket", le="0.15") == 1
    assert value(metrics, "speech_rtf_count") == 1
    assert value(metrics, "speech_misaligned_tokens_total") == 3


def test_servers_of_one_process_do_not_add_up() -> None:
    one, other = Metrics(), Metrics()
    one.sent(2_048, 0.1)
    assert value(one, "speech_underruns_total") == 1
    assert value(other, "speech_underruns_total") == value(other, "speech_audio_samples_total") == 0


def test_a_player_runs_dry_only_when_a_chunk_comes_after_its_end() -> None:
    clock = PlaybackClock()
    assert clock.sent(24_000, 10.0) == 0  # Plays until 11.
    assert clock.sent(24_000, 10.9) == 0  # Until 12.
    assert clock.sent(24_000, 12.5) == pytest.approx(0.5)  # From 12.5 until 13.5.
    assert clock.sent(24_000, 13.4) == 0


@given(st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 3)), min_size=1, max_size=30))
def test_a_player_ends_after_all_audio_and_all_gaps(chunks: list[tuple[int, float]]) -> None:
    clock, now_s, gaps_s = PlaybackClock(), 0.0, 0.0
    for samples, wait_s in chunks:
        now_s += wait_s
        gaps_s += clock.sent(samples, now_s)
    played_s = sum(samples for samples, _ in chunks) / 24_000
    assert clock.dry_at_s == pytest.approx(chunks[0][1] + played_s + gaps_s)
