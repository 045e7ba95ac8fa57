"""A short soak of the embedded voice by its command; what its figures say of made-up samples."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from speech_assets.load.memory_samples import MemorySample, MemorySamples, rss_growth_mib
from speech_assets.load.slow_readers import SlowReaders
from speech_assets.results.result import read_result
from speech_assets.results.tables import soak_table
from speech_assets.work.soak import figures, shares

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
def test_a_short_soak_counts_requests_cancels_and_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "speech_assets.work.soak", "--streams", "3"),
            *("--minutes", str(20 / 60), "--sample-s", "1", "--out", str(tmp_path)),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    (path,) = tmp_path.rglob("soak/*/*/*.json")
    value = read_result(path)
    assert (value["kind"], value["reduced"]) == ("soak", True)
    assert (value["config"]["streams"], value["config"]["slow_readers"]) == (2, 1)
    figures = {name: figure["value"] for name, figure in value["figures"].items()}
    assert figures["errors"] == 0, value["config"]["errors"]
    assert figures["requests"] > figures["cancels"]
    assert figures["slow_read_mib"] > 0.1
    assert figures["rss_mib_max"] > 100
    assert figures["rss_growth_mib"] < 200
    assert len(value["rows"]) > 10
    assert all(row["active_streams"] <= 3 for row in value["rows"])
    assert max(row["active_streams"] for row in value["rows"]) >= 2
    assert "| embedded-bf16 (reduced) |" in soak_table([value])


def sample(at_s: float, rss_mib: float) -> MemorySample:
    return MemorySample(at_s, rss_mib, 1, 0, 2)


class Metrics(BaseHTTPRequestHandler):
    """A server whose metrics lack what a soak looks at."""

    def do_GET(self) -> None:
        body = b"process_resident_memory_bytes 1\n"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_samples_that_cannot_be_taken_are_told_where_they_are_wanted() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with (
            pytest.raises(KeyError, match="speech_active_streams"),
            MemorySamples(url, 0.01, lambda _: None) as samples,
        ):
            samples._thread.join(60)  # pyright: ignore[reportPrivateUsage]
        server.shutdown()


def test_growth_is_between_the_quarters_and_one_peak_is_none() -> None:
    steady = [sample(n, 500.0) for n in range(40)]
    assert rss_growth_mib([*steady[:38], sample(38, 900.0), steady[39]]) == 0
    assert rss_growth_mib([sample(n, 500.0 + n) for n in range(40)]) == 30
    assert rss_growth_mib([sample(0, 500.0)]) == 0


@pytest.mark.parametrize(("held", "expected"), [(1, (1, 1)), (10, (7, 1)), (200, (144, 16))])
def test_four_fifths_of_what_is_held_is_asked_for(held: int, expected: tuple[int, int]) -> None:
    assert shares(held) == expected


def test_a_p95_is_of_forty_values_or_is_not_there() -> None:
    # Of the first quarter 40 requests, of the last 39.
    requests = [
        {"outcome": "ok", "ttfa_ms": 100.0 + n, "dispatched_s": at_s + n / 10}
        for at_s, count in ((0.0, 40), (80.0, 39))
        for n in range(count)
    ]
    found = figures(requests, [sample(1, 500.0)], SlowReaders("", 0, ""), 0, 100.0)
    assert (found["ttfa_ms_p95_first_quarter"].value, found["requests"].value) == (137.0, 79)
    assert "ttfa_ms_p95_last_quarter" not in found
