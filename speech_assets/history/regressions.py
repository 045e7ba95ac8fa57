"""What has become worse since the last run, by more than runs differ anyway.

Streams, times and rates: beyond their noise, which `noise_of` takes from earlier runs, from seeds
within a run, or, while there are too few, from a stated share. WER: a paired interval over the
sentences that is above zero as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.history.figures import at_level, figures_table, spread
from speech_assets.load.levels import LOADS, largest_passing, row_from
from speech_assets.quality.clip_scores import ClipScore
from speech_assets.quality.figures import difference_figures
from speech_assets.quality.noise import points
from speech_assets.quality.resampling import MIN_SENTENCES
from speech_assets.results.amounts import amount, is_share

if TYPE_CHECKING:
    from speech_assets.history.comparable import Stored
    from speech_assets.history.figures import Varied
    from speech_assets.load.levels import Load

SLOWER_IS_WORSE = (
    "ttfa_ms_p50", "ttfa_ms_p95", "ttfs_ms_p50", "ttfs_ms_p95", "rtf_p50", "rtf_p95",
)  # fmt: skip
"""Of a level; compared at the lowest, and at the largest that passed in the last run."""
MORE_IS_BETTER = ("tokens_per_s",)
UNDERSTOOD = ("wer_format_insensitive", "wer")
LEAST_N_P95 = 40
USUAL_SHARE = 0.25
"""Noise while there are fewer runs than `ENOUGH_RUNS`: two runs of the same server on two shared
cores differed by 24 % in RTF p50 and by 20 % in TTFA p50 (results/server/amd-epyc)."""
LEAST_SHARE = 0.02
"""No less is taken for worse, however alike earlier runs are."""
ENOUGH_RUNS = 4
T_99 = {3: 4.541, 4: 3.747, 5: 3.365, 6: 3.143, 7: 2.998}
"""Student's t by degrees of freedom, 99 % one-sided (tables of any textbook)."""


@dataclass(frozen=True, slots=True)
class Regression:
    """One figure that is worse than in the last run: `now` instead of `before`, beyond `noise`.

    `noise` has the figure's unit; `why` says what it was taken from.
    """

    figure: str
    before: float
    now: float
    noise: float
    unit: str
    why: str

    @property
    def line(self) -> str:
        """One line of it."""
        now, before, noise = (
            amount(self.figure, value, self.unit) for value in (self.now, self.before, self.noise)
        )
        if is_share(self.figure, self.unit):  # A difference of percentages is none itself.
            noise = f"{noise.removesuffix(' %')} points"
        return f"{self.figure}: {now}, before {before} (noise {noise}: {self.why})"


@dataclass(frozen=True, slots=True)
class Noise:
    """By how much a figure may be worse without meaning anything, and what says so."""

    amount: float
    why: str


def regressions(earlier: Sequence[Stored], current: Stored) -> list[Regression]:
    """What is worse in `current` than in the last of `earlier`, which are comparable, oldest first.

    Empty where there is nothing to compare with, and for kinds that are not judged.
    """
    if not earlier:
        return []
    if current["kind"] == "wer":
        return _understood(earlier[-1], current)
    before, now = (spread(figures_table(results)) for results in (earlier, [current]))
    if current["kind"] == "load_tests":
        names = _level_figures(earlier[-1])
        return [*_streams(before, now), *_worse(before, now, names, more_is_better=False)]
    if current["kind"] == "decode_speed":
        return _worse(before, now, MORE_IS_BETTER, more_is_better=True)
    return []


def shared_sentences(previous: Stored, current: Stored) -> int | None:
    """How many sentences two results have clips of with the same seeds; None: of other kinds.

    Fewer than `MIN_SENTENCES` can show nothing, whatever was heard.
    """
    if current["kind"] != "wer":
        return None
    ours, theirs = ({score.key for score in _scores(result)} for result in (current, previous))
    return len({sentence for sentence, _, _ in ours & theirs})


def noise_of(before: float, deviation: float, runs: int, ranges: Sequence[float]) -> Noise:
    """The noise of a figure whose last value was `before`.

    From `ENOUGH_RUNS` earlier `runs` on it is t * sqrt(2) * `deviation` (of a sample): about 99 %
    of differences of two runs are below. With fewer it is `USUAL_SHARE` of `before`. It is never
    less than one of `ranges`, by which the figure varied within a run or between the few.
    """
    if runs < ENOUGH_RUNS:
        noise = Noise(
            USUAL_SHARE * abs(before),
            f"{USUAL_SHARE:.0%} while there are fewer than {ENOUGH_RUNS} earlier runs",
        )
    else:
        t = T_99[min(runs - 1, max(T_99))]
        noise = Noise(t * math.sqrt(2) * deviation, f"{runs} earlier runs")
    least = LEAST_SHARE * abs(before)
    if noise.amount < least:
        noise = Noise(least, f"no less than {LEAST_SHARE:.0%}")
    widest = max(ranges, default=0.0)
    if noise.amount < widest:
        noise = Noise(widest, "the range within a run or of the few there are")
    return noise


def _worse(
    before: Mapping[str, Varied],
    now: Mapping[str, Varied],
    names: Sequence[str],
    *,
    more_is_better: bool,
) -> list[Regression]:
    """Figures of those names that are worse; those that one of the two runs lacks are left out."""
    last_run = max(varied.run for varied in before.values())
    found: list[Regression] = []
    for name in names:
        old, new = before.get(name), now.get(name)
        if old is None or new is None or old.run != last_run:
            continue
        if "_p95" in name and min(old.n, new.n) < LEAST_N_P95:
            continue
        ranges = [side.high - side.low for side in (old, new)]
        if old.runs < ENOUGH_RUNS:
            ranges.append(old.highest - old.lowest)
        noise = noise_of(old.last, old.deviation, old.runs, ranges)
        loss = old.last - new.last if more_is_better else new.last - old.last
        if loss > noise.amount:
            found.append(Regression(name, old.last, new.last, noise.amount, old.unit, noise.why))
    return found


def _streams(before: Mapping[str, Varied], now: Mapping[str, Varied]) -> list[Regression]:
    """Loads of which fewer streams are held: a level less than in the last run and, of
    `ENOUGH_RUNS` or more, than in any."""
    found: list[Regression] = []
    for name in (f"max_realtime_streams_{load}" for load in LOADS):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            continue
        noise, why = 0.0, "a whole level"
        if old.runs >= ENOUGH_RUNS:
            noise, why = old.last - old.lowest, f"the lowest of {old.runs} earlier runs"
        if new.last < old.last - noise:
            found.append(Regression(name, old.last, new.last, noise, old.unit, why))
    return found


def _level_figures(last: Stored) -> list[str]:
    """Names of the figures to compare, by what the last run held."""
    rows = [row_from(row) for row in last["rows"]]
    loads: list[Load] = [load for load in LOADS if any(row.load == load for row in rows)]
    lowest = min(row.level for row in rows if row.load == loads[0])
    levels = {lowest, largest_passing(rows, loads[0])} - {0.0}
    return [at_level(name, loads[0], level) for level in sorted(levels) for name in SLOWER_IS_WORSE]


def _understood(previous: Stored, current: Stored) -> list[Regression]:
    """Error rates whose paired difference from the previous run is above 0, its whole interval."""
    ours, theirs = (_scores(result) for result in (current, previous))
    paired = difference_figures(ours, theirs, "previous")
    found: list[Regression] = []
    for name in UNDERSTOOD:
        figure = paired.get(f"{name}_less_previous")
        if figure is None or (figure.sentences or 0) < MIN_SENTENCES:
            continue
        if figure.ci_low is None or figure.ci_low <= 0:
            continue
        found.append(
            Regression(
                name,
                float(previous["figures"][name]["value"]),
                float(current["figures"][name]["value"]),
                figure.value - figure.ci_low,
                figure.unit,
                f"{points(figure.as_json())} over the {figure.n} clips that both have, all above 0",
            )
        )
    return found


def _scores(result: Stored) -> list[ClipScore]:
    rows: list[dict[str, Any]] = result["rows"]
    return [ClipScore.from_row(row) for row in rows]
