"""Tables of comparisons: one result figure by figure, and a row of each for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.ab.figures import MEASURES
from speech_assets.ab.verdict import opening, verdicts
from speech_assets.results.markdown import number, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MISSING = "-"
_NOTED = {"better", "worse", "more", "less"}


def comparison_table(value: Mapping[str, Any]) -> str:
    """One result in Markdown: what was compared, parity, then a row of each figure of both arms."""
    heads = ("figure", "unit", "A", "B", "B less A", "95 % interval", "n", "verdict")
    said = {verdict.name: verdict.outcome for verdict in verdicts(value)}
    rows: list[Sequence[str]] = []
    for measure in MEASURES:
        if measure.name not in said:
            continue
        figures = [value["figures"][f"{measure.name}_{w}"] for w in ("a", "b", "difference")]
        is_share = measure.name.startswith("wer")
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
    return f"{opening(value)}\n\n{_parity(value)}\n\n{table(heads, rows)}"


def ab_table(results: Sequence[Mapping[str, Any]]) -> str:
    """A row of each comparison; where two figures stand, "A -> B"."""
    heads = (
        "A vs B", "device", "clips", "as many samples", "same bytes", "error, dB",
        "unhealthy clips", "same transcripts", "WER, %", "language model, ms a step",
        "codec, ms a second of audio", "whole answer, ms", "memory added, MiB", "B is", "date",
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
            _both(result, "lm_ms_per_step"),
            _both(result, "decode_ms_per_audio_s"),
            _both(result, "wall_ms"),
            _one(result, "memory_added_mib"),
            _summary(result),
            result["started_at"][:10],
        )
        for result in results
    ]
    return table(heads, cells)


def _parity(value: Mapping[str, Any]) -> str:
    """How alike the audio is, in a sentence or two."""
    n = len(value["rows"])
    counts = {
        name: round(value["figures"][f"{name}_share"]["value"] * n)
        for name in ("same_samples", "same_frames", "same_bytes")
    }
    said = (
        f"Of {n} clips {counts['same_samples']} have as many samples in both arms, "
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
        if mute := int(figures[f"clips_not_spoken_{letter}"]["value"]):
            said += f" {letter.upper()} gave no audio for {mute}."
    if "same_transcript_share" in figures:
        heard = round(figures["same_transcript_share"]["value"] * n)
        said += f" {heard} have the same transcript."
    return said


def _summary(result: Mapping[str, Any]) -> str:
    """Verdicts that say something, in a few words."""
    found = verdicts(result)
    noted = [f"{v.outcome}: {v.title}" for v in found if v.outcome in _NOTED]
    few = any(v.outcome == "too few sentences" for v in found)
    words = "; ".join(noted) or ("too few sentences" if few else "no different beyond noise")
    return f"the same configuration; {words}" if result["config"]["same_configuration"] else words


def _share(result: Mapping[str, Any], name: str) -> str:
    figure = result["figures"].get(name)
    return _MISSING if figure is None else f"{figure['value']:.0%}"


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
