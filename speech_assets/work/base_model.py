"""The base model of a profile's presets: fetched if need be, validated, its facts reported."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from speech_assets.profiles import load_profile
from speech_assets.quantize.base_model import base_preset, find_base_model
from speech_assets.work import worker

if TYPE_CHECKING:
    import argparse


def main() -> None:
    """Entry point of `python -m speech_assets.work.base_model`."""
    parser = worker.argument_parser("base_model", __doc__ or "")
    parser.add_argument(
        "--preset", action="append", default=[], help="made from it; the profile's unless given"
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    found = find_base_model(base_preset(arguments.preset or load_profile().presets))
    if found.warning:
        reporter.notice(found.warning)
    reporter.result("base_model", **asdict(found))


if __name__ == "__main__":
    main()
