"""Speech's speed by hand-worked times: no start, no filling, no process twice."""

from __future__ import annotations

import pytest

from speech_assets.work.speech_rate import Made, Stored, steadily_made


def test_one_maker_counts_from_its_first_shard_to_its_last() -> None:
    made = steadily_made([[Stored(9.0, 600.0), Stored(11.0, 1_200.0), Stored(10.0, 600.0)]])
    assert made == Made(1_800.0, 2.0)
    assert made.hours_per_min == 15.0


def test_several_makers_count_over_one_window_that_begins_when_each_has_a_shard() -> None:
    quick = [Stored(1.0, 60.0), Stored(2.0, 60.0), Stored(4.0, 60.0)]
    late = [Stored(3.0, 60.0), Stored(6.0, 60.0)]
    assert steadily_made([quick, late]) == Made(120.0, 3.0)


def test_nothing_is_told_of_less_time_than_can_be_told_apart() -> None:
    together = [Stored(1.0, 60.0), Stored(1.0, 60.0)]
    assert steadily_made([together, [Stored(0.0, 60.0), Stored(1.001, 60.0)]], 0.02) == Made(
        60.0, 0.02
    )


def test_a_maker_of_one_shard_has_no_speed() -> None:
    with pytest.raises(ValueError, match="makers of 2, 1 shards; a speed takes two shards of each"):
        steadily_made([[Stored(1.0, 1.0), Stored(2.0, 1.0)], [Stored(1.0, 1.0)]])
