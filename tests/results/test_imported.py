"""Results of another machine, recorded in this one's lineage; the published ones are such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from resources.store import Store
from speech_assets.assets.imported import WITHOUT_PARTITION, import_result
from speech_assets.errors import ConfigError
from speech_assets.results.published import PUBLISHED
from speech_assets.results.result import with_content_hash
from speech_assets.results.stored import stored_ids

if TYPE_CHECKING:
    from collections.abc import Mapping


def newest_published(pattern: str) -> Path:
    """The published result of that place that was started last."""
    return sorted(PUBLISHED.glob(f"{pattern}/*.json"))[-1]


def imported(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, partition: str | None
) -> Mapping[str, Any]:
    """What the lineage shows of it: the metadata of its asset's newest materialization."""
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    store = Store(str(folder / "store"))
    name = import_result(path, store)
    assert stored_ids(store) == [name]
    assert store.read_bytes(f"results/{name}.json") == path.read_bytes()
    kind = path.relative_to(PUBLISHED).parts[0]
    with dg.DagsterInstance.get() as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey(kind))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.partition == partition
    assert (partition is None) == (kind in WITHOUT_PARTITION)
    return event.asset_materialization.metadata


def test_a_speed_of_random_weights_is_recorded_for_the_preset_it_has_the_shape_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_PROFILE", "h200")
    path = newest_published("decode_speed/nvidia-h200/w4a16-random-orpheus-3b")
    metadata = imported(path, tmp_path, monkeypatch, "w4a16")
    assert "random, orpheus-3b" in metadata["precision"].value
    assert metadata["device"].value == "NVIDIA H200"


def test_a_ladder_is_recorded_once_for_all_presets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(newest_published("ladder/*/*"), tmp_path, monkeypatch, None)


def test_fidelity_is_not_imported_since_it_would_speak_for_a_checkpoint_that_is_not_here(
    tmp_path: Path,
) -> None:
    path = newest_published("fidelity/*/embedded-bf16")
    with pytest.raises(ConfigError, match="results of kind 'fidelity' are not imported"):
        import_result(path, Store(str(tmp_path)))
    assert stored_ids(Store(str(tmp_path))) == []


def test_a_result_without_hash_or_from_the_future_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    store = Store(str(tmp_path / "store"))
    value = json.loads(newest_published("ladder/*/*").read_bytes())
    path = tmp_path / "run.json"

    def refusal() -> str:
        with pytest.raises(ConfigError) as caught:
            import_result(path, store)
        assert stored_ids(store) == []
        return str(caught.value)

    future = with_content_hash({**value, "started_at": "9998-11-29T10:00:00Z"})
    path.write_text(json.dumps(future))
    assert "started_at is 9998-11-29T10:00:00Z, more than a day ahead" in refusal()
    del value["content_sha256"]
    path.write_text(json.dumps(value))
    assert "has no content_sha256" in refusal()
