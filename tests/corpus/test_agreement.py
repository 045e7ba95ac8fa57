"""Agreement is counted per level by that level's slots, and limits name what is below them."""

from __future__ import annotations

import numpy as np
import pytest

from speech_assets.corpus.agreement import Agreement, limits_for


def test_levels_are_counted_by_their_slots() -> None:
    reference = np.zeros((100, 7), np.uint16)
    codes = reference.copy()
    codes[0, 0] = 1  # level 0: 1 of 100
    codes[0, 4] = 1  # level 1: 1 of 200
    codes[:2, 2] = codes[0, 6] = 1  # level 2: 3 of 400
    agreement = Agreement.empty().add(reference, codes)
    assert agreement.levels == [0.99, 0.995, 0.9925]
    assert agreement.overall == pytest.approx(1 - 5 / 700)


def test_clips_add_up() -> None:
    same = np.zeros((3, 7), np.uint16)
    agreement = Agreement.empty().add(same, same).add(same, same + 1)
    assert agreement.overall == 0.5
    assert agreement.total == (6, 12, 24)


def test_nothing_compared_is_full_agreement() -> None:
    assert Agreement.empty().overall == 1.0
    assert Agreement.empty().faults(limits_for("cpu", "fp32")) == []


def test_one_code_is_too_much_on_the_cpu_and_not_on_a_gpu() -> None:
    reference = np.zeros((1_000, 7), np.uint16)
    codes = reference.copy()
    codes[5, 3] = 7
    agreement = Agreement.empty().add(reference, codes)
    assert agreement.faults(limits_for("cpu", "fp32")) == [
        "overall 99.9857%, at least 100.00%",
        "level 2 99.9750%, at least 100.00%",
    ]
    assert agreement.faults(limits_for("cuda", "fp32")) == []


def test_a_gpu_shard_fails_on_one_bad_level_alone() -> None:
    reference = np.zeros((10_000, 7), np.uint16)
    codes = reference.copy()
    codes[:60, 0] = 1
    agreement = Agreement.empty().add(reference, codes)
    assert agreement.overall > 0.999
    assert agreement.faults(limits_for("cuda", "fp32")) == ["level 0 99.4000%, at least 99.50%"]


def test_reduced_precision_is_recorded_without_a_limit() -> None:
    reference = np.zeros((10, 7), np.uint16)
    agreement = Agreement.empty().add(reference, reference + 1)
    assert agreement.overall == 0.0
    assert agreement.faults(limits_for("cuda", "fp16")) == []


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="reference has shape"):
        Agreement.empty().add(np.zeros((2, 7), np.uint16), np.zeros((3, 7), np.uint16))
