"""Quality: word error rates with intervals, by kind of sentence, and what can be told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.quality.noise import judged
from speech_assets.report.cells import (
    MISSING,
    Cell,
    figure,
    number,
    percent,
    points,
    table,
)
from speech_assets.report.charts import Chart, Dot, charts_with_data
from speech_assets.report.section import Section, named, not_measured

if TYPE_CHECKING:
    from speech_assets.report.cells import Table
    from speech_assets.report.evidence import Evidence, Found

_SHOWN = {"wer": "WER", "wer_format_insensitive": "WER, format-insensitive"}
_DIFFERENCE = "wer_less_base"


def quality_section(evidence: Evidence) -> Section:
    """WER of each preset, its difference from the first, and both by kind of sentence."""
    return Section(
        "quality",
        "Quality",
        paragraphs=(
            (
                "A server of the preset speaks the project's sentences, Whisper writes down what "
                "it hears, and the words are compared. The error is of voice and Whisper together. "
                "Format-insensitive WER takes \"4:30\", \"4.30\" and \"four thirty\" for the same. "
                "Intervals are of 95 %, over sentences. A difference smaller than the smallest "
                "that the set can detect is not shown to be one, and not shown to be none."
            ),
        ),
        charts=charts_with_data([_rates(evidence), _differences(evidence)]),
        tables=_presets(evidence) + _noise(evidence) + _kinds(evidence),
        missing=not_measured(
            evidence.without("wer"), "WER", "wer", "python -m speech_assets.work.wer --preset NAME"
        ),
    )  # fmt: skip


def _presets(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "WER", "format-insensitive", "CER", "clips", "not spoken", "flagged",
        "DNSMOS overall", "speaker similarity", "leading silence p50, s", "Whisper", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(found.value["name"]),
            figure(found, "wer", percent, with_interval=True),
            figure(found, "wer_format_insensitive", percent, with_interval=True),
            figure(found, "cer", percent, with_interval=True),
            figure(found, "clips"),
            figure(found, "clips_not_spoken"),
            figure(found, "flagged_clips"),
            figure(found, "dnsmos_overall", with_interval=True),
            figure(found, "speaker_similarity"),
            figure(found, "leading_silence_s_p50"),
            Cell(str(found.value["config"].get("asr", MISSING))),
            named(found, evidence),
        ]
        for found in evidence.all_of("wer")
    ]
    return table("What Whisper heard, by preset", heads, rows)


def _noise(evidence: Evidence) -> tuple[Table, ...]:
    """Differences beside what they must exceed."""
    heads = (
        "preset", "compared with", "WER less its, points", "format-insensitive, points",
        "WER less the previous run's, points", "between seeds, points",
        "smallest difference that shows, points", "so", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(found.value["name"]),
            Cell(_base(found)),
            figure(found, _DIFFERENCE, points, with_interval=True),
            figure(found, "wer_format_insensitive_less_base", points, with_interval=True),
            figure(found, "wer_less_previous", points, with_interval=True),
            figure(found, "wer_seed_spread", _span),
            figure(found, "smallest_detectable_wer_difference", _span),
            Cell(judged(found.value).detail),
            named(found, evidence),
        ]
        for found in evidence.all_of("wer")
    ]
    return table("Differences, and the noise that they stand in", heads, rows)


def _kinds(evidence: Evidence) -> tuple[Table, ...]:
    """WER of each kind of sentence: wrong words over words, added up over clips."""
    found = evidence.all_of("wer")
    kinds = list(dict.fromkeys(str(row.get("kind", "")) for f in found for row in f.value["rows"]))
    heads = ("kind of sentence", *(str(f.value["name"]) for f in found))
    rows = [
        [Cell(kind.replace("_", " ")), *(_kind(f, kind) for f in found)] for kind in kinds if kind
    ]
    if rows:
        links = [Cell("", links=((f.id, f.id),)) for f in found]
        rows.append([Cell("from"), *links])
    return table("WER by kind of sentence, with the words that it is of", heads, rows)


def _kind(found: Found, kind: str) -> Cell:
    rows = [row for row in found.value["rows"] if row.get("kind") == kind]
    words = sum(int(row["words"]) for row in rows)
    if not words:
        return Cell(MISSING)
    rate = sum(int(row["word_errors"]) for row in rows) / words
    place = f"rows of kind {kind}: word_errors / words"
    return Cell(f"{percent(rate)} of {words}", rate, found.id, place)


def _base(found: Found) -> str:
    base = str(found.value["config"]["base"])
    return base if base != found.value["name"] else MISSING


def _rates(evidence: Evidence) -> Chart:
    dots = [
        Dot(
            str(found.value["name"]),
            100 * known["value"],
            _times_100(known.get("ci_low")),
            _times_100(known.get("ci_high")),
            label,
        )
        for name, label in _SHOWN.items()
        for found in evidence.all_of("wer")
        if (known := found.value["figures"].get(name)) is not None
    ]
    title = "Word error rate by preset, with its 95 % interval"
    return Chart("wer", title, "% of words", dots=tuple(dots))


def _differences(evidence: Evidence) -> Chart:
    dots = [
        Dot(
            str(found.value["name"]),
            100 * known["value"],
            _times_100(known.get("ci_low")),
            _times_100(known.get("ci_high")),
        )
        for found in evidence.all_of("wer")
        if (known := found.value["figures"].get(_DIFFERENCE)) is not None
    ]
    title = f"Word error rate less that of {evidence.presets[0]}" if evidence.presets else ""
    return Chart(
        "wer-difference", title, "points", dots=tuple(dots), limit=0.0, limit_name="no difference"
    )


def _times_100(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _span(value: float) -> str:
    return number(100 * value)
