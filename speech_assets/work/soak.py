"""A server under a load that it can hold, for as long as asked: does it stay as it began?

So many streams at once for `--minutes`, at 80 % of what a load test says that the server holds
(`--streams`): a tenth of them read at half the speed of play, of the others' requests 20 % are
cancelled at random while they run. The server's memory is looked at every 10 s. The result has
what grew: memory, and time to first audio between the first and the last quarter.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from resources.speech_server import SpeechServer
from resources.store import Store
from speech_assets.bench.figures import LEAST_FOR
from speech_assets.bench.options import BenchOptions
from speech_assets.bench.percentile import nearest_rank
from speech_assets.bench.rows import failed
from speech_assets.bench.run import BenchRun, run_bench
from speech_assets.errors import SpeechAssetsError
from speech_assets.load.memory_samples import MemorySample, MemorySamples, rss_growth_mib
from speech_assets.load.slow_readers import SHARE_OF_REALTIME, SlowReaders
from speech_assets.results.provenance import device_of, measurement_began
from speech_assets.results.result import Figure, Result
from speech_assets.sentences import SENTENCES
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND = "soak"
FULL_MINUTES = 30.0
LOAD_SHARE = 0.8
CANCEL_SHARE = 0.2
SLOW_SHARE = 0.1
# Begins, and with it imports, caches and pools of the server, are no growth.
WARMUP_S = 10.0
# More than a minute of speech: the server has to wait for its reader.
_SLOW_TEXT = " ".join(SENTENCES * 3)
_SEED = 1


class SoakError(SpeechAssetsError):
    """Nothing can be said of the server: it was not looked at, or had no request to answer."""


def main() -> None:
    """Entry point of `python -m speech_assets.work.soak`."""
    parser = worker.argument_parser("soak", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded")
    add(
        "--streams",
        type=worker.at_least(1),
        required=True,
        help="that the server holds in realtime, by a load test",
    )
    add("--minutes", type=worker.above_zero, default=FULL_MINUTES)
    add("--sample-s", type=worker.above_zero, default=10.0, help="between looks at memory")
    add("--api-processes", type=worker.at_least(0), default=0)
    worker.add_result_store(parser)
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = measurement_began()
    duration_s = 60 * arguments.minutes
    fast, slow = shares(arguments.streams)
    reporter.start(duration_s + WARMUP_S, "s")

    def looked(sample: MemorySample) -> None:
        reporter.advance(arguments.sample_s, memory=f"{sample.rss_mib:.0f} MiB")

    places = ("--max-streams", str(max(arguments.streams, fast + slow)))
    apart = ("--api-processes", str(arguments.api_processes)) if arguments.api_processes else ()
    with SpeechServer.running(
        arguments.preset, arguments=(*places, *apart), info_is_shown=False
    ) as server:
        config = server.config()
        options = BenchOptions(
            url=server.url,
            levels=(float(fast),),
            duration_s=duration_s,
            warmup_s=WARMUP_S,
            cancel_share=CANCEL_SHARE,
            seed=_SEED,
        )
        with (
            SlowReaders(server.url, slow, _SLOW_TEXT) as readers,
            MemorySamples(server.url, arguments.sample_s, looked) as memory,
        ):
            run = run_bench(options)
    samples = [sample for sample in memory.samples if sample.at_s >= WARMUP_S]
    requests = [row for row in run.rows.to_pylist() if not row["warmup"]]
    if not samples or not requests:
        raise SoakError(
            f"{len(samples)} looks at memory and {len(requests)} requests after the warm-up of "
            f"{WARMUP_S:g} s; run longer, or look more often (--sample-s)"
        )
    result = Result(
        kind=KIND,
        name=server.preset + (f"-api{arguments.api_processes}" if apart else ""),
        started_at=started_at,
        reduced=arguments.minutes < FULL_MINUTES,
        device=device_of(config["engine"]["device"]),
        command=(
            f"python -m speech_assets.work.soak --preset {server.preset} --streams "
            f"{arguments.streams} --minutes {arguments.minutes:g} --sample-s "
            f"{arguments.sample_s:g}"
            + (f" --api-processes {arguments.api_processes}" if apart else "")
        ),
        config={
            "preset": server.preset,
            "config_sha256": server.config_sha256,
            "settings": config["settings"],
            "engine": config["engine"],
            "minutes": arguments.minutes,
            "held_streams": arguments.streams,
            "streams": fast + slow,
            "slow_readers": slow,
            "slow_share_of_realtime": SHARE_OF_REALTIME,
            "cancel_share": CANCEL_SHARE,
            "sample_s": arguments.sample_s,
            "api_processes": arguments.api_processes,
            "client_shares_cores": True,
            "client_reasons": run.summary["client"]["reasons"],
            "errors": _words_of_errors(requests, readers.errors, run),
        },
        seeds=[_SEED],
        rows=[asdict(sample) for sample in memory.samples],
        figures=figures(requests, samples, readers, memory.missed, duration_s),
    )
    store = Store(arguments.out)
    store.write_json(result.key, result.as_json())
    reporter.result(KIND, key=result.key, status=result.status)
    reporter.log(f"result: {store.path(result.key)}")


def shares(held: int) -> tuple[int, int]:
    """Streams that read as it comes, and that read slowly: of 80 % of those held, at least 1, 1."""
    streams = max(2, int(LOAD_SHARE * held))
    slow = max(1, round(SLOW_SHARE * streams))
    return streams - slow, slow


def figures(
    requests: Sequence[Mapping[str, Any]],
    samples: Sequence[MemorySample],
    readers: SlowReaders,
    missed: int,
    duration_s: float,
) -> dict[str, Figure]:
    """What a soak says, of requests and looks after the warm-up."""
    errors = sum(failed(row["outcome"]) for row in requests) + len(readers.errors)
    found = {
        "minutes": Figure(duration_s / 60, "min"),
        "rss_growth_mib": Figure(rss_growth_mib(samples), "MiB", len(samples)),
        "rss_mib_max": Figure(max(each.rss_mib for each in samples), "MiB", len(samples)),
        "requests": Figure(len(requests), "requests"),
        "errors": Figure(errors, "requests", len(requests)),
        "cancels": Figure(
            sum(row["outcome"] == "cancelled" for row in requests), "requests", len(requests)
        ),
        "slow_reads": Figure(readers.finished, "requests"),
        "slow_read_mib": Figure(readers.read_bytes / (1 << 20), "MiB"),
        "looks_missed": Figure(missed, "looks", len(samples) + missed),
    }
    began_s = min(row["dispatched_s"] for row in requests)
    for name, first, last in (("first", 0.0, 0.25), ("last", 0.75, 1.0)):
        low_s, high_s = (began_s + share * duration_s for share in (first, last))
        values = [
            row["ttfa_ms"]
            for row in requests
            if row["ttfa_ms"] is not None and low_s <= row["dispatched_s"] <= high_s
        ]
        if len(values) >= LEAST_FOR[95]:
            found[f"ttfa_ms_p95_{name}_quarter"] = Figure(
                nearest_rank(values, 95), "ms", len(values)
            )
    return found


def _words_of_errors(
    requests: Sequence[Mapping[str, Any]], slow: Sequence[str], run: BenchRun
) -> list[str]:
    """The first of each kind of error, and what ended the load before its time."""
    words = {row["outcome"]: row["error"] for row in requests if failed(row["outcome"])}
    restarted = [each for each in run.levels[0].failures if "restarted" in each]
    return [*(f"{name}: {why}" for name, why in words.items()), *slow[:3], *restarted]


if __name__ == "__main__":
    main()
