"""A ladder's climb: what a step follows, what is adopted, and which step is the best at last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from speech_assets.errors import ConfigError
from speech_assets.load.ladder import Ladder, Step
from speech_assets.load.levels import LevelRow
from speech_assets.work.ladder import climb
from speech_assets.work.ladder_trials import Trial

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class Measurements:
    """Trials whose figures are given: streams held and TTFA of each step."""

    given: Mapping[str, tuple[int, float] | str]
    settings: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def measure(self, name: str, settings: Mapping[str, Any]) -> Trial:
        self.settings[name] = dict(settings)
        found = self.given[name]
        if isinstance(found, str):
            return Trial(name, settings, impossible=found)
        streams, ttfa_ms = found
        figures = {"ttfa_ms_p50": {"value": ttfa_ms, "unit": "ms", "n": 50}}
        levels = tuple(
            LevelRow("generating", level, 1, level <= streams, (), 9, 9, 9, 0, 0, 9.0, True,
                     figures=figures)
            for level in (1, 2, 3)
        )  # fmt: skip
        return Trial(name, settings, levels=levels)

    def say(self, message: str) -> None:
        pass


def climbed(
    steps: list[Step], given: Mapping[str, tuple[int, float] | str]
) -> tuple[dict[str, str], str, Measurements]:
    ladder = Ladder("small", "embedded-bf16", {"largest_hop": 1}, tuple(steps), (1, 2, 3), 2, 0)
    measurements = Measurements(given)
    rows, best = climb(ladder, measurements)  # pyright: ignore[reportArgumentType]
    return {row["name"]: row["outcome"] for row in rows}, best, measurements


HOPS = Step("hops", "largest_hop", 4)


def test_each_step_changes_the_best_before_it() -> None:
    steps = [HOPS, Step("full", "head", "full"), Step("first", "first_chunk_frames", 2)]
    given = {"baseline": (1, 300), "hops": (2, 300), "full": (1, 300), "first": (2, 200)}
    outcomes, best, measurements = climbed(steps, given)
    assert outcomes == {
        "baseline": "baseline", "hops": "adopted", "full": "rejected", "first": "adopted"
    }  # fmt: skip
    assert best == "first"
    assert measurements.settings["first"] == {"largest_hop": 4, "first_chunk_frames": 2}


def test_a_step_that_beats_what_it_follows_but_not_the_best_is_not_adopted() -> None:
    two = Step("two", "largest_hop", 2, follows="baseline")
    given = {"baseline": (1, 300), "hops": (2, 300), "two": (1, 100)}
    outcomes, best, measurements = climbed([HOPS, two], given)
    assert outcomes == {"baseline": "baseline", "hops": "adopted", "two": "rejected"}
    assert best == "hops"
    assert measurements.settings["two"] == {"largest_hop": 2}


def test_a_step_that_beats_what_it_follows_and_the_best_takes_over() -> None:
    two = Step("two", "head", "full", follows="baseline")
    given = {"baseline": (1, 300), "hops": (2, 300), "two": (3, 300)}
    outcomes, best, _ = climbed([HOPS, two], given)
    assert outcomes == {"baseline": "baseline", "hops": "superseded", "two": "adopted"}
    assert best == "two"


def test_what_cannot_run_changes_nothing_and_a_baseline_must() -> None:
    gpu = Step("gpu", "codec_device", "cuda", needs="cuda")
    given: dict[str, Any] = {"baseline": (1, 300), "gpu": "there is no GPU", "hops": (2, 300)}
    outcomes, best, measurements = climbed([gpu, HOPS], given)
    assert outcomes == {"baseline": "baseline", "gpu": "not possible", "hops": "adopted"}
    assert best == "hops"
    assert measurements.settings["gpu"]["device"] == "cuda"
    assert "device" not in measurements.settings["hops"]
    with pytest.raises(ConfigError, match="baseline cannot be served: no room"):
        climbed([HOPS], {"baseline": "no room"})
