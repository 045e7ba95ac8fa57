"""A/B comparisons and codec forms: two configurations asked for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.ab.figures import MEASURES
from speech_assets.ab.verdict import opening, verdicts
from speech_assets.codec_forms.figures import decode_name
from speech_assets.report.cells import Cell, Table, figure, number, percent, points, table
from speech_assets.report.section import Section, named, run_of, source_note

if TYPE_CHECKING:
    from collections.abc import Callable

    from speech_assets.ab.figures import Measure
    from speech_assets.report.evidence import Evidence, Found


def ab_section(evidence: Evidence) -> Section:
    """A table of each A/B: both arms' figures, their difference with its interval, the verdict."""
    found = evidence.all_of("ab")
    missing = (
        "No A/B comparison is in the store. Asset `ab` makes one of each preset; by hand: "
        "`speech-ab --a PRESET --b PRESET`.",
    ) * (not found)
    return Section(
        "ab",
        "A/B",
        paragraphs=(
            "Two configurations, asked for the same sentences with the same seeds. "
            "Intervals are of 95 %, over sentences; where one holds 0, it shows no difference.",
        ),
        tables=tuple(_ab(evidence, result) for result in found),
        missing=missing,
    )


def _ab(evidence: Evidence, found: Found) -> Table:
    said = {verdict.name: verdict for verdict in verdicts(found.value)}
    rows = [
        (
            Cell(said[measure.name].title),
            figure(found, f"{measure.name}_a", _form(measure)),
            figure(found, f"{measure.name}_b", _form(measure)),
            figure(found, f"{measure.name}_difference", _change(measure), with_interval=True),
            Cell("points" if _is_rate(measure) else measure.unit.replace("ratio", "")),
            Cell(said[measure.name].outcome),
            run_of(found),
        )
        for measure in MEASURES
        if measure.name in said
    ]
    rows += [
        (
            Cell(title),
            *(figure(found, name, form) for name in names),
            Cell(unit),
            Cell(""),
            run_of(found),
        )
        for title, names, form, unit in _UNJUDGED
        if any(name in found.value["figures"] for name in names)
    ]
    heads = ("figure", "A", "B", "B less A", "unit of the difference", "so", "from")
    return Table(opening(found.value), heads, tuple(rows), (source_note(found, evidence),))


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
    ("clips not spoken", ("clips_not_spoken_a", "clips_not_spoken_b", ""), number, ""),
    ("flagged clips", ("flagged_clips_a", "flagged_clips_b", ""), number, ""),
    ("clips of the same bytes", ("", "", "same_bytes_share"), percent, ""),
    ("clips of as many samples", ("", "", "same_samples_share"), percent, ""),
    ("clips of the same transcript", ("", "", "same_transcript_share"), percent, ""),
    ("mean difference of samples", ("", "", "pcm_mean_difference"), number, "of 32768"),
    ("error of clips of one length", ("", "", "relative_error_db"), number, "dB"),
)
"""Of both together in the column of the difference: what no interval is made of."""


def codec_section(evidence: Evidence) -> Section:
    """Each form of the codec's decoder beside the whole codec in float32."""
    found = evidence.all_of("codec_checkpoint")
    missing = (
        "No codec form is in the store. Asset `codec_checkpoints` makes one; by hand: "
        "`python -m speech_assets.work.codec_checkpoint --form bf16`.",
    ) * (not found)
    heads = (
        "form", "decodes in", "file, MiB", "whole codec's file, MiB", "memory, MiB",
        "whole codec's memory, MiB", "decode, ms a second of audio", "whole codec's",
        "error, dB", "largest 16-bit step", "clips", "flagged", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(str(result.value["config"]["form"])),
            Cell(str(result.value["config"]["dtype"])),
            figure(result, "file_bytes", _mebibytes),
            figure(result, "reference_file_bytes", _mebibytes),
            figure(result, "resident_mib"),
            figure(result, "reference_resident_mib"),
            figure(result, f"{decode_name(1)}_p50"),
            figure(result, f"reference_{decode_name(1)}_p50"),
            _error(result),
            figure(result, "pcm_max_difference"),
            _clips(result),
            figure(result, "flagged_clips"),
            named(result, evidence),
        ]
        for result in found
    ]
    return Section(
        "codec",
        "Codec forms",
        paragraphs=(
            (
                "A form holds the codec's decoder alone, in the named precision. Its audio is "
                "compared with what the whole codec decodes in float32 from the same codes."
            ),
        ),
        tables=table("Forms of the codec's decoder", heads, rows),
        missing=missing,
    )


def _error(found: Found) -> Cell:
    """In decibels; "none" where the audio is the same, which has no decibels."""
    if not found.value["figures"]["relative_error"]["value"]:
        return Cell("none", 0.0, found.id, "figures.relative_error")
    return figure(found, "relative_error_db")


def _clips(found: Found) -> Cell:
    n = len(found.value["rows"])
    return Cell(str(n), float(n), found.id, "rows")


def _mebibytes(value: float) -> str:
    return number(value / 2**20)
