"""Devices for streams, what streams cost, and the size of a corpus, worked out by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from load.rows import level_row

from speech_assets.load.summary import load_figures
from speech_assets.scaling.assumptions_file import load_assumptions
from speech_assets.scaling.cost import (
    breakeven_price,
    breakeven_utilisation,
    cost_per_stream_hour,
)
from speech_assets.scaling.dataset import dataset_size, device_hours
from speech_assets.scaling.fleet import Capacity, capacities, capacities_of_others, devices_for
from speech_assets.scaling.serving_tables import (
    breakeven_table,
    cost_table,
    others_streams_table,
    streams_table,
)

ASSUMPTIONS = load_assumptions()
FAR = 10**9


def load_test(*rows: Any, name: str = "bf16", **changed: Any) -> dict[str, Any]:
    """A result of kind load_tests as a file has it, of these levels."""
    figures = {name: asdict(figure) for name, figure in load_figures(rows).items()}
    given: dict[str, Any] = {
        "name": name,
        "device": {"name": "NVIDIA H200"},
        "reduced": False,
        "config": {"client_faults": [], "no_level_failed": []},
        "rows": [asdict(row) for row in rows],
        "figures": figures,
    }
    return {**given, **changed}


@pytest.mark.parametrize(
    ("streams", "per_device", "devices"),
    [
        (100, 6, 17),  # 16.7
        (1_000, 6, 167),  # 166.7
        (10_000, 6, 1_667),  # 1,666.7
        (100, 5, 20),
        (1_000, 5, 200),
        (1_000, 216, 5),  # 4.6
        (6, 6, 1),
        (7, 6, 2),
        (1, 216, 1),
        (100, 0, None),
    ],
)
def test_devices_are_streams_over_streams_of_a_device_rounded_up(
    streams: int, per_device: int, devices: int | None
) -> None:
    assert devices_for(streams, per_device) == devices


def test_no_stream_is_no_question() -> None:
    with pytest.raises(ValueError, match="0 streams need no device"):
        devices_for(0, 6)


@settings(deadline=None)
@given(st.integers(1, FAR), st.integers(0, FAR), st.integers(1, FAR), st.integers(0, FAR))
def test_more_streams_never_need_fewer_devices_and_better_devices_never_more(
    streams: int, more: int, per_device: int, better: int
) -> None:
    devices = devices_for(streams, per_device)
    assert devices is not None
    assert (devices - 1) * per_device < streams <= devices * per_device
    assert (devices_for(streams + more, per_device) or 0) >= devices
    assert (devices_for(streams, per_device + better) or FAR) <= devices


def test_a_load_test_says_what_a_device_holds_for_each_load() -> None:
    result = load_test(
        *(level_row(level, is_passed=level < 8) for level in (2, 4, 6, 8)),
        level_row(4, load="listening"),
        level_row(2, load="listening"),
        config={"client_faults": ["late"], "no_level_failed": ["listening"]},
        reduced=True,
    )
    generating, listening = capacities([result])
    assert (generating.load, generating.streams, generating.with_margin) == ("generating", 6, 4)
    assert not generating.is_at_least
    assert generating.lowest_level == 2
    assert generating.caveats == ("reduced", "client late")
    assert (listening.streams, listening.with_margin, listening.is_at_least) == (4, 2, True)


def test_the_table_says_at_most_where_no_level_failed_and_not_possible_where_none_passed() -> None:
    found = capacities(
        [
            load_test(level_row(6), level_row(5), level_row(7, is_passed=False)),
            load_test(
                level_row(1, load="listening"),
                level_row(3, load="listening"),
                name="fp8",
                config={"no_level_failed": ["listening"]},
            ),
            load_test(level_row(1, is_passed=False), name="w4a16"),
            load_test(level_row(4, is_passed=False), name="from-four"),
            load_test(level_row(1), level_row(2, is_passed=False), name="one"),
        ]
    )
    text = streams_table(found, (100, 1_000))
    assert "| bf16 | NVIDIA H200 | generating | 6 | 5 | 17 | 20 | 167 | 200 |" in text
    assert (
        "| fp8 | NVIDIA H200 | listening | at least 3 | 1 "
        "| at most 34 | at most 100 | at most 334 | at most 1,000 |"
    ) in text
    none = " | ".join(["not possible"] * 4)
    assert f"| w4a16 | NVIDIA H200 | generating | 0 | 0 | {none} |" in text
    assert f"| from-four | NVIDIA H200 | generating | fewer than 4 | 0 | {none} |" in text
    assert "| one | NVIDIA H200 | generating | 1 | 0 | 100 | not possible | 1,000 | not" in text
    assert "say nothing of Orpheus 3B" not in text
    assert "*At least*" in text
    assert "*Not possible*" in text


def test_rows_of_the_embedded_voice_are_marked() -> None:
    [one] = capacities([load_test(level_row(1), level_row(2), name="embedded-bf16")])
    for text in (
        streams_table([one], (100,)),
        cost_table([one], ASSUMPTIONS),
        breakeven_table([one], ASSUMPTIONS),
    ):
        assert "**say nothing of Orpheus 3B**" in text


def test_what_others_published_stands_with_rule_and_source() -> None:
    found = capacities_of_others(ASSUMPTIONS.streams_by_others)
    text = others_streams_table(found, replace(ASSUMPTIONS, streams=(100, 1_000, 10_000)))
    [reference] = [line for line in text.splitlines() if line.startswith("| reference")]
    assert "| L4 | 6 | 5 | 17 | 20 | 167 | 200 | 1,667 | 2,000 | p95 RTF below 1" in reference
    [sail] = [line for line in text.splitlines() if "| 216 |" in line]
    # 100 / 216, 1,000 / 216 = 4.6, 10,000 / 216 = 46.3; they give no margin.
    assert "| H100 | 216 | - | 1 | - | 5 | - | 47 | - |" in sail
    assert "| https://" in sail


def test_a_stream_hour_costs_the_device_hour_over_the_streams_in_use() -> None:
    assert cost_per_stream_hour(2.5, 100, 1.0) == 0.025
    assert cost_per_stream_hour(0.9, 6, 0.5) == pytest.approx(0.3)  # 0.9 / 3
    # 0.9 / 6 = 0.15 a stream-hour when all are in use, 0.3 at a half.
    assert breakeven_utilisation(0.9, 6, 0.3) == pytest.approx(0.5)
    assert breakeven_utilisation(0.9, 6, 0.1) == pytest.approx(1.5)  # None: above 1.
    assert breakeven_price(6, 0.5, 0.3) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("price", "streams", "utilisation", "what"),
    [
        (0.0, 6, 0.5, "price is 0"),
        (float("nan"), 6, 0.5, "price is nan"),
        (1.0, 0, 0.5, "streams is 0"),
        (1.0, 6, 0.0, "utilisation is 0"),
        (1.0, 6, 1.1, "utilisation is 1.1"),
    ],
)
def test_a_cost_of_nothing_or_of_no_stream_is_refused(
    price: float, streams: float, utilisation: float, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        cost_per_stream_hour(price, streams, utilisation)


@settings(deadline=None)
@given(st.floats(0.01, 1e4), st.integers(1, 10**5), st.floats(0.01, 1.0), st.floats(1.0, 10.0))
def test_own_devices_cost_what_bought_ones_do_at_the_breakeven(
    price: float, streams: int, utilisation: float, times: float
) -> None:
    bought = cost_per_stream_hour(price, streams, utilisation)
    assert breakeven_utilisation(price, streams, bought) == pytest.approx(utilisation)
    assert breakeven_price(streams, utilisation, bought) == pytest.approx(price)
    assert cost_per_stream_hour(price * times, streams, utilisation) >= bought
    assert cost_per_stream_hour(price, streams * times, utilisation) <= bought


def test_costs_are_shown_for_devices_that_have_a_price() -> None:
    l4, other = ASSUMPTIONS.prices[0], "Some Card"
    assumptions = replace(ASSUMPTIONS, prices=(replace(l4, device="L4", per_hour=0.9),))
    values = replace(
        assumptions.values,
        utilisation=replace(assumptions.values.utilisation, value=0.5),
        bought_per_stream_hour=replace(assumptions.values.bought_per_stream_hour, value=0.3),
    )
    assumptions = replace(assumptions, values=values)
    found = [
        Capacity("a", "NVIDIA L4", "generating", 6, 5),
        Capacity("b", "NVIDIA L40S", "generating", 6, 5),
        Capacity("c", other, "generating", 6, 5),
        Capacity("d", "NVIDIA L4", "generating", 0, 0),
        Capacity("e", "NVIDIA L4", "generating", 2, 1, is_at_least=True),
    ]
    lines = cost_table(found, assumptions).splitlines()
    # 0.9 / 6, over a half, and 0.9 / (5 x 0.5).
    assert "| a | NVIDIA L4 | generating | 6 | 0.9 | 0.15 | 0.3 | 0.36 |" in lines
    assert "| b | NVIDIA L40S | generating | 6 | no price given | - | - | - |" in lines
    assert f"| c | {other} | generating | 6 | no price given | - | - | - |" in lines
    none = " | ".join(["not possible"] * 3)
    assert f"| d | NVIDIA L4 | generating | 0 | 0.9 | {none} |" in lines
    assert (
        "| e | NVIDIA L4 | generating | at least 2 | 0.9 | at most 0.45 | at most 0.9 "
        "| at most 1.8 |"
    ) in lines
    lines = breakeven_table(found, assumptions).splitlines()
    # 0.9 / (6 x 0.3) = 50 %; 0.3 x 6 x 25 %, and so on. 0.9 / (2 x 0.3) is above 1.
    assert "| a | NVIDIA L4 | generating | 6 | 0.9 | 50.0% | 0.45 | 0.9 | 1.35 | 1.8 |" in lines
    assert any("| at least 2 | 0.9 | no utilisation so far | at least 0.15 |" in x for x in lines)


def test_a_corpus_in_tokens_is_as_worked_out_by_hand() -> None:
    # An hour of clips of 3.6 s: 1,000 clips, one shard. 3,600 x 24,000 / 2,048 x 7 = 295,312.5
    # tokens, and 1,000 x half a frame of 7.
    size = dataset_size(1.0, 3.6, 0.5)
    assert (size.clips, size.shards, size.tokens) == (1_000, 1, 298_812.5)
    assert size.code_bytes == 597_625.0
    assert size.least_code_bytes == 448_218.75
    assert size.pcm_bytes == 172_800_000
    assert dataset_size(1.001, 3.6, 0.5).shards == 2


def test_tokens_of_an_hour_agree_with_what_others_counted() -> None:
    # train-clean-100: 33,113 clips, 53.4 h; the reference project counted 297,483 tokens an hour.
    size = dataset_size(53.4, 53.4 * 3_600 / 33_113, 0.5)
    assert size.clips in (33_113, 33_114)
    assert size.tokens / size.hours == pytest.approx(297_483, abs=1)


def test_device_hours_are_hours_over_the_rate() -> None:
    # 2,000,000 / 6.68 / 60 = 4,990, as the reference project says of its L4.
    assert device_hours(2_000_000, 6.68) == pytest.approx(4_990, abs=1)
    assert device_hours(120.0, 2.0) == 1.0


@settings(deadline=None)
@given(st.floats(0.1, 1e7), st.floats(0.0, 1e7), st.floats(0.5, 60.0))
def test_more_hours_never_have_fewer_tokens_or_shards(
    hours: float, more: float, mean_clip_s: float
) -> None:
    one, other = (dataset_size(value, mean_clip_s, 0.5) for value in (hours, hours + more))
    assert other.tokens >= one.tokens
    assert other.shards >= one.shards
