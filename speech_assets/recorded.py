"""Results in the store: their ids, and their place in the lineage.

An id is a result's key without its ends: `load_tests/<device>/<preset>/<run>`. Any tail of it that
only one result has will do.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.store import Store
from speech_assets import results
from speech_assets.errors import ConfigError
from speech_assets.profiles import load_profile
from speech_assets.results import read_result, result_key

if TYPE_CHECKING:
    import argparse

_HEAD, _TAIL = "results/", ".json"
ASSETS = {"load_tests": "load_tests", "ladder": "ladder"}
"""Kinds of results, and the asset that records each; a load test's partition is its preset."""


def run_on_store(arguments: argparse.Namespace) -> int:
    """The commands of `speech-results` that need the store: list --stored, publish, import."""
    store = Store(arguments.store)
    if arguments.command == "list":
        print("\n".join(stored_ids(store)))
    elif arguments.command == "import":
        print(import_result(arguments.file, store))
    elif Path(arguments.result).is_file() or arguments.result.endswith(_TAIL):
        print(results.publish(Path(arguments.result)).relative_to(results.ROOT))
    else:
        key = stored_key(store, arguments.result)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / Path(key).name
            path.write_bytes(store.read_bytes(key))
            print(results.publish(path).relative_to(results.ROOT))
    return 0


def stored_ids(store: Store, kind: str = "") -> list[str]:
    """Ids of all results in the store, or of those of a kind, by kind, device, name and time."""
    keys = store.keys(f"results/{kind}" if kind else "results")
    return [key.removeprefix(_HEAD).removesuffix(_TAIL) for key in keys if key.endswith(_TAIL)]


def newest(store: Store, kind: str, name: str) -> dict[str, Any] | None:
    """The result of that kind and name that was started last, on whatever device; None: none."""
    found = [store.read_json(f"{_HEAD}{i}{_TAIL}") for i in stored_ids(store, kind)]
    of_name = [value for value in found if value["name"] == name]
    return max(of_name, key=lambda value: value["started_at"], default=None)


def stored_key(store: Store, wanted: str) -> str:
    """Key of the result of that id, or of which it is the tail.

    Raises:
        ConfigError: there is none, or more than one.
    """
    ids = stored_ids(store)
    found = [name for name in ids if name == wanted or name.endswith(f"/{wanted}")]
    if len(found) != 1:
        known = ", ".join(found or ids[-5:]) or "none"
        raise ConfigError(
            f"{wanted!r} is {'the tail of more than one' if found else 'neither a file nor'} "
            f"result of {store.path('results')}; there are: {known} (list --stored shows all)"
        )
    return f"{_HEAD}{found[0]}{_TAIL}"


def import_result(path: Path, store: Store) -> str:
    """Copy a result of another machine into the store and record it in the lineage; its id.

    Raises:
        ConfigError: it is no result of a kind that an asset records, or there is no Dagster history
            to record it in.
    """
    import dagster as dg

    from speech_assets.assets.load_tests import ladder_metadata, load_test_metadata

    value = read_result(path)
    kind, name = value["kind"], value["name"]
    if kind not in ASSETS:
        raise ConfigError(
            f"{path}: results of kind {kind!r} are of no asset; publish it, or import one of "
            f"{', '.join(ASSETS)}"
        )
    presets = load_profile().presets
    if kind == "load_tests" and name not in presets:
        raise ConfigError(
            f"{path}: preset {name!r} is not of the profile in force ({', '.join(presets)}); "
            "choose one that has it by SPEECH_PROFILE"
        )
    key = result_key(value)
    metadata = load_test_metadata if kind == "load_tests" else ladder_metadata
    home = os.environ.get("DAGSTER_HOME", "")
    if not Path(home).is_dir() or not home:
        raise ConfigError(
            f"DAGSTER_HOME is {home!r}, so that there is no history to record in; export "
            "DAGSTER_HOME=$PWD in the project's folder"
        )
    with dg.DagsterInstance.get() as instance:
        store.write_bytes(key, path.read_bytes())
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                ASSETS[kind],
                partition=name if kind == "load_tests" else None,
                metadata={
                    **metadata(value, store.path(key)),
                    "imported_from": dg.MetadataValue.text(path.name),
                },
            )
        )
    return key.removeprefix(_HEAD).removesuffix(_TAIL)
