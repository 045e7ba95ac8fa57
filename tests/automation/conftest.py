"""The project's definitions with a small profile and a store and history of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from resources.configured import StoreResource
from speech_assets.definitions import build_definitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from conftest import Corpus

PRESETS = ("embedded-bf16", "embedded-w4a16", "embedded-fp8")


@dataclass
class Project:
    """Definitions, the store's root and a history."""

    defs: dg.Definitions
    root: Path
    instance: dg.DagsterInstance

    def made(self, asset: str, preset: str) -> None:
        """Record that the asset's partition was materialized."""
        self.instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=preset))

    def sensor(self, name: str, cursor: str | None = None) -> Any:
        """What a tick of the sensor gives."""
        with dg.build_sensor_context(
            instance=self.instance, cursor=cursor, **self._given
        ) as context:
            return self.defs.resolve_sensor_def(name).evaluate_tick(context)

    def schedule(self, name: str, at: datetime, said: list[str] | None = None) -> Any:
        """What a tick of the schedule gives; its warnings are added to `said`."""
        with (
            dg.build_schedule_context(
                instance=self.instance, scheduled_execution_time=at, **self._given
            ) as context,
            pytest.MonkeyPatch.context() as patch,
        ):
            if said is not None:
                patch.setattr(context.log, "warning", said.append)
            return self.defs.resolve_schedule_def(name).evaluate_tick(context)

    @property
    def resources(self) -> dict[str, StoreResource]:
        """What ticks are given."""
        return {"store": StoreResource(root=str(self.root))}

    @property
    def _given(self) -> dict[str, Any]:
        return {
            "repository_def": self.defs.get_repository_def(),
            "resources": self.resources,
        }


def profile_of(table: Path, corpus: Corpus, rows: str = "") -> dict[str, str]:
    """Environment of a profile `small` of that corpus and `PRESETS`, with more rows in it."""
    table.write_text(
        f"""
        [corpora.short]
        kind = "parquet"
        path = "{corpus.path}"
        splits = {{ train = "train-*.parquet", dev = "dev-*.parquet" }}
        shard_rows = 3
        [profiles.small]
        corpus = "short"
        codec = "embedded"
        presets = {list(PRESETS)}
        {rows}
        """
    )
    return {"SPEECH_PROFILES": str(table), "SPEECH_PROFILE": "small"}


@pytest.fixture(scope="session")
def small_definitions(
    tmp_path_factory: pytest.TempPathFactory, short_corpus: Corpus
) -> dg.Definitions:
    """Definitions of the small profile; a test gives its own store."""
    folder = tmp_path_factory.mktemp("small")
    environment = profile_of(folder / "profiles.toml", short_corpus)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**environment, "SPEECH_STORE": str(folder)}.items():
            patch.setenv(name, value)
        return build_definitions()


@pytest.fixture
def project(
    tmp_path: Path, small_definitions: dg.Definitions, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    monkeypatch.delenv("SPEECH_ALERT_URL", raising=False)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Project(small_definitions, tmp_path / "store", instance)
