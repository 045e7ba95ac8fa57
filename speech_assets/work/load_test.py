"""A preset under load: a server of it is started once, levels of load are tried until one fails.

Everything goes into the store: the requests of each level as soon as it is measured, then charts
with their data, a table of levels, and the result (`results/load_tests/<device>/<preset>/`).
"""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow.parquet as pq

from resources.speech_server import SpeechServer
from resources.store import Store
from server.presets import load_preset
from speech_assets.errors import SpeechAssetsError
from speech_assets.load.charts import charts_of, levels_csv
from speech_assets.load.levels import LOADS, LevelRow, parse_levels, parse_loads, parse_seeds, said
from speech_assets.load.summary import load_figures, unbounded
from speech_assets.load.sweep import FULL_S, SweepOptions, client_faults, sweep
from speech_assets.profiles import DEFAULT_STORE, load_profile
from speech_assets.results import Result, device_of, utc_now
from speech_assets.work import worker

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "load_tests"
CONFIG_TIMEOUT_S = 60.0


class ClientLimitError(SpeechAssetsError):
    """The load-test client, not the server, was the limit: the figures are not the server's."""


def main() -> None:
    """Entry point of `python -m speech_assets.work.load_test`."""
    parser = worker.argument_parser("load_test", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--levels", default="", help="streams at once, as 1,2,4; empty is the profile's")
    add("--loads", default=",".join(LOADS), help="generating, listening, or both")
    add("--seeds", default="1", help="each level is measured with every one, as 1,2,3")
    add("--duration-s", type=float, default=FULL_S, help="measured at each level")
    add("--warmup-s", type=float, default=10.0, help="of load before that, not measured")
    add("--lag-limit-ms", type=float, default=5.0, help="the client may be so late (p99)")
    add("--allow-client-limit", action="store_true", help="keep figures when it was later")
    add("--all-levels", action="store_true", help="go on after a level has failed")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    preset = load_preset(arguments.preset).name
    options = SweepOptions(
        levels=parse_levels(arguments.levels) if arguments.levels else load_profile().load_levels,
        loads=parse_loads(arguments.loads),
        seeds=parse_seeds(arguments.seeds),
        duration_s=arguments.duration_s,
        warmup_s=arguments.warmup_s,
        lag_limit_ms=arguments.lag_limit_ms,
        until_failure=not arguments.all_levels,
    )
    store = Store(arguments.store)
    started_at = utc_now()
    folder = f"{KIND}/{preset}/{re.sub(r'[^0-9]', '', started_at)}"
    reporter.start(options.longest_s, "s")

    def keep(row: LevelRow, requests: pa.Table) -> None:
        keep_requests(store, folder, row, requests)
        reporter.advance(options.duration_s + options.warmup_s)
        reporter.notice(said(row))

    with SpeechServer.running(
        preset, environment={"SPEECH_STORE": arguments.store}, requests_are_shown=False
    ) as server:
        config = served_config(server)
        rows = sweep(server.url, options, keep)
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
        raise ClientLimitError(
            f"the client was the limit at {len(faults)} of {len(rows)} levels, so that the figures "
            f"are not the server's ({faults[0]}); run it on a quieter machine, or allow it: "
            f"--allow-client-limit, in the asset's config allow_client_limit. Kept as "
            f"{store.path(result.key)}"
        )


def served_config(server: SpeechServer) -> dict[str, Any]:
    """What /config says."""
    answer = httpx.get(f"{server.url}/config", timeout=CONFIG_TIMEOUT_S).raise_for_status()
    config: dict[str, Any] = answer.json()
    return config


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
    words = [
        f"python -m speech_assets.work.load_test --preset {preset}",
        f"--levels {','.join(f'{level:g}' for level in options.levels)}",
        f"--loads {','.join(options.loads)} --seeds {','.join(map(str, options.seeds))}",
        f"--duration-s {options.duration_s:g} --warmup-s {options.warmup_s:g}",
        f"--lag-limit-ms {options.lag_limit_ms:g}",
    ]
    words += ["--allow-client-limit"] * bool(arguments.allow_client_limit)
    words += ["--all-levels"] * bool(arguments.all_levels)
    return " ".join(words)


if __name__ == "__main__":
    main()
