"""Devices that a number of realtime streams needs, from what one device holds in a load test.

Devices are taken to be alike and independent, each with a server of its own, and streams to be
spread evenly over them: `ceil(streams / streams of one device)`. Nothing is kept for a device that
fails, and a load balancer costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.load.levels import LOADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from speech_assets.load.levels import Load
    from speech_assets.scaling.assumptions import OthersStreams


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one device holds: `streams`, and `with_margin` one level less; 0 is none.

    `is_at_least` says that no level failed, so that the device may hold more. `lowest_level` is the
    least that was offered. `caveats` are what a reader must know first.
    """

    name: str
    device: str
    load: Load | None
    streams: int
    with_margin: int | None
    is_at_least: bool = False
    lowest_level: int = 1
    caveats: tuple[str, ...] = ()


def capacities(results: Iterable[Mapping[str, Any]]) -> list[Capacity]:
    """What each load test found for each load that it offered; `results` are of `load_tests`."""
    found: list[Capacity] = []
    for result in results:
        figures, config = result["figures"], result["config"]
        caveats = ("reduced",) * bool(result["reduced"])
        caveats += ("client late",) * bool(config.get("client_faults"))
        for load in LOADS:
            name = f"max_realtime_streams_{load}"
            if name not in figures:
                continue
            levels = [row["level"] for row in result["rows"] if row["load"] == load]
            found.append(
                Capacity(
                    name=result["name"],
                    device=result["device"]["name"],
                    load=load,
                    streams=int(figures[name]["value"]),
                    with_margin=int(figures[f"{name}_with_margin"]["value"]),
                    is_at_least=load in config.get("no_level_failed", ()),
                    lowest_level=int(min(levels, default=1)),
                    caveats=caveats,
                )
            )
    return found


def capacities_of_others(rows: Sequence[OthersStreams]) -> list[Capacity]:
    """What others say that a device holds; which of our loads theirs is like is not known."""
    return [Capacity(row.who, row.device, None, row.streams, row.with_margin) for row in rows]


def devices_for(streams: int, per_device: int) -> int | None:
    """Devices that `streams` at once need; None where one device holds none.

    Raises:
        ValueError: fewer than one stream.
    """
    if streams < 1:
        raise ValueError(f"{streams} streams need no device")
    return -(-streams // per_device) if per_device >= 1 else None


def says_nothing_of_orpheus(name: str) -> bool:
    """Whether a preset is of the small voice that ships with the project."""
    return name.startswith("embedded")
