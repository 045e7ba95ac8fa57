"""Results of other machines, recorded in the lineage as the asset that would have made them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from speech_assets.assets.checkpoints import decode_speed_metadata
from speech_assets.assets.load_tests import ladder_metadata, load_test_metadata
from speech_assets.assets.quality import wer_metadata
from speech_assets.errors import ConfigError
from speech_assets.profiles import load_profile
from speech_assets.results.recomputed import check_figures
from speech_assets.results.result import (
    check_complete,
    check_not_ahead,
    parse_result,
    result_key,
)
from speech_assets.results.stored import id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from resources.store import Store

RECORDED: dict[str, Callable[[Mapping[str, Any], str, Store], dict[str, Any]]] = {
    "decode_speed": lambda value, path, store: decode_speed_metadata(
        value, path, store, load_profile().presets
    ),
    "ladder": lambda value, path, _: ladder_metadata(value, path),
    "load_tests": lambda value, path, _: load_test_metadata(value, path),
    "wer": lambda value, path, _: wer_metadata(value, path),
}
"""Kinds of results that an asset of the same name records, and what its page shows of one.

A fidelity result is not among them: it lets a checkpoint be served that is not on this machine. Nor
is a comparison: it is void without the raw rows and audio of both arms.
"""
WITHOUT_PARTITION = ("ladder",)


def import_result(path: Path, store: Store) -> str:
    """Copy a result of another machine into the store and record it in the lineage; its id.

    Raises:
        ConfigError: it is no complete result of a kind that an asset records, its figures are not
            those of its rows, it is from the future, or there is no Dagster history to record
            it in.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    value = parse_result(data, str(path))
    check_complete(value, str(path))
    check_not_ahead(value, str(path))
    check_figures(value, str(path))
    kind = value["kind"]
    if kind not in RECORDED:
        raise ConfigError(
            f"{path}: results of kind {kind!r} are not imported; publish it, or import one of "
            f"{', '.join(RECORDED)}"
        )
    presets = load_profile().presets
    # A speed of random weights has a longer name than its preset.
    preset = value["config"]["preset"] if kind == "decode_speed" else value["name"]
    if kind not in WITHOUT_PARTITION and preset not in presets:
        raise ConfigError(
            f"{path}: preset {preset!r} is not of the profile in force ({', '.join(presets)}); "
            "choose one that has it by SPEECH_PROFILE"
        )
    key = result_key(value)
    # Before the result is written: what cannot be shown must not take a good one's place.
    metadata = RECORDED[kind](value, store.path(key), store)
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
                kind,
                partition=None if kind in WITHOUT_PARTITION else preset,
                metadata={
                    **metadata,
                    "imported_from": dg.MetadataValue.text(path.name),
                },
            )
        )
    return id_of(key)
