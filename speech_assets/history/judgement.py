"""Whether a preset's newest result is worse than its last one, as a text and a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.history.comparable import changes, earlier
from speech_assets.history.figures import figures_table, spread
from speech_assets.history.regressions import Regression, regressions
from speech_assets.results.markdown import number, table
from speech_assets.results.stored import newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resources.store import Store
    from speech_assets.history.comparable import Stored


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became worse, in a text that says what it was compared with.

    `table` has the figures of all runs looked at, in Markdown; empty where there is one run only.
    """

    found: tuple[Regression, ...]
    text: str
    compared_runs: int = 0
    table: str = ""


def judge(store: Store, kind: str, preset: str) -> Judgement:
    """The newest stored result of that kind and preset, beside those before it on its device.

    Raises:
        ConfigError: the newest is damaged.
    """
    current = newest(store, kind, preset)
    if current is None:
        return Judgement((), f"{preset}: there is no result yet; materialize {kind} of it first")
    where = f"{preset} on {current['device']['name']}"
    if current["config"].get("client_faults"):
        return Judgement((), f"{where}: not judged, for its client was late")
    before = earlier(store, current)
    notes = [f"Not compared with {line}." for line in before.left_out]
    if not before.results:
        return Judgement((), "\n".join([f"{where}: nothing to compare with yet.", *notes]))
    last = before.results[-1]
    found = regressions(before.results, current)
    since = f"since {last['started_at']}"
    lines = [f"{where}: nothing is worse {since} beyond noise."]
    if found:
        lines = [f"{where}: worse {since} beyond noise:", *(f"- {one.line}" for one in found)]
    if changed := changes(last, current):
        lines.append(f"Changed since: {', '.join(changed)}.")
    return Judgement(
        tuple(found),
        "\n".join([*lines, *notes]),
        len(before.results),
        history_table([*before.results, current]),
    )


def history_table(results: Sequence[Stored]) -> str:
    """How each figure, those of levels among them, varied over the runs; and its last value."""
    rows = [
        [
            name,
            *(number(value) for value in (of.lowest, of.mean, of.highest, of.last)),
            of.unit,
            str(of.runs),
        ]
        for name, of in spread(figures_table(results)).items()
    ]
    return table(["figure", "lowest", "mean", "highest", "last", "unit", "runs"], rows)
