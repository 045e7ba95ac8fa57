"""Tables of comparisons: one result figure by figure, and a row of each for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.ab.advice import advice
from speech_assets.ab.figures import MEASURES
from speech_assets.ab.verdict import opening, summary, verdicts
from speech_assets.ab.waiting import time_faults
from speech_assets.results.markdown import number, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MISSING = "-"
_VOID = " (does not count)"


def comparison_table(value: Mapping[str, Any]) -> str:
    """One result in Markdown: what was compared, parity, a row of each figure of both arms, and
    below them what to make of it."""
    heads = ("figure", "unit", "A", "B", "B less A", "95 % interval", "pairs of clips", "verdict")
    said = {verdict.name: verdict.outcome for verdict in verdicts(value)}
    rows: list[Sequence[str]] = []
    for measure in MEASURES:
        if measure.name not in said:
            continue
        figures = [value["figures"][f"{measure.name}_{w}"] for w in ("a", "b", "difference")]
        is_share = measure.unit == "share"
        rows.append(
            (
                measure.title,
                "%" if is_share else "" if measure.unit == "ratio" else measure.unit,
                *(number(figure["value"] * (100 if is_share else 1)) for figure in figures),
                _interval(figures[2], 100 if is_share else 1),
                str(figures[2]["n"]),
                said[measure.name],
            )
        )
    if "memory_added_mib" in value["figures"]:
        names = ("memory_mib_a", "memory_mib_b", "memory_added_mib")
        numbers = [number(value["figures"][name]["value"]) for name in names]
        measure = value["config"]["memory_measure"]
        rows.append((measure, "MiB", *numbers, _MISSING, "1", "one observation"))
    said_below = "\n".join(f"- {sentence}" for sentence in advice(value))
    return f"{opening(value)}\n\n{_parity(value)}\n\n{table(heads, rows)}\n\n{said_below}"


def ab_table(results: Sequence[Mapping[str, Any]]) -> str:
    """A row of each comparison; where two figures stand, "A -> B"."""
    heads = (
        "A vs B", "device", "clips", "as many samples", "same bytes", "error, dB",
        "unhealthy clips", "same transcripts", "WER, %", "speaker similarity to A",
        "language model, ms a step", "codec, ms a second of audio", "whole answer, ms",
        "memory added, MiB", "B is", "date",
    )  # fmt: skip
    cells = [
        (
            result["name"] + (" (reduced)" if result["reduced"] else ""),
            result["device"]["name"],
            str(len(result["rows"])),
            _share(result, "same_samples_share"),
            _share(result, "same_bytes_share"),
            _error(result),
            _both(result, "flagged_clips"),
            _share(result, "same_transcript_share"),
            _both(result, "wer", 100),
            _both(result, "speaker_similarity"),
            *(
                _both(result, name) + _VOID * bool(time_faults(result["figures"]))
                for name in ("lm_ms_per_step", "decode_ms_per_audio_s", "wall_ms")
            ),
            _one(result, "memory_added_mib"),
            summary(result),
            result["started_at"][:10],
        )
        for result in results
    ]
    return table(heads, cells)


def _parity(value: Mapping[str, Any]) -> str:
    """How alike the audio is, in a sentence or two."""
    counts = {
        name: round(figure["value"] * figure["n"])
        for name in ("same_samples", "same_frames", "same_bytes")
        for figure in [value["figures"][f"{name}_share"]]
    }
    n, heard = len(value["rows"]), value["figures"]["same_samples_share"]["n"]
    of = f"{n} clips" if n == heard else f"{n} clips ({heard} with audio)"
    said = (
        f"Of {of} {counts['same_samples']} have as many samples in both arms, "
        f"{counts['same_frames']} as many frames, {counts['same_bytes']} are the same bytes."
    )
    figures = value["figures"]
    if "relative_error_db" in figures:
        said += (
            f" Those of one length differ by {number(figures['pcm_mean_difference']['value'])} "
            f"16-bit steps in the mean and {figures['pcm_max_difference']['value']:.0f} at most, "
            f"{figures['relative_error_db']['value']:.1f} dB."
        )
    if other := int(figures["clips_of_other_length"]["value"]):
        said += f" {other} have another length: B says them otherwise, and samples are no measure."
    for letter in ("a", "b"):
        flags = sorted({flag for row in value["rows"] for flag in row[letter]["flags"]})
        if flags:
            count = int(figures[f"flagged_clips_{letter}"]["value"])
            said += f" Unhealthy in {letter.upper()}: {count} ({', '.join(flags)})."
        if mute := int(figures[f"clips_without_audio_{letter}"]["value"]):
            said += f" {letter.upper()} gave no audio for {mute}."
    if "same_transcript_share" in figures:
        figure = figures["same_transcript_share"]
        said += f" {round(figure['value'] * figure['n'])} have the same transcript."
    if "speaker_similarity_b" in figures:
        own = value["config"].get("speaker_yardstick")
        said += f" Speaker similarity is of B's clip and A's; in A, of A's clip and {own}."
    return said


def _share(result: Mapping[str, Any], name: str) -> str:
    figure = result["figures"].get(name)
    return f"{figure['value']:.0%}" if figure is not None and figure["n"] else _MISSING


def _error(result: Mapping[str, Any]) -> str:
    if "pcm_max_difference" not in result["figures"]:
        return _MISSING
    figure = result["figures"].get("relative_error_db")
    return "none" if figure is None else f"{figure['value']:.1f}"


def _both(result: Mapping[str, Any], name: str, scale: float = 1) -> str:
    arms = (_one(result, f"{name}_a", scale), _one(result, f"{name}_b", scale))
    return _MISSING if _MISSING in arms else " -> ".join(arms)


def _one(result: Mapping[str, Any], name: str, scale: float = 1) -> str:
    figure = result["figures"].get(name)
    return _MISSING if figure is None else number(figure["value"] * scale)


def _interval(figure: Mapping[str, Any], scale: float) -> str:
    if figure.get("ci_low") is None:
        return _MISSING
    return f"{number(figure['ci_low'] * scale)} to {number(figure['ci_high'] * scale)}"
