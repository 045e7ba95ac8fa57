"""Whether a preset's result is worse than its last one, as a text and a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.errors import ConfigError
from speech_assets.history.comparable import changes, earlier
from speech_assets.history.figures import figures_table, spread
from speech_assets.history.regressions import Regression, regressions, shared_sentences
from speech_assets.quality.resampling import MIN_SENTENCES
from speech_assets.results.amounts import shown_number, shown_unit
from speech_assets.results.markdown import table
from speech_assets.results.provenance import utc_now
from speech_assets.results.stored import id_of, newest, read_stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resources.store import Store
    from speech_assets.history.comparable import Stored


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became worse, in a text that says what it was compared with.

    `can_tell` is False where nothing could have been found worse: there is nothing to compare with,
    or too little. `table` has the figures of all runs looked at, in Markdown; empty where there is
    one run only.
    """

    found: tuple[Regression, ...]
    text: str
    compared_runs: int = 0
    table: str = ""
    can_tell: bool = False


def judge(store: Store, kind: str, preset: str, key: str = "") -> Judgement:
    """A stored result of that kind and preset, beside those before it on its device.

    It is the one of that key. Without a key it is the newest, by the clocks that stood over the
    runs: give the key of what was just measured.

    Raises:
        ConfigError: the result is damaged, or that of the key is not there.
    """
    current = _of_key(store, key) if key else newest(store, kind, preset)
    if current is None:
        return Judgement((), f"{preset}: there is no result yet; materialize {kind} of it first")
    where = f"{preset} on {current['device']['name']}"
    if current["config"].get("client_faults"):
        return Judgement((), f"{where}: not judged, for its client was late")
    if current["status"] != "complete":
        return Judgement((), f"{where}: not judged, for it is {current['status']}")
    before = earlier(store, current)
    notes = ["It lies in the future: correct the clock."] * (current["started_at"] > utc_now())
    notes += [f"Not compared with {line}." for line in before.left_out]
    if not before.results:
        return Judgement((), "\n".join([f"{where}: nothing to compare with yet.", *notes]))
    last = before.results[-1]
    found = regressions(before.results, current)
    since = f"since {last['started_at']}"
    lines = [f"{where}: nothing is worse {since} beyond noise."]
    shared = shared_sentences(last, current)
    is_enough = shared is None or shared >= MIN_SENTENCES
    if not is_enough:
        lines = [
            f"{where}: too few sentences to tell ({shared}): it takes {MIN_SENTENCES} that the run "
            f"of {last['started_at']} has, too. Materialize samples with more, then wer."
        ]
    if found:
        lines = [f"{where}: worse {since} beyond noise:", *(f"- {one.line}" for one in found)]
    if changed := changes(last, current):
        lines.append(f"Changed since: {', '.join(changed)}.")
    return Judgement(
        tuple(found),
        "\n".join([*lines, *notes]),
        len(before.results),
        history_table([*before.results, current]),
        can_tell=is_enough,
    )


def _of_key(store: Store, key: str) -> Stored:
    try:
        return read_stored(store, id_of(key))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{store.path(key)}, which was to be judged, is not there; measure it again"
        ) from error


def history_table(results: Sequence[Stored]) -> str:
    """How each figure, those of levels among them, varied over the runs; and its last value."""
    rows = [
        [
            name,
            *(
                shown_number(name, value, of.unit)
                for value in (of.lowest, of.mean, of.highest, of.last)
            ),
            shown_unit(name, of.unit),
            str(of.runs),
        ]
        for name, of in spread(figures_table(results)).items()
    ]
    return table(["figure", "lowest", "mean", "highest", "last", "unit", "runs"], rows)
