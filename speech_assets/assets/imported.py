"""Results of other machines, recorded in the lineage as the asset that would have made them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from speech_assets.assets.load_tests import ladder_metadata, load_test_metadata
from speech_assets.errors import ConfigError
from speech_assets.profiles import load_profile
from speech_assets.results.result import check_complete, parse_result, result_key
from speech_assets.results.stored import id_of

if TYPE_CHECKING:
    from resources.store import Store

ASSETS = {"load_tests": "load_tests", "ladder": "ladder"}
"""Kinds of results, and the asset that records each; a load test's partition is its preset."""


def import_result(path: Path, store: Store) -> str:
    """Copy a result of another machine into the store and record it in the lineage; its id.

    Raises:
        ConfigError: it is no complete result of a kind that an asset records, or there is no
            Dagster history to record it in.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    value = parse_result(data, str(path))
    check_complete(value, str(path))
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
    made = load_test_metadata if kind == "load_tests" else ladder_metadata
    # Before the result is written: what cannot be shown must not take a good one's place.
    metadata = made(value, store.path(key))
    home = os.environ.get("DAGSTER_HOME", "")
    if not Path(home).is_dir() or not home:
        raise ConfigError(
            f"DAGSTER_HOME is {home!r}, so that there is no history to record in; export "
            "DAGSTER_HOME=$PWD in the project's folder"
        )
    with dg.DagsterInstance.get() as instance:
        store.write_bytes(key, data)
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                ASSETS[kind],
                partition=name if kind == "load_tests" else None,
                metadata={
                    **metadata,
                    "imported_from": dg.MetadataValue.text(path.name),
                },
            )
        )
    return id_of(key)
