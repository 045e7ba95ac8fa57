"""Quality: word error rates with intervals, by kind of sentence, and what can be told apart."""

from __future__ import annotations

from dataclasses import replace
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
from speech_assets.report.clip_sets import are_of_the_same_clips, clips_said
from speech_assets.report.marks import marked_name
from speech_assets.report.section import Section, named, not_measured

if TYPE_CHECKING:
    from speech_assets.report.cells import Table
    from speech_assets.report.evidence import Evidence, Found

_SHOWN = {"wer": "WER of samples", "wer_format_insensitive": "WER, format-insensitive"}
_DIFFERENCE = "wer_less_base"


_NOISE = (
    "*Detectable difference*: how large a true difference of format-insensitive WER must be for "
    "such a set of clips to find it four times in five. Whether one was found, the interval says: "
    "it does not hold 0. Differences are over the clips that both presets have. *Between seeds*: "
    "the highest WER of a seed less the lowest, of the preset itself."
)
_SOUND = (
    "*DNSMOS* is a network's guess at how clean the sound is, from 1 to 5; it does not judge "
    "naturalness. *Speaker similarity* is the cosine of a speaker encoder's embeddings of the clip "
    "and the first preset's of the same sentence and seed; read it beside that of two clips of "
    "the first preset itself. *Leading silence* is the model's own, before a server trims it. "
    "*Flagged* clips have a fault of the signal; clicks are sought beside the first preset's same "
    "clip, so that none are sought in the first preset itself."
)
_OTHER_CLIPS = (
    "The presets were not asked for the same clips, so that columns do not compare; the table of "
    "differences does."
)


def quality_section(evidence: Evidence) -> Section:
    """WER of each preset, its difference from the first, and both by kind of sentence."""
    return Section(
        "quality",
        "Quality",
        paragraphs=(
            (
                "A server of the preset speaks the project's sentences, Whisper writes down what "
                "it hears, and the words are compared. The error is of voice and Whisper together. "
                'Format-insensitive WER takes "4:30", "4.30" and "four thirty" for the same, '
                "and is what presets are judged by. Intervals are of 95 %, over sentences."
            ),
        ),
        charts=charts_with_data([_rates(evidence), _differences(evidence)]),
        tables=_words(evidence) + _noise(evidence) + _sound(evidence) + _kinds(evidence),
        missing=not_measured(
            evidence.without("wer"),
            "WER",
            "wer",
            ".venv/bin/python -m speech_assets.work.wer --preset NAME",
        ),
    )


def _words(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "WER of samples", "format-insensitive", "CER", "clips", "not spoken", "Whisper",
        "from",
    )  # fmt: skip
    rows = [
        [
            Cell(found.value["name"]),
            figure(found, "wer", percent, with_interval=True),
            figure(found, "wer_format_insensitive", percent, with_interval=True),
            figure(found, "cer", percent, with_interval=True),
            replace(figure(found, "clips"), note=_only_of(clips_said(found, evidence))),
            figure(found, "clips_not_spoken"),
            Cell(str(found.value["config"].get("asr", MISSING))),
            named(found, evidence),
        ]
        for found in evidence.all_of("wer")
    ]
    return table("Words: what Whisper heard, by preset", heads, rows)


def _only_of(said: str) -> str:
    """What follows the number of clips, which stands there already."""
    return said.partition(" clip")[2].removeprefix("s").lstrip(",; ")


def _sound(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "DNSMOS overall", "speaker similarity", "of two clips of the first preset",
        "less that", "leading silence p50, s", "flagged clips", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(found.value["name"]),
            figure(found, "dnsmos_overall", with_interval=True),
            *_voices(found),
            figure(found, "leading_silence_s_p50"),
            figure(found, "flagged_clips"),
            named(found, evidence),
        ]
        for found in evidence.all_of("wer")
    ]
    return table("Sound: the signal and the voice, by preset", heads, rows, (_SOUND,))


def _voices(found: Found) -> tuple[Cell, Cell, Cell]:
    """How alike the voice is to the first preset's, how alike two clips of that are, the rest."""
    if found.value["config"]["base"] == found.value["name"]:
        own = figure(found, "speaker_similarity", _cosine, with_interval=True)
        return Cell(MISSING), own, Cell(MISSING)
    return (
        figure(found, "speaker_similarity", _cosine, with_interval=True),
        figure(found, "speaker_similarity_yardstick", _cosine, with_interval=True),
        figure(found, "speaker_similarity_less_base", _change_of_cosine, with_interval=True),
    )


def _noise(evidence: Evidence) -> tuple[Table, ...]:
    """Differences beside what they must exceed."""
    heads = (
        "preset", "compared with", "WER less its, points", "format-insensitive, points",
        "WER less the previous run's, points", "between seeds, points",
        "detectable difference, points", "what it shows", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(found.value["name"]),
            Cell(_base(found)),
            figure(found, _DIFFERENCE, points, with_interval=True),
            figure(found, "wer_format_insensitive_less_base", points, with_interval=True),
            figure(found, "wer_less_previous", points, with_interval=True),
            figure(found, "wer_seed_spread", _span),
            figure(found, "smallest_detectable_wer_format_insensitive_less_base", _span),
            Cell(judged(found.value).detail, result=found.id),
            named(found, evidence),
        ]
        for found in evidence.all_of("wer")
    ]
    return table("Differences of words, beside what chance does", heads, rows, (_NOISE,))


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
    notes = (_OTHER_CLIPS,) * (not are_of_the_same_clips(found))
    caption = "WER of samples by kind of sentence, with the words that it is of"
    return table(caption, heads, rows, notes)


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
    results = evidence.all_of("wer")
    is_one_set = are_of_the_same_clips(results)
    dots = [
        Dot(
            marked_name(found) + f" ({known['n']} clips)" * (not is_one_set),
            100 * known["value"],
            _times_100(known.get("ci_low")),
            _times_100(known.get("ci_high")),
            label,
        )
        for name, label in _SHOWN.items()
        for found in results
        if (known := found.value["figures"].get(name)) is not None
    ]
    title = "Word error rate by preset, with its 95 % interval"
    return Chart("wer", title, "% of words", dots=tuple(dots))


def _differences(evidence: Evidence) -> Chart:
    dots = [
        Dot(
            marked_name(found),
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


def _cosine(value: float) -> str:
    return f"{value:.3f}"


def _change_of_cosine(value: float) -> str:
    return f"{value:+.3f}"


def _span(value: float) -> str:
    return number(100 * value)
