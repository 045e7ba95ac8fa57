"""What is asked of the tokenization's benchmark, refused before speech is made for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.codec_encoder_shapes import read_shapes
from server.errors import ServerError
from speech_assets.errors import ConfigError
from speech_assets.work.tokenize_ways import parse_ways, ways_for
from speech_assets.work.whole_pipeline import check_processes, speech_processes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from server.codec_encoder_shapes import Shape

MIN_SHARDS = 8


def checked_shapes(arguments: argparse.Namespace, device_type: str) -> Mapping[str, Shape] | None:
    """The tuned shapes that are asked for; `device_type` is what will encode, cpu or cuda.

    Raises:
        ConfigError: an argument is of no use without another, or names what is not there.
    """
    for name, needed, is_alone in (
        ("--profile", "--ablate", arguments.profile and not arguments.ablate),
        ("--ways", "--ablate", arguments.ways and not arguments.ablate),
        ("--speech-processes", "--whole", arguments.speech_processes and not arguments.whole),
    ):
        if is_alone:
            raise ConfigError(f"{name} is for {needed}: give {needed}, too, or leave {name} out")
    if arguments.shards:
        check_shards(arguments.shards, arguments)
    if arguments.ablate:
        parse_ways(arguments.ways, ways_for(device_type))
    if arguments.shapes is None:
        return None
    try:
        return read_shapes(arguments.shapes)
    except ServerError as error:
        raise ConfigError(
            f"--shapes: {error}; python -m speech_assets.work.encoder_tuning --out FILE makes one"
        ) from error


def check_shards(count: int, arguments: argparse.Namespace) -> None:
    """Nothing, if so many shards are enough for what is measured.

    Raises:
        ConfigError: they are too few.
    """
    if count < MIN_SHARDS:
        raise ConfigError(
            f"{count} shards are too few to measure a backfill by; take at least {MIN_SHARDS}"
        )
    if arguments.whole:
        check_processes(arguments.speech_processes or speech_processes(), count)
