"""A/B comparisons and codec forms: two configurations asked for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.ab.advice import advice
from speech_assets.ab.figures import MEASURES
from speech_assets.ab.verdict import opening, verdicts
from speech_assets.codec_forms.figures import decode_name
from speech_assets.report.cells import MISSING, Cell, Table, figure, number, percent, points, table
from speech_assets.report.section import Section, named, run_of, source_note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from speech_assets.ab.figures import Measure
    from speech_assets.report.evidence import Evidence, Found


def ab_section(evidence: Evidence) -> Section:
    """A table of each A/B: both arms' figures, their difference with its interval, the verdict."""
    found = evidence.all_of("ab")
    missing = (
        "No A/B comparison. Asset `ab` makes one of each preset; by hand: "
        "`speech-ab --a PRESET --b PRESET`.",
    ) * (not found)
    return Section(
        "ab",
        "A/B",
        paragraphs=(
            "Two configurations, asked for the same sentences with the same seeds. "
            "Intervals are of 95 %, over sentences; where one holds 0, it shows no difference. "
            "Its WER is of the clips that the comparison itself made: it is not the *WER of "
            "samples* under [Quality](#quality), which is of other clips.",
        ),
        tables=tuple(_ab(evidence, result) for result in found),
        missing=missing,
    )


def _ab(evidence: Evidence, found: Found) -> Table:
    said = {verdict.name: verdict for verdict in verdicts(found.value)}
    rows = [
        (
            Cell(_title(measure, said[measure.name].title)),
            figure(found, f"{measure.name}_a", _form(measure)),
            figure(found, f"{measure.name}_b", _form(measure)),
            figure(found, f"{measure.name}_difference", _change(measure), with_interval=True),
            Cell("points" if _is_rate(measure) else measure.unit.replace("ratio", "")),
            Cell(said[measure.name].outcome, result=found.id),
            run_of(found),
        )
        for measure in MEASURES
        if measure.name in said
    ]
    rows += [
        (
            Cell(title),
            *(_unjudged(found, name, form) for name in names),
            Cell(unit),
            Cell(""),
            run_of(found),
        )
        for title, names, form, unit in _UNJUDGED
        if any(name in found.value["figures"] for name in names)
    ]
    heads = ("figure", "A", "B", "B less A", "unit of the difference", "what it shows", "from")
    notes = [source_note(found, evidence), *advice(found.value)]
    if _has_mute_arm(found):
        notes.append("No clip of one arm, or of both, has audio: how alike they are is not told.")
    return Table(opening(found.value), heads, tuple(rows), tuple(notes))


def _title(measure: Measure, title: str) -> str:
    """With whose words they are, of a rate of words: presets have another of that name."""
    return f"{title}, of these clips" if _is_rate(measure) else title


def _unjudged(found: Found, name: str, form: Callable[[float], str]) -> Cell:
    """A dash for how alike the arms are where one has no audio: there is nothing to compare."""
    if name.endswith("_share") and _has_mute_arm(found):
        return Cell(MISSING)
    return figure(found, name, form)


def _has_mute_arm(found: Found) -> bool:
    """Whether there is an arm of which no clip has audio."""
    figures = found.value["figures"]
    mute = (figures.get(f"clips_without_audio_{letter}") for letter in ("a", "b"))
    return any(count and count["value"] >= figures["clips"]["value"] for count in mute)


def _is_rate(measure: Measure) -> bool:
    return measure.name.startswith("wer")


def _form(measure: Measure) -> Callable[[float], str]:
    return percent if _is_rate(measure) else number


def _change(measure: Measure) -> Callable[[float], str]:
    return points if _is_rate(measure) else _signed


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value)}"


_UNJUDGED: tuple[tuple[str, tuple[str, str, str], Callable[[float], str], str], ...] = (
    ("memory", ("memory_mib_a", "memory_mib_b", "memory_added_mib"), number, "MiB"),
    ("clips without audio", ("clips_without_audio_a", "clips_without_audio_b", ""), number, ""),
    ("flagged clips", ("flagged_clips_a", "flagged_clips_b", ""), number, ""),
    ("clips of the same bytes", ("", "", "same_bytes_share"), percent, ""),
    ("clips of as many samples", ("", "", "same_samples_share"), percent, ""),
    ("clips of the same transcript", ("", "", "same_transcript_share"), percent, ""),
    ("mean difference of samples", ("", "", "pcm_mean_difference"), number, "of 32768"),
    ("error of clips of one length", ("", "", "relative_error_db"), number, "dB"),
)
"""Of both together in the column of the difference: what no interval is made of."""


_ERROR = (
    "*Error*: the energy of what differs, over that of the whole codec's audio; lower is closer, "
    "none is the same audio. *Largest 16-bit step*: how far the furthest sample is off."
)


def codec_section(evidence: Evidence) -> Section:
    """Each form of the codec's decoder beside the whole codec in float32."""
    found = evidence.all_of("codec_checkpoint")
    missing = (
        "No codec form. Asset `codec_checkpoints` makes one; by hand: "
        "`.venv/bin/python -m speech_assets.work.codec_checkpoint --form bf16`.",
    ) * (not found)
    return Section(
        "codec",
        "Codec forms",
        paragraphs=(
            (
                "A form holds the codec's decoder alone, in the named precision. Its audio is "
                "compared with what the whole codec decodes in float32 from the same codes."
            ),
        ),
        tables=_codec_audio(evidence, found) + _codec_costs(evidence, found),
        missing=missing,
    )


def _codec_audio(evidence: Evidence, found: Sequence[Found]) -> tuple[Table, ...]:
    heads = ("form", "decodes in", "error, dB", "largest 16-bit step", "clips", "flagged", "from")
    rows = [
        [
            Cell(str(result.value["config"]["form"])),
            Cell(str(result.value["config"]["dtype"])),
            _error(result),
            figure(result, "pcm_max_difference"),
            _clips(result),
            figure(result, "flagged_clips"),
            named(result, evidence),
        ]
        for result in found
    ]
    return table("The audio of each form, beside the whole codec's", heads, rows, (_ERROR,))


def _codec_costs(evidence: Evidence, found: Sequence[Found]) -> tuple[Table, ...]:
    heads = (
        "form", "file, MiB", "whole codec's", "memory, MiB", "whole codec's",
        "decode, ms a second of audio", "whole codec's", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(str(result.value["config"]["form"])),
            figure(result, "file_bytes", _mebibytes),
            _file_of_whole(result),
            figure(result, "resident_mib"),
            figure(result, "reference_resident_mib"),
            figure(result, f"{decode_name(1)}_p50"),
            figure(result, f"reference_{decode_name(1)}_p50"),
            named(result, evidence),
        ]
        for result in found
    ]
    return table("What each form takes", heads, rows)


def _error(found: Found) -> Cell:
    """In decibels; "none" where the audio is the same, which has no decibels."""
    if not found.value["figures"]["relative_error"]["value"]:
        return Cell("none", 0.0, found.id, "figures.relative_error")
    return figure(found, "relative_error_db")


def _file_of_whole(found: Found) -> Cell:
    """A dash where the whole codec came from no file: it was made up, to measure speed."""
    cell = figure(found, "reference_file_bytes", _mebibytes)
    return cell if cell.value else Cell(MISSING)


def _clips(found: Found) -> Cell:
    n = len(found.value["rows"])
    return Cell(str(n), float(n), found.id, "rows")


def _mebibytes(value: float) -> str:
    return number(value / 2**20)
