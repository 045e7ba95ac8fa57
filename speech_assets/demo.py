"""`make demo`: the lineage of the profile in force, materialized here, then what came of it.

Runs go to the Dagster instance that `make ui` shows. What is valid already is not made again, so a
second demo, or one that was interrupted, only does what is missing. What a server says and bears is
measured each time.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import dagster as dg

from resources.store import Store
from speech_assets.assets.corpus import SHARDS_PER_RUN
from speech_assets.assets.failures import SKIPPED
from speech_assets.corpus.card import CARD_KEY
from speech_assets.corpus.manifest import manifest_key
from speech_assets.demo_checkpoints import checkpoint_lines, checkpoint_steps
from speech_assets.demo_quality import REPORT_KEY, load_lines, quality_lines, quality_steps
from speech_assets.demo_time import demo_result, is_new
from speech_assets.errors import SpeechAssetsError
from speech_assets.failure_notes import root_message
from speech_assets.partitions import corpus_partitions
from speech_assets.profiles import load_profile
from speech_assets.results.provenance import utc_now
from speech_assets.runs import end_lost_runs, run_tags
from speech_assets.served import not_served
from speech_assets.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
CHECK_FAILED = "DagsterAssetCheckFailedError"
QUANTIZED_PRESETS = 2  # Of the profile's, the first: as it is, and the one of 4 bits.
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def main(argv: Sequence[str] | None = None) -> int:
    """Run every step in turn; 0 when all succeeded, 130 when interrupted."""
    # A shell that starts us in the background leaves SIGINT ignored; Dagster maps SIGTERM to it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return _main(full=_parser().parse_args(argv).full)
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        print(
            "\nInterrupted. What is finished is kept; `make demo` goes on from here.",
            file=sys.stderr,
        )
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m speech_assets.demo", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--full", action="store_true", help="every preset, all calibration texts, codec forms"
    )
    return parser


def _main(*, full: bool) -> int:
    try:
        from speech_assets.definitions import defs

        profile = load_profile()
        shards_of_split = corpus_partitions(profile.corpus).shards_of_split
    except SpeechAssetsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    store_root = defs.resources["store"].root if defs.resources else ""
    shards = [key for keys in shards_of_split.values() for key in keys]
    print(
        f"Profile {profile.name}: corpus {profile.corpus.name}, {len(shards)} shards; everything"
        f" made goes to {store_root}\nThe first time takes minutes; ten and more on slow cores.",
        flush=True,
    )
    store = Store(store_root)
    whole, started_at = is_new(store), utc_now()  # One that goes on from another is not timed.
    started_s = time.monotonic()
    with dg.DagsterInstance.get() as instance:
        end_lost_runs(instance)
        presets = profile.presets if full else profile.presets[:QUANTIZED_PRESETS]
        steps = demo_steps(shards_of_split)
        steps += checkpoint_steps(presets, full=full) + quality_steps(presets)
        times: list[tuple[str, float]] = []
        for number, step in enumerate(steps, 1):
            print(f"[{number}/{len(steps)}] {step.title}", flush=True)
            began_s = time.monotonic()
            if step.is_served and (why := not_served(step.partition or "", store_root)):
                print(f"  no server takes it: {why}", flush=True)
                continue
            message = run_step(defs, instance, step)
            times.append((step.title, time.monotonic() - began_s))
            if not message:
                continue
            if said := passed_over(step, message):
                print(f"  {said}", flush=True)
            else:
                print(
                    f"\nerror: {step.job} failed: {message}\nWhat is finished is kept; `make ui`"
                    " shows the run, `make demo` goes on from here.",
                    file=sys.stderr,
                )
                return 1
    seconds = time.monotonic() - started_s
    if whole and presets:
        made = demo_result(profile.name, started_at, times, full=full)
        store.write_json(made.key, made.as_json())
    print(summary(store, list(shards_of_split), seconds, presets))
    return 0


def passed_over(step: Step, message: str) -> str:
    """What is said of a step that ended so where the demo goes on; empty: it is over."""
    if message.startswith(SKIPPED):  # Not for this machine.
        return message
    if step.judges and CHECK_FAILED in message:
        return "it did not pass its check: it is kept, and no server takes it"
    return ""


def demo_steps(shards_of_split: dict[str, list[str]]) -> list[Step]:
    """Archives of each split, tokens of all shards in runs of 16, manifests, the card."""
    shards = [key for keys in shards_of_split.values() for key in keys]
    steps = [Step("archive", f"archives {split}", split) for split in shards_of_split]
    for start in range(0, len(shards), SHARDS_PER_RUN):
        part = shards[start : start + SHARDS_PER_RUN]
        title = f"speech and tokens of {len(part)} shards, {part[0]} to {part[-1]}"
        steps.append(Step("tokenize", title, tags={RANGE_START: part[0], RANGE_END: part[-1]}))
    steps += [Step("describe_split", f"manifest {split}", split) for split in shards_of_split]
    steps.append(Step("describe_dataset", "dataset card"))
    return steps


def run_step(defs: dg.Definitions, instance: dg.DagsterInstance, step: Step) -> str:
    """Run a step on `instance`; what went wrong, or an empty string."""
    result = defs.resolve_job_def(step.job).execute_in_process(
        instance=instance,
        partition_key=step.partition,
        tags={**step.tags, **run_tags()},
        run_config={**QUIET, **step.config},
        raise_on_error=False,
    )
    if result.success:
        return ""
    failures = [event for event in result.all_events if event.is_step_failure]
    errors = [event.step_failure_data.error for event in failures]
    if any("InterruptedError" in ((error and error.cls_name) or "") for error in errors):
        raise KeyboardInterrupt
    return root_message(failures[-1]) if failures else "see the run's log"


def summary(
    store: Store,
    splits: Sequence[str],
    seconds: float,
    presets: Sequence[str] = (),
) -> str:
    """What the store holds now, as a table, and where to look next."""
    rows: list[list[str]] = []
    set_aside: dict[str, int] = {}
    agreement = 1.0
    manifests: list[dict[str, Any]] = [store.read_json(manifest_key(split)) for split in splits]
    for made in manifests:
        totals = made["totals"]
        rows.append(
            [
                made["split"],
                str(totals["shards"]),
                f"{totals['rows']:,}",
                f"{totals['audio_hours'] * 60:.2f}",
                f"{totals['tokens']:,}",
                f"{totals['tokens_per_hour']:,.0f}",
                str(totals["quarantined_rows"]),
            ]
        )
        agreement = min([agreement, *(entry["agreement"] for entry in made["shards"])])
        for reason, count in made["quarantine"].items():
            set_aside[reason] = set_aside.get(reason, 0) + count
    heads = ["split", "shards", "clips", "minutes", "tokens", "tokens per hour", "set aside"]
    why = ", ".join(f"{count} {reason}" for reason, count in set_aside.items() if count) or "none"
    first = f"{splits[0]}.000"
    return "\n".join(
        [
            "",
            _table(heads, rows),
            "",
            (
                f"Codec {manifests[0]['made_with']['codec']}; codes of clips encoded alone: "
                f"{agreement:.2%} the same in every shard. Set aside: {why}."
            ),
            *checkpoint_lines(store, presets),
            *quality_lines(store, presets),
            *load_lines(store, presets[:1]),
            f"Done in {seconds:.0f} s.",
            "",
            "Next:",
            *[f"  {store.path(REPORT_KEY)}  the report, for a browser"] * bool(presets),
            f"  {store.path(CARD_KEY)}  the dataset card",
            (
                f"  .venv/bin/python -m speech_assets.work.decode_row {first}      the clips of a"
                " shard; add one's id to hear it"
            ),
            *(f"  {store.path(f'samples/{name}')}  what its server said" for name in presets),
            *(f"  {store.path(f'load_tests/{name}')}  requests, charts" for name in presets[:1]),
            '  make say TEXT="Hello."      hear it say something else',
            "  make serve    the server alone, with a page to type into",
            "  make ui       these runs in Dagster, and backfills from there",
        ]
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [heads, *rows]
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Not sys.exit: see work/worker.py, run.
