"""The ladder of switches: what each setting of a preset is worth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from speech_assets.load.ladder import NOISE_SHARE
from speech_assets.report.cells import MISSING, Cell, Table, number
from speech_assets.report.section import Section, run_of, source_note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from speech_assets.report.evidence import Evidence, Found

_FIGURES = {
    "max_realtime_streams": "streams generating",
    "ttfa_ms_p50": "TTFA p50, ms",
    "ttfs_ms_p50": "TTFS p50, ms",
    "rtf_p50": "RTF p50",
}


def switches_section(evidence: Evidence) -> Section:
    """A table of each ladder: its steps, and what became of them."""
    ladders = evidence.all_of("ladder")
    missing = (
        "No ladder of switches. Asset `ladder` climbs one; by hand: "
        "`.venv/bin/python -m speech_assets.work.ladder`.",
    ) * (not ladders)
    return Section(
        "switches",
        "Switches",
        paragraphs=(
            (
                "What each setting of a server is worth. One is changed at a time and measured as "
                "the one before. A setting with which more streams stay in realtime is adopted, "
                "one with fewer is rejected; with as many, TTFA, TTFS and RTF decide, each by more "
                f"than {100 * NOISE_SHARE:g} %."
            ),
        ),
        tables=tuple(_table(evidence, found) for found in ladders),
        missing=missing,
    )


def _table(evidence: Evidence, found: Found) -> Table:
    config = found.value["config"]
    caption = (
        f"Ladder {found.value['name']}, from preset {config['preset']['name']}, "
        f"{config['sweep']['duration_s']:g} s a level"
    )
    rows = [
        (
            Cell(str(step["name"])),
            Cell(_changed(step)),
            Cell(str(step["outcome"]), result=found.id),
            *(_figure(found, index, step, name) for name in _FIGURES),
            Cell(str(step["why"]) if step["switch"] else ""),
            run_of(found),
        )
        for index, step in enumerate(found.value["rows"])
    ]
    heads = ("step", "switch", "outcome", *_FIGURES.values(), "why", "from")
    return Table(caption, heads, tuple(rows), (source_note(found, evidence),))


def _figure(found: Found, index: int, step: Mapping[str, Any], name: str) -> Cell:
    value = step[name]
    if value is None:
        return Cell(MISSING)
    return Cell(number(value), float(value), found.id, f"rows.{index}.{name}")


def _changed(step: Mapping[str, Any]) -> str:
    changed = {step["switch"]: step["value"]} if step["switch"] else step.get("settings", {})
    return ", ".join(f"{name} = {_shown(value)}" for name, value in changed.items())


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
