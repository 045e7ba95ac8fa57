"""One server measured as a client meets it: ready time, latency and RTF of single streams, and the
lateness of its event loop in a crowd.

Requests go to a server of its own, one after the other over one connection, then all places at
once. What a load test says (how many streams keep up) is not its subject.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from resources.speech_server import SpeechServer
from resources.store import Store
from server.frames import SAMPLE_RATE_HZ
from speech_assets.bench.figures import LEAST_FOR
from speech_assets.bench.percentile import nearest_rank
from speech_assets.errors import SpeechAssetsError
from speech_assets.results.provenance import device_of, measurement_began
from speech_assets.results.result import Figure, Result
from speech_assets.sentences import SENTENCES
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 300.0
_BYTES_PER_SAMPLE = 2


class MeasurementError(SpeechAssetsError):
    """What was to be measured did not happen."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One request as its client saw it, and what the server said of it."""

    text: int
    seed: int
    ttfa_ms: float
    total_ms: float
    audio_s: float
    ttfs_ms: float | None
    finish_reason: str

    @property
    def rtf(self) -> float:
        """Time until the last byte over the duration of the audio."""
        return self.total_ms / 1e3 / self.audio_s


def main() -> None:
    """Entry point of `python -m speech_assets.work.bench_server`."""
    parser = worker.argument_parser("bench_server", __doc__ or "")
    parser.add_argument("--preset", default="embedded")
    worker.add_result_store(parser)
    parser.add_argument(
        "--rounds", type=worker.at_least(1), default=4, help="of all texts, one after the other"
    )
    parser.add_argument(
        "--streams", type=worker.at_least(1), default=16, help="at once, for the event loop's lag"
    )
    parser.add_argument(
        "--api-processes",
        type=worker.at_least(0),
        default=0,
        help="apart from the server's engine; the result is named PRESET-apiN then",
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = measurement_began()
    began_s = time.monotonic()
    apart = arguments.api_processes
    options = ("--api-processes", str(apart)) if apart else ()
    with SpeechServer.running(arguments.preset, arguments=options, info_is_shown=False) as server:
        ready_s = time.monotonic() - began_s
        config = server.config()
        reporter.log(f"ready after {ready_s:.1f} s")
        with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
            _speak(client, 0, 0)  # A first time of its own.
            single: list[Spoken] = []
            for seed in range(1, arguments.rounds + 1):
                single += [_speak(client, text, seed) for text in range(len(SENTENCES))]
                reporter.log(f"round {seed}: RTF {statistics.median(s.rtf for s in single):.2f}")
            before = _lag_counts(client)
            with ThreadPoolExecutor(arguments.streams) as pool:
                crowd = list(
                    pool.map(
                        lambda n: _speak(client, n % len(SENTENCES), 100 + n),
                        range(arguments.streams),
                    )
                )
            after = _lag_counts(client)
    lag_ms, looks = _p99_upper_bound_ms(before, after)
    result = Result(
        kind="server",
        # Of its own: another form of the server has another history.
        name=f"{server.preset}-api{apart}" if apart else server.preset,
        started_at=started_at,
        device=device_of(config["engine"]["device"]),
        command=(
            f"python -m speech_assets.work.bench_server --preset {server.preset} "
            f"--rounds {arguments.rounds} --streams {arguments.streams}"
            + (f" --api-processes {apart}" if apart else "")
        ),
        config={
            "preset": server.preset,
            "config_sha256": server.config_sha256,
            "settings": config["settings"],
            "engine": config["engine"],
            "rounds": arguments.rounds,
            "streams": arguments.streams,
            **({"api_processes": apart} if apart else {}),
        },
        seeds=list(range(1, arguments.rounds + 1)),
        rows=[_row(spoken, "single") for spoken in single]
        + [_row(spoken, "crowd") for spoken in crowd],
        figures={
            "ready_s": Figure(ready_s, "s"),
            "ttfa_ms_p50": _percentile([s.ttfa_ms for s in single], 50, "ms"),
            **_tail("ttfa_ms_p95", [s.ttfa_ms for s in single], "ms"),
            "ttfs_ms_p50": _percentile([s.ttfs_ms for s in single if s.ttfs_ms], 50, "ms"),
            **_tail("ttfs_ms_p95", [s.ttfs_ms for s in single if s.ttfs_ms], "ms"),
            "rtf_p50": _percentile([s.rtf for s in single], 50, ""),
            **_tail("rtf_p95", [s.rtf for s in single], ""),
            "event_loop_lag_ms_p99": Figure(lag_ms, "ms", n=looks),
        },
    )
    store = Store(arguments.out)
    store.write_json(result.key, result.as_json())
    reporter.log(f"result: {store.path(result.key)}")


def _speak(client: httpx.Client, text: int, seed: int) -> Spoken:
    body = {
        "input": SENTENCES[text],
        "response_format": "pcm",
        "stream_format": "sse",
        "seed": seed,
    }
    began_s = time.monotonic()
    first_s: float | None = None
    samples = 0
    done: dict[str, Any] = {}
    with client.stream("POST", "/v1/audio/speech", json=body) as response:
        if response.status_code != 200:
            raise MeasurementError(
                f"text {text}, seed {seed}: {response.status_code} {response.read()[:500]!r}"
            )
        for line in response.iter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            if event["type"] == "speech.audio.delta":
                first_s = first_s or time.monotonic()
                samples += len(base64.b64decode(event["audio"])) // _BYTES_PER_SAMPLE
            else:
                done = event
    ended_s = time.monotonic()
    if done.get("type") != "speech.audio.done" or first_s is None:
        raise MeasurementError(f"text {text}, seed {seed}: the stream ended with {done}")
    return Spoken(
        text,
        seed,
        (first_s - began_s) * 1e3,
        (ended_s - began_s) * 1e3,
        samples / SAMPLE_RATE_HZ,
        done["timings"]["ttfs_ms"],
        done["finish_reason"],
    )


def _row(spoken: Spoken, load: str) -> dict[str, Any]:
    names = ("text", "seed", "ttfa_ms", "ttfs_ms", "total_ms", "audio_s", "rtf", "finish_reason")
    return {"load": load, **{name: getattr(spoken, name) for name in names}}


def _lag_counts(client: httpx.Client) -> dict[float, float]:
    """Looks at the event loop that were at most so late (s), as the server's histogram has them."""
    text = client.get("/metrics").raise_for_status().text
    return {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "speech_event_loop_lag_seconds_bucket"
    }


def _p99_upper_bound_ms(before: dict[float, float], after: dict[float, float]) -> tuple[float, int]:
    """The bucket's bound below which 99 % of the looks between two scrapes lie; how many looks."""
    counts = {bound: after[bound] - before[bound] for bound in sorted(after)}
    total = max(counts.values())
    bound = next(bound for bound, count in counts.items() if count >= 0.99 * total)
    if math.isinf(bound):
        largest = max(bound for bound in counts if not math.isinf(bound))
        raise MeasurementError(f"the event loop's lag was above {largest:g} s more than 1 in 100")
    return bound * 1e3, int(total)


def _percentile(values: Sequence[float], percent: int, unit: str) -> Figure:
    """Nearest-rank percentile."""
    return Figure(nearest_rank(values, percent), unit, n=len(values))


def _tail(name: str, values: Sequence[float], unit: str) -> dict[str, Figure]:
    """A p95, where there are values enough to have one."""
    return {name: _percentile(values, 95, unit)} if len(values) >= LEAST_FOR[95] else {}


if __name__ == "__main__":
    main()
