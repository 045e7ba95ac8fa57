"""What a corpus takes to tokenize, by hand-worked numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from speech_assets.scaling.assumptions_file import load_assumptions
from speech_assets.scaling.tokenize_tables import curve_table, tokenize_fleet_table


def assumed(**values: float) -> Any:
    found = load_assumptions()
    changed = {
        name: replace(getattr(found.values, name), value=value) for name, value in values.items()
    }
    return replace(found, values=replace(found.values, **changed))


def backfill(**changed: Any) -> dict[str, Any]:
    return {
        "device": {"name": "NVIDIA H200", "host": {"cores": 16}},
        "reduced": False,
        "config": {"codec": "snac"},
        "figures": {
            "hours_per_min": {"value": 50.0},
            "speech_capacity_hours_per_min": {"value": 40.0},
        },
        "started_at": "2026-11-30T00:00:00Z",
        **changed,
    }


def cells(text: str, row: int = 0) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[2 + row].strip("|").split("|")]


def test_devices_cores_and_the_stores_rate_follow_from_the_days() -> None:
    # 720,000 h at 50 h/min are 240 device-hours, in one day ten devices; at 40 / 16 = 2.5 h/min
    # a core 4,800 core-hours: 200 cores. PCM: 720,000 x 3,600 x 48,000 bytes
    # in 86,400 s.
    assumptions = assumed(corpus_hours=720_000, tokenize_days=1, padding_frames=0)
    found = cells(tokenize_fleet_table([backfill()], assumptions))
    assert found[2:7] == ["10", "200", "-", "1,440", "1,440"]
    # 82.03125 tokens a second, two bytes each: 4.25e11 bytes in all.
    assert found[7] == "4.92"


def test_devices_whose_hosts_make_the_speech_go_at_the_pipelines_rate() -> None:
    assumptions = assumed(corpus_hours=720_000, tokenize_days=1, padding_frames=0)
    # 720,000 h at 40 h/min are 300 device-hours: in one day 12.5 devices.
    whole = backfill(figures={"pipeline_hours_per_min": {"value": 40.0}})
    other = backfill(figures=whole["figures"], config={"codec": "another"})
    assert cells(tokenize_fleet_table([backfill()], assumptions, [other, whole]))[4] == "13"
    assert cells(tokenize_fleet_table([backfill()], assumptions, [other]))[4] == "-"


def test_a_host_of_unknown_cores_says_nothing() -> None:
    unknown = backfill(device={"name": "NVIDIA H200"})
    assert "No result" in tokenize_fleet_table([unknown], load_assumptions())


def test_a_curve_has_a_row_for_each_value() -> None:
    result = backfill(
        rows=[
            {"varied": "clip_s", "clip_s": 2.0, "batch_samples": 4_000_000, "hours_per_min": 61.2},
            {"varied": "cores", "cores": 16, "hours_per_min": 36.0},
        ]
    )
    text = curve_table([result])
    assert cells(text)[2:6] == ["bare encoder", "clips of so many s", "2", "61.2"]
    assert cells(text, 1)[2:6] == ["`speech`", "cores of the host", "16", "36"]
