"""Levels: what text may name them, and which of them a server holds, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load.rows import level_row

from speech_assets.bench.errors import BenchError
from speech_assets.bench.options import BenchOptions
from speech_assets.errors import ConfigError
from speech_assets.load.levels import (
    MOST_SEED,
    largest_passing,
    largest_with_margin,
    never_failed,
    parse_levels,
    parse_loads,
    parse_seeds,
    row_from,
)
from speech_assets.load.sweep import SweepOptions, client_faults


def test_levels_loads_and_seeds_are_read_from_text() -> None:
    assert parse_levels("1,2, 4") == (1.0, 2.0, 4.0)
    assert parse_loads("listening,generating") == ("generating", "listening")
    assert parse_loads("listening") == ("listening",)
    assert parse_seeds("1, 7") == (1, 7)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is no number; give levels as 1,2,4"),
        ("1,two", "'two' is no number"),
        ("0", "0 is no level; give whole numbers of streams, 1 to 4096"),
        ("1.5", "1.5 is no level"),
        ("nan", "nan is no level"),
        ("9999", "9999 is no level"),
        ("2,1", "levels must ascend"),
        ("1,1", "each given once"),
        ("-1,2", "-1 is no level"),
        (",".join(map(str, range(1, 5001))), "4097 is no level"),
        ("1," * 5000, "'' is no number"),
        ("1" * 5000, "inf is no level"),
    ],
)
def test_levels_that_cannot_be_are_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_levels(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text", ["", "shouting", "a" * 5000, "generating,generating", "generating,"]
)
def test_loads_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="give generating or listening, or both") as caught:
        parse_loads(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "give whole numbers with commas") for text in ("", "a", "-1", "1.5", "1,,2")),
        ("1,1", "seeds '1,1': 1 is given more than once"),
        ("1,01", "1 is given more than once"),
        ("99999999999999999999", f"no seed; give 0 to {2**40 - 1}"),
        (str(2**40), f"{2**40} is no seed"),
        ("9" * 5000, "is no seed"),
        ("1," * 5000, "give whole numbers with commas"),
    ],
)
def test_seeds_that_cannot_be_are_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_seeds(text)
    assert len(str(caught.value)) < 200


def test_the_largest_seed_is_one_that_the_client_takes() -> None:
    assert parse_seeds(f"0,{2**40 - 1},007") == (0, 2**40 - 1, 7)
    assert BenchOptions("http://127.0.0.1:1", seed=MOST_SEED).seed == 2**40 - 1
    with pytest.raises(BenchError, match="seed"):
        BenchOptions("http://127.0.0.1:1", seed=MOST_SEED + 1)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"duration_s": 0.0}, "duration_s is 0; it must be 1 to 86400"),
        ({"duration_s": float("nan")}, "duration_s is nan"),
        ({"warmup_s": -1.0}, "warmup_s is -1"),
        ({"lag_limit_ms": 0.0}, "lag_limit_ms is 0"),
        ({"levels": ()}, "there is no level"),
        ({"duration_s": float("inf")}, "duration_s is inf"),
        ({"seeds": ()}, "there is no seed"),
        ({"seeds": (1, 1)}, "1 is given more than once"),
        ({"loads": ()}, "there is no load"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(changed: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SweepOptions(**{"levels": (1.0,), **changed})


def test_a_short_sweep_is_called_reduced() -> None:
    assert SweepOptions((1.0,), duration_s=59.0).reduced
    assert not SweepOptions((1.0,), duration_s=60.0).reduced
    assert SweepOptions((1.0, 2.0), seeds=(1, 2, 3), duration_s=60.0, warmup_s=10.0).longest_s == (
        2 * 2 * 3 * 70
    )


def test_the_largest_passing_level_is_below_the_first_that_failed() -> None:
    rows = [level_row(1), level_row(2), level_row(4, is_passed=False), level_row(8)]
    assert largest_passing(rows, "generating") == 2
    assert largest_with_margin(rows, "generating") == 1
    assert not never_failed(rows, "generating")


def test_a_level_passes_only_with_every_seed() -> None:
    rows = [level_row(1), level_row(1, seed=2), level_row(2), level_row(2, is_passed=False, seed=2)]
    assert largest_passing(rows, "generating") == 1
    assert largest_with_margin(rows, "generating") == 0


def test_where_no_level_passes_the_largest_is_none() -> None:
    rows = [level_row(1, is_passed=False)]
    assert largest_passing(rows, "generating") == largest_with_margin(rows, "generating") == 0
    assert not never_failed(rows, "generating")


def test_the_two_loads_are_never_mixed() -> None:
    rows = [level_row(1), level_row(2), level_row(1, load="listening", is_passed=False)]
    assert largest_passing(rows, "generating") == 2
    assert never_failed(rows, "generating")
    assert largest_passing(rows, "listening") == 0
    assert not never_failed([], "generating")


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_all_levels_up_to_the_largest_passed_and_the_next_did_not(passed: list[bool]) -> None:
    rows = [level_row(n, is_passed=p) for n, p in enumerate(passed, 1)]
    largest = int(largest_passing(rows, "generating"))
    assert all(passed[:largest])
    assert largest == len(passed) or not passed[largest]
    assert largest_with_margin(rows, "generating") == max(0, largest - 1)


def test_a_level_at_which_the_client_was_late_is_named() -> None:
    rows = [
        level_row(1),
        level_row(2, client_valid=False, client_reasons=("level 2: loop lag p99 is 9 ms",)),
    ]
    assert client_faults(rows) == ["generating, seed 1, level 2: loop lag p99 is 9 ms"]


def test_a_row_comes_back_from_json_as_it_was() -> None:
    row = level_row(3, is_passed=False)
    assert row_from(json.loads(json.dumps(asdict(row)))) == row
