"""`python -m speech_assets.results`, also called `speech-results`.

list             results in `results/`; with --stored the ids of those in the store
publish ID|FILE  copy a result into `results/`, from where pages are rendered
import FILE      record a result of another machine in the store and the lineage
render           write the tables of README.md and docs/*.md anew
check            fail when a page and the results disagree
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from resources.errors import ResourceError
from resources.store import Store
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.results import published
from speech_assets.results.pages import render_pages
from speech_assets.results.stored import marks, read_stored, stored_ids, stored_key

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; 0 done, 1 page and results disagree, 2 a result or page is malformed."""
    parser = argparse.ArgumentParser(
        prog="python -m speech_assets.results", description=(__doc__ or "").partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("render", "check"):
        commands.add_parser(name)
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    listing = commands.add_parser("list", parents=[store])
    listing.add_argument("--stored", action="store_true", help="in the store, by id")
    commands.add_parser("publish", parents=[store]).add_argument("result", metavar="ID|FILE")
    commands.add_parser("import", parents=[store]).add_argument("file", type=Path)
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except (SpeechAssetsError, ResourceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "list" and not arguments.stored:
        for path in sorted(published.PUBLISHED.rglob("*.json")):
            print(path.relative_to(published.ROOT))
        return 0
    if arguments.command in ("render", "check"):
        return _pages(write=arguments.command == "render")
    store = Store(arguments.store)
    if arguments.command == "list":
        for name in stored_ids(store):
            try:
                print(name + marks(read_stored(store, name)))
            except ConfigError as error:
                print(f"{name}  (not to be used: {error})")
    elif arguments.command == "import":
        # Here, and not above: it loads Dagster, which no other command needs.
        from speech_assets.assets.imported import import_result

        print(import_result(arguments.file, store))
    elif Path(arguments.result).is_file() or arguments.result.endswith(".json"):
        _publish(Path(arguments.result).read_bytes(), arguments.result)
    else:
        _publish(store.read_bytes(stored_key(store, arguments.result)), arguments.result)
    return 0


def _publish(data: bytes, name: str) -> None:
    print(published.publish(data, name).relative_to(published.ROOT))
    print("now write the tables: python -m speech_assets.results render")


def _pages(*, write: bool) -> int:
    disagree = render_pages(write=write)
    for page in disagree:
        done = "written" if write else "disagrees with results/"
        print(f"{page.relative_to(published.ROOT)} {done}")
    if disagree and not write:
        print("run: .venv/bin/python -m speech_assets.results render")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
