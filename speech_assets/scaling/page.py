"""The blocks of docs/SCALING.md by name, each rendered from `results/` and the assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.results import published
from speech_assets.scaling.assumptions_file import load_assumptions
from speech_assets.scaling.assumptions_table import assumptions_table
from speech_assets.scaling.bandwidth import measured_steps
from speech_assets.scaling.fleet import capacities, capacities_of_others
from speech_assets.scaling.serving_tables import (
    breakeven_table,
    cost_table,
    others_streams_table,
    streams_table,
)
from speech_assets.scaling.streams_elsewhere import elsewhere_table
from speech_assets.scaling.tokenize_tables import (
    curve_table,
    dataset_table,
    tokenize_fleet_table,
    tokenize_hours_table,
)
from speech_assets.scaling.training_tables import (
    bandwidth_table,
    held_table,
    memory_table,
    traffic_table,
    training_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from speech_assets.scaling.fleet import Capacity


def _ours() -> list[Capacity]:
    return capacities(published.of_kind("load_tests"))


def _others() -> list[Capacity]:
    return capacities_of_others(load_assumptions().streams_by_others)


SCALING_TABLES: dict[str, Callable[[], str]] = {
    "scaling-streams": lambda: streams_table(_ours(), load_assumptions().streams),
    "scaling-streams-others": lambda: others_streams_table(_others(), load_assumptions()),
    "scaling-elsewhere": lambda: elsewhere_table(
        published.of_kind("cost_curve"), load_assumptions()
    ),
    "scaling-cost": lambda: cost_table([*_ours(), *_others()], load_assumptions()),
    "scaling-breakeven": lambda: breakeven_table([*_ours(), *_others()], load_assumptions()),
    "scaling-dataset": lambda: dataset_table(load_assumptions()),
    "scaling-tokenize": lambda: tokenize_hours_table(
        published.of_kind("tokenize"), load_assumptions()
    ),
    "scaling-tokenize-fleet": lambda: tokenize_fleet_table(
        published.of_kind("tokenize"), load_assumptions(), published.of_kind("tokenize_pipeline")
    ),
    "scaling-tokenize-curve": lambda: curve_table(published.of_kind("tokenize_curve")),
    "scaling-training": lambda: training_table(load_assumptions()),
    "scaling-memory": lambda: memory_table(load_assumptions()),
    "scaling-traffic": lambda: traffic_table(load_assumptions()),
    "scaling-bandwidth": lambda: bandwidth_table(
        measured_steps(published.of_kind("decode_speed")), load_assumptions()
    ),
    "scaling-bandwidth-others": lambda: held_table(load_assumptions()),
    "scaling-assumptions": lambda: assumptions_table(load_assumptions()),
}
