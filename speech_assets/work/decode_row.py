"""One row of a token shard back to a WAV file: hear what the tokens hold."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

import soundfile

from resources.store import Store
from server.codec import load_codec
from server.frames import SAMPLE_RATE_HZ
from server.weights import CODEC_FILES, local_folder, parse_location
from speech_assets.corpus.shards import (
    TOKEN_SCHEMA,
    Shard,
    codes_of,
    iterate_rows,
    read_footer,
)
from speech_assets.errors import ConfigError, ShardError
from speech_assets.profiles import DEFAULT_STORE, load_profile
from speech_assets.work import worker


def main() -> None:
    """Entry point of `python -m speech_assets.work.decode_row`."""
    parser = worker.argument_parser("decode_row", __doc__ or "")
    parser.add_argument("shard", help="shard, as train.000")
    parser.add_argument("id", nargs="?", help="id of the row; left out: list the shard's ids")
    parser.add_argument("wav", nargs="?", type=Path, help="file to write (default: ID.wav)")
    parser.add_argument(
        "--store",
        default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE,
        help="folder or fsspec URL of the store",
    )
    parser.add_argument("--codec", help="folder or OWNER/NAME@REVISION (default: the profile's)")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    key = Shard.parse(arguments.shard).object_key("tokens")
    try:
        with store.open(key) as file:
            metadata, _ = read_footer(file, TOKEN_SCHEMA, store.path(key))
            columns = ["id", "sample_count", "codes"]
            rows = {row["id"]: row for row in iterate_rows(file, columns, where=store.path(key))}
    except FileNotFoundError as error:
        raise ShardError(
            f"{store.path(key)} is not there; make it first (make demo makes train.000)"
        ) from error
    if arguments.id is None:
        print("\n".join(rows))
        return
    if arguments.id not in rows:
        raise ShardError(
            f"{store.path(key)} has no row {arguments.id!r}; leave the id out to list its"
            f" {len(rows)}"
        )
    row = rows[arguments.id]
    location = arguments.codec or load_profile().codec.location
    folder = local_folder(parse_location(location), CODEC_FILES)
    codec = load_codec(folder, allow_untrained=metadata["codec_trained"] != "true")
    if codec.identity.weights_sha256 != metadata["codec_weights_sha256"]:
        raise ConfigError(
            f"{store.path(key)} was made with codec {metadata['codec']}, {folder} holds "
            f"{codec.identity.name}; give the right one with --codec"
        )
    # An id may hold slashes and more; a file of that name must stay in this folder.
    path = arguments.wav or Path(re.sub(r"[^\w.-]+", "_", arguments.id)[:100].lstrip(".") + ".wav")
    if path.suffix.lower() != ".wav":
        raise ConfigError(f"{path} is not a WAV file's name; end it in .wav")
    audio = codec.decode(codes_of(row))[: row["sample_count"]]
    try:
        soundfile.write(path, audio, SAMPLE_RATE_HZ, subtype="PCM_16")
    except (soundfile.LibsndfileError, OSError) as error:
        raise ConfigError(
            f"{path} cannot be written: {error}; give a folder that exists"
        ) from error
    reporter.log(f"wrote {path}: {len(audio) / SAMPLE_RATE_HZ:.2f} s")


if __name__ == "__main__":
    main()
