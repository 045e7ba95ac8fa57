"""Archive shards to speech shards: decode, resample to 24 kHz, trim, or set aside with a reason.

Several worker processes decode; this one reads, keeps the order and writes. A row whose bytes crash
a decoder costs that row and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resources.store import Store
from speech_assets.cores import core_count
from speech_assets.corpus.shards import Shard
from speech_assets.errors import ShardError
from speech_assets.work import worker
from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions
from speech_assets.work.speech_shards import make_shards

if TYPE_CHECKING:
    import argparse


def main() -> None:
    """Entry point of `python -m speech_assets.work.speech`."""
    parser = worker.argument_parser("speech", __doc__ or "")
    parser.add_argument("--store", required=True, help="folder or fsspec URL of the store")
    parser.add_argument("--shards", nargs="+", required=True, help="shards, as train.000")
    parser.add_argument("--max-clip-s", type=float, default=60.0, help="longest clip that is kept")
    parser.add_argument(
        "--workers", type=int, default=None, help="decoding processes (default: one a core)"
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    options = SpeechOptions(max_clip_s=arguments.max_clip_s)
    shards = [Shard.parse(key) for key in arguments.shards]
    reporter.start(len(shards), "shards")
    failures: list[str] = []
    workers = core_count() if arguments.workers is None else max(1, arguments.workers)
    with DecodingPool(workers, options) as pool:
        for shard, found in make_shards(store, shards, options, pool):
            if isinstance(found, ShardError):
                failures.append(str(found))
                reporter.result("failed", shard=shard.key, message=str(found))
                continue
            reporter.result(
                "shard",
                shard=shard.key,
                made=found.made,
                seconds=found.seconds,
                **found.statistics,
            )
            reporter.advance(1, shard=shard.key)
    if failures:
        raise ShardError(f"{len(failures)} of {len(shards)} shards failed: {'; '.join(failures)}")


if __name__ == "__main__":
    main()
