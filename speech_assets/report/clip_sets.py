"""Whether WERs of two presets are of the same clips; where not, both on those that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.report.cells import percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from speech_assets.report.evidence import Evidence, Found

    Rows = Mapping[tuple[Any, ...], Mapping[str, Any]]
    """Of each clip, by sentence and seed, what was counted."""


def clips_said(found: Found, evidence: Evidence) -> str:
    """How many clips a preset's WER is of, and how it stands to the baseline's.

    "60 clips" where both are of the same; else the WERs of both on the shared clips, or why they
    are not comparable.
    """
    ours, base_name = _rows(found), str(found.value["config"]["base"])
    n = len(found.value["rows"])
    said = f"{n} clip{'s' * (n != 1)}"
    if base_name == found.value["name"]:
        return said
    base = evidence.of("wer", base_name)
    if base is None:
        return f"{said}; {base_name} was not measured"
    if base.value["config"].get("asr") != found.value["config"].get("asr"):
        return f"{said}; not comparable with {base_name}: another Whisper heard it"
    theirs = _rows(base)
    shared = ours.keys() & theirs.keys()
    if not shared:
        return f"{said}; not comparable with {base_name}: they have no clip in common"
    if ours.keys() == theirs.keys():
        return said
    own, other = (_rate(rows[key] for key in shared) for rows in (ours, theirs))
    if own is None or other is None:
        return f"{said}; not comparable with {base_name}: no words in common clips"
    return (
        f"{said}, not those of {base_name}; on the {len(shared)} that both have WER is "
        f"{percent(own)}, {base_name}'s {percent(other)}"
    )


def are_of_the_same_clips(results: Iterable[Found]) -> bool:
    """Whether all are of the very same sentences and seeds."""
    return len({frozenset(_rows(found)) for found in results}) <= 1


def _rows(found: Found) -> Rows:
    return {
        (row.get("sentence_id"), row.get("text"), row.get("seed")): row
        for row in found.value["rows"]
    }


def _rate(rows: Iterable[Mapping[str, Any]]) -> float | None:
    counted = [(int(row["word_errors"]), int(row["words"])) for row in rows]
    words = sum(of for _, of in counted)
    return sum(wrong for wrong, _ in counted) / words if words else None
