"""Against this project's own server, by both of its protocols: two short levels each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from resources.speech_server import SpeechServer
from speech_assets.bench.options import BenchOptions
from speech_assets.bench.run import run_bench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speech_assets.bench.options import Api


@pytest.fixture(scope="module")
def server() -> Iterator[SpeechServer]:
    with SpeechServer.running("embedded", environment={"OMP_NUM_THREADS": "1"}) as server:
        yield server


@pytest.mark.parametrize("api", ["openai", "ws"])
def test_the_embedded_voice_is_measured(server: SpeechServer, api: Api) -> None:
    options = BenchOptions(
        url=server.url,
        api=api,
        levels=(1.0, 2.0),
        duration_s=2.0,
        warmup_s=1.0,
        texts=("Yes.", "It is late."),
        lag_limit_ms=60_000.0,
    )
    run = run_bench(options)
    assert not run.has_errors, run.rows["error"].unique()
    assert run.summary["server"]["config"]["config_sha256"] == server.config_sha256
    for level in run.levels:
        assert level.completed == level.started > 0
        assert not any("frame" in failure or "restart" in failure for failure in level.failures)
        metrics = level.server_metrics
        assert metrics is not None
        assert metrics["speech_audio_samples_total"] > 0
    rows = run.rows.to_pylist()
    # How far the first words are from the first sound is what the server trims.
    assert all(row["ttfs_ms"] >= row["ttfa_ms"] > 0 for row in rows)
    if api == "ws":
        assert {row["finish_reason"] for row in rows} == {"stop"}
        assert all(row["samples"] == row["reported_samples"] for row in rows)
        assert all(
            row["samples"] + row["reported_trimmed_samples"] == 2_048 * row["reported_frames"]
            for row in rows
        )
