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
    found = cells(tokenize_fleet_table([backfill()], assumptions, [other, whole]))
    assert found[4] == f"13 ({whole['started_at'][:10]})"
    assert cells(tokenize_fleet_table([backfill()], assumptions, [other]))[4] == "-"


def test_of_two_pipelines_of_one_device_and_codec_the_newest_counts_and_is_dated() -> None:
    assumptions = assumed(corpus_hours=720_000, tokenize_days=1, padding_frames=0)
    newer, older = (
        backfill(figures={"pipeline_hours_per_min": {"value": value}}, started_at=started_at)
        for value, started_at in ((50.0, "2026-12-02T00:00:00Z"), (40.0, "2026-12-01T00:00:00Z"))
    )
    for pipelines in ([newer, older], [older, newer]):
        found = cells(tokenize_fleet_table([backfill()], assumptions, pipelines))
        assert found[4] == "10 (2026-12-02)"


def test_a_host_of_unknown_cores_says_nothing() -> None:
    unknown = backfill(device={"name": "NVIDIA H200"})
    assert "No result" in tokenize_fleet_table([unknown], load_assumptions())


def test_a_curve_has_a_row_for_each_value() -> None:
    encoder = {"varied": "clip_s", "clip_s": 2.0, "hours_per_min": 61.2, "seconds": [0.5, 0.4, 0.6]}
    budget = {**encoder, "varied": "batch_samples", "batch_samples": 1_000_000}
    cores = {"varied": "cores", "cores": 16, "hours_per_min": 36.0, "seconds": [1.08]}
    rows = [encoder, {**budget, "peak_memory_gib": 3.5}, cores]
    text = curve_table([backfill(rows=rows, command="python -m curve")])
    assert cells(text)[2:8] == [
        *("bare encoder", "clips of so many s", "2", "61.2", "3 of 0.5", "-")
    ]
    assert cells(text, 1)[4:8] == ["1,000,000", "61.2", "3 of 0.5", "3.50"]
    assert cells(text, 2)[2:7] == ["`speech`", "cores of the host", "16", "36", "1 of 1.08"]
    assert text.splitlines()[-1].endswith("`python -m curve`")
