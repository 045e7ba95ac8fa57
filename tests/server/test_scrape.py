"""One scrape of several processes: counts add up, gauges are the engine's, nothing falls."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.metrics import Metrics
from server.scrape import added, counted, families_of, rendered


def values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels; each must be there once."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def total(metrics: bytes, name: str, **labels: str) -> float:
    return sum(
        value
        for (found, of), value in values(metrics).items()
        if found == name and labels.items() <= dict(of).items()
    )


def api_process(spoken: int) -> Metrics:
    metrics = Metrics()
    metrics.open_sockets.inc(2)
    for _ in range(spoken):
        metrics.ended("http", "stop", ttfa_ms=90.0)
    return metrics


def test_one_process_alone_is_rendered_as_it_renders_itself() -> None:
    metrics = api_process(3)
    metrics.active_streams.set(2)
    merged = values(rendered(added([families_of(metrics.registry)])))
    alone = values(metrics.render())
    assert merged.keys() == alone.keys()
    assert all(
        merged[key] == value for key, value in alone.items() if not key[0].startswith("process_")
    )


def test_counts_add_up_and_gauges_are_the_engines_unless_each_has_a_part() -> None:
    engine, one, other = Metrics(), api_process(3), api_process(4)
    engine.active_streams.set(5)
    one.active_streams.set(9)  # What it once knew.
    engine.engine_step_seconds.observe(0.01)
    other.ended("websocket", "error")
    text = rendered(added([families_of(m.registry) for m in (engine, one, other)]))
    assert total(text, "speech_requests_total") == 8
    assert total(text, "speech_requests_total", transport="http", outcome="stop") == 7
    assert total(text, "speech_ttfa_seconds_count") == 7
    assert total(text, "speech_ttfa_seconds_bucket", le="0.1") == 7
    assert total(text, "speech_ttfa_seconds_bucket", le="0.075") == 0
    assert total(text, "speech_engine_step_seconds_count") == 1
    assert total(text, "speech_active_streams") == 5
    assert total(text, "speech_open_sockets") == 4
    # As many files as are open are of so many processes as what may be open.
    for name in ("process_open_fds", "process_max_fds"):
        assert total(text, name) == pytest.approx(3 * total(engine.render(), name), abs=10)
    created = total(text, "speech_audio_samples_created")
    first = total(engine.render(), "speech_audio_samples_created")
    assert created == first
    started = total(engine.render(), "process_start_time_seconds")
    assert total(text, "process_start_time_seconds") == started


def test_counts_of_a_process_that_is_gone_stay_and_its_gauges_do_not() -> None:
    engine, gone, new = Metrics(), api_process(3), api_process(0)
    departed = added([[], counted(families_of(gone.registry))])
    departed = added([departed, counted(families_of(api_process(2).registry))])
    text = rendered(added([families_of(engine.registry), departed, families_of(new.registry)]))
    assert total(text, "speech_requests_total") == 5
    assert total(text, "speech_ttfa_seconds_count") == 5
    assert total(text, "speech_open_sockets") == 2
