"""Load tests of presets, and the ladder of their switches: work processes measure, this shows."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
import base64
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.failures import ERRORS, failed, result_of
from speech_assets.assets.result_metadata import result_metadata
from speech_assets.freshness import MEASURED_LATELY
from speech_assets.load.charts import charts_of
from speech_assets.load.levels import LOADS, row_from
from speech_assets.load.sweep import FULL_LEVEL_S
from speech_assets.load.tables import ladder_table, levels_table
from speech_assets.profiles import Profile

# Bump when the same server would be measured otherwise.
LOAD_TESTS_CODE_VERSION = "1"
LADDER_CODE_VERSION = "1"


class SweepConfig(dg.Config):
    """What load tests and ladders have in common."""

    levels: str = Field("", description="streams at once, as 1,2,4; empty is the usual ones")
    seeds: str = Field("1", description="each level is measured with every one, as 1,2,3")
    lag_limit_ms: float = Field(5.0, description="the client may be so late (p99)")
    allow_client_limit: bool = Field(False, description="keep figures when it was later")


class LoadTestConfig(SweepConfig):
    """What a preset's server is asked for; the usual levels are the profile's."""

    loads: str = Field(",".join(LOADS), description="generating, listening, or both with a comma")
    duration_s: float = Field(FULL_LEVEL_S, description="measured at each level")
    warmup_s: float = Field(10.0, description="of load before that, not measured")
    until_failure: bool = Field(True, description="end each sweep with its first failing level")


class LadderConfig(SweepConfig):
    """Which ladder is climbed, and by which sweep; what is empty or null is as the ladder says."""

    ladder: str = Field("embedded", description="which of the table")
    table: str = Field("", description="TOML file of ladders; empty is the project's")
    duration_s: float | None = Field(None, description="measured at each level")
    warmup_s: float | None = Field(None, description="of load before that, not measured")


def load_test_assets(profile: Profile) -> list[Any]:
    """Load tests of each preset that the profile lists, and the ladder."""
    presets = dg.StaticPartitionsDefinition(list(profile.presets))

    @dg.asset(
        partitions_def=presets,
        deps=["fidelity"],
        group_name="serving",
        kinds={"benchmark"},
        pool="gpu",
        code_version=LOAD_TESTS_CODE_VERSION,
        freshness_policy=MEASURED_LATELY,
    )
    def load_tests(
        context: dg.AssetExecutionContext,
        config: LoadTestConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """How many streams a server of the preset keeps in realtime, and how soon each is heard.

        A server is started once. Two loads, never mixed: *generating N*, N requests always in
        flight; *listening N*, requests arriving at random as N people listen. Levels are tried
        until one fails: a request that is refused, cut or silent, an underrun, an RTF p95 of 1.
        """
        arguments = ["--preset", context.partition_key, "--store", store.root]
        arguments += [f"--loads={config.loads}", *_sweep_options(config)]
        arguments += ["--all-levels"] * (not config.until_failure)
        try:
            made = result_of(context, work.run(context, "load_test", arguments), "load_tests")
            value = store.store().read_json(made["key"])
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            metadata={
                **load_test_metadata(value, store.store().path(made["key"])),
                "folder": dg.MetadataValue.path(store.store().path(made["folder"])),
            }
        )

    @dg.asset(
        group_name="serving",
        kinds={"benchmark"},
        pool="gpu",
        code_version=LADDER_CODE_VERSION,
    )
    def ladder(
        context: dg.AssetExecutionContext,
        config: LadderConfig,
        store: StoreResource,
        work: WorkResource,
    ) -> dg.MaterializeResult:
        """What each switch of a preset is worth: one changed at a time, all measured alike.

        Each step changes one setting of the best before it and is served and measured by the same
        short sweep. More streams in realtime are adopted, fewer rejected; with as many, TTFA,
        TTFS and RTF decide. What this device cannot run is tried, and said.
        """
        arguments = [f"--ladder={config.ladder}", "--store", store.root, *_sweep_options(config)]
        arguments += [f"--table={config.table}"] if config.table else []
        try:
            made = result_of(context, work.run(context, "ladder", arguments), "ladder")
            value = store.store().read_json(made["key"])
        except ERRORS as error:
            raise failed(context, error) from error
        return dg.MaterializeResult(
            metadata=ladder_metadata(value, store.store().path(made["key"]))
        )

    return [load_tests, ladder]


def load_test_metadata(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What the asset's page shows of a load test's result: its figures, levels and charts."""
    charts = charts_of([row_from(row) for row in value["rows"]])
    return {
        **_facts(value, path),
        "levels": dg.MetadataValue.md(levels_table(value["rows"])),
        **{chart.name: _picture(chart.title, chart.draw()) for chart in charts},
    }


def ladder_metadata(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What the asset's page shows of a ladder's result: its steps with their outcomes."""
    return {
        **_facts(value, path),
        "steps_table": dg.MetadataValue.md(ladder_table([value])),
    }


def _sweep_options(config: LoadTestConfig | LadderConfig) -> list[str]:
    # One word each: argparse takes a word that begins with a minus for another option.
    options = [f"--levels={config.levels}", f"--seeds={config.seeds}"]
    options += [f"--lag-limit-ms={config.lag_limit_ms}"]
    for name, value in (("--duration-s", config.duration_s), ("--warmup-s", config.warmup_s)):
        options += [f"{name}={value}"] if value is not None else []
    return [*options, *["--allow-client-limit"] * config.allow_client_limit]


def _facts(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {
        **result_metadata(value, path),
        "client_faults": dg.MetadataValue.json(list(value["config"]["client_faults"])),
    }


def _picture(title: str, png: bytes) -> dg.MarkdownMetadataValue:
    # In the text itself: the UI serves no file of the store.
    data = base64.b64encode(png).decode()
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{data})")
