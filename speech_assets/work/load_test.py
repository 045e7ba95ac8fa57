"""A preset under load: a server of it is started once, levels of load are tried until one fails.

Everything goes into the store: the requests of each level as soon as it is measured, then charts
with their data, a table of levels, and the result (`results/load_tests/<device>/<preset>/`).
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from resources.speech_server import SpeechServer
from resources.store import Store
from server.presets import load_preset
from speech_assets.errors import SpeechAssetsError
from speech_assets.load.charts import charts_of, levels_csv
from speech_assets.load.levels import (
    LOADS,
    LevelRow,
    level_line,
    parse_levels,
    parse_loads,
    parse_seeds,
)
from speech_assets.load.summary import load_figures, unbounded
from speech_assets.load.sweep import FULL_LEVEL_S, SweepOptions, client_faults, sweep
from speech_assets.profiles import load_profile
from speech_assets.results.provenance import device_of, measurement_began
from speech_assets.results.result import Result
from speech_assets.work import worker
from speech_assets.work.sweep_arguments import (
    add_sweep_arguments,
    argument_words,
    client_limit_message,
    sweep_words,
    with_presets,
)

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "load_tests"


class ClientLimitError(SpeechAssetsError):
    """The load-test client, not the server, was the limit: the figures are not the server's."""


def main() -> None:
    """Entry point of `python -m speech_assets.work.load_test`."""
    parser = worker.argument_parser("load_test", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16")
    add("--loads", default=",".join(LOADS), help="generating, listening, or both")
    add("--api-processes", type=worker.at_least(0), default=0, help="as the server's option")
    add("--all-levels", action="store_true", help="go on after a level has failed")
    add_sweep_arguments(parser, usual="profile", duration_s=FULL_LEVEL_S, warmup_s=10.0)
    worker.run(_work, parser, argument_words(sys.argv[1:]))


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    served = load_preset(arguments.preset)
    preset = served.name
    options = SweepOptions(
        levels=parse_levels(arguments.levels) if arguments.levels else load_profile().load_levels,
        loads=parse_loads(arguments.loads),
        seeds=parse_seeds(arguments.seeds),
        duration_s=arguments.duration_s,
        warmup_s=arguments.warmup_s,
        lag_limit_ms=arguments.lag_limit_ms,
        until_failure=not arguments.all_levels,
        long_texts=served.untrained,
    )
    store = Store(arguments.store)
    started_at = measurement_began()
    folder = f"{KIND}/{preset}/{re.sub(r'[^0-9]', '', started_at)}"
    reporter.start(options.longest_s, "s")

    kept: list[LevelRow] = []

    def keep(row: LevelRow, requests: pa.Table) -> None:
        keep_requests(store, folder, row, requests)
        kept.append(row)
        reporter.advance(options.duration_s + options.warmup_s)
        reporter.notice(level_line(row))

    try:
        with SpeechServer.running(
            preset,
            arguments=("--api-processes", str(arguments.api_processes)),
            environment={"SPEECH_STORE": arguments.store},
            info_is_shown=False,
        ) as server:
            config = server.config()
            rows = sweep(server.url, options, keep)
    except KeyboardInterrupt:
        # Levels of two servers are no load test: the next one measures all of them itself.
        where = f"; the requests of {len(kept)} levels are in {store.path(folder)}" if kept else ""
        raise KeyboardInterrupt(
            f"there is no result, and the next load test begins anew{where}"
        ) from None
    faults = client_faults(rows)
    is_valid = not faults or arguments.allow_client_limit
    result = Result(
        kind=KIND,
        name=preset,
        status="complete" if is_valid else "invalid",
        reduced=options.reduced,
        started_at=started_at,
        device=device_of(config["engine"]["device"]),
        command=_command(preset, options, arguments),
        config={
            "preset": preset,
            "config_sha256": server.config_sha256,
            "settings": config["settings"],
            "engine": config["engine"],
            "weights": config["weights"],
            "sweep": asdict(options),
            "api_processes": arguments.api_processes,
            "client_shares_cores": True,  # Server and client run on this machine.
            "client_limit_allowed": bool(arguments.allow_client_limit),
            "client_faults": faults,
            "no_level_failed": unbounded(rows),
        },
        seeds=options.seeds,
        rows=[asdict(row) for row in rows],
        figures=load_figures(rows),
    )
    keep_charts(store, folder, rows)
    store.write_json(result.key, result.as_json())
    reporter.result(KIND, key=result.key, folder=folder, levels=len(rows), status=result.status)
    if not is_valid:
        raise ClientLimitError(client_limit_message(faults, len(rows), store.path(result.key)))


def keep_requests(store: Store, folder: str, row: LevelRow, requests: pa.Table) -> None:
    """The requests of a level, as parquet."""
    key = f"{folder}/requests/{row.load}-{int(row.level):04d}-seed{row.seed}.parquet"
    store.write(key, lambda file: pq.write_table(requests, file, compression="zstd"))


def keep_charts(store: Store, folder: str, rows: list[LevelRow]) -> None:
    """Charts as PNG, the data of each as CSV, and all levels as CSV."""
    store.write_bytes(f"{folder}/levels.csv", levels_csv(rows))
    for chart in charts_of(rows):
        store.write_bytes(f"{folder}/{chart.name}.png", chart.draw())
        store.write_bytes(f"{folder}/{chart.name}.csv", chart.csv())


def _command(preset: str, options: SweepOptions, arguments: argparse.Namespace) -> str:
    words = ["python", "-m", "speech_assets.work.load_test", "--preset", preset]
    words += ["--loads", ",".join(options.loads), *sweep_words(options, arguments)]
    if arguments.api_processes:
        words += ["--api-processes", str(arguments.api_processes)]
    words += ["--all-levels"] * (not options.until_failure)
    return with_presets(shlex.join(words))


if __name__ == "__main__":
    main()
