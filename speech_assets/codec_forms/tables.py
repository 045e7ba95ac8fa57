"""Table of codec forms: what each costs and changes beside the codec that it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.codec_forms.figures import decode_name
from speech_assets.results.markdown import number, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MISSING = "-"
_ROWS = (1, 8)


def codec_forms_table(results: Sequence[Mapping[str, Any]]) -> str:
    """A row of each form on each device, arm B; where two figures stand, "A -> B"."""
    heads = (
        "form", "codec", "device", "decodes in", "file, MiB", "loaded weights, MiB",
        "memory with decoder, MiB", "peak, MiB", "load p50, ms",
        *(f"decode, ms a second of audio, {rows} {_noun(rows)}" for rows in _ROWS),
        "error, dB", "of the form alone, dB", "16-bit steps: mean", "largest", "clips", "audio",
        "date",
    )  # fmt: skip
    cells = [
        (
            result["config"]["form"] + (" (reduced)" if result["reduced"] else ""),
            result["config"]["parent"]["name"],
            result["device"]["name"],
            result["config"]["dtype"],
            _both(result, "file_bytes", 1 << 20),
            _both(result, "weights_bytes", 1 << 20),
            _both(result, "resident_mib"),
            _both(result, "peak_mib"),
            _both(result, "load_ms_p50"),
            *(_both(result, f"{decode_name(rows)}_p50") for rows in _ROWS),
            _error(result, ""),
            _error(result, "form_"),
            _one(result, "pcm_mean_difference"),
            _one(result, "pcm_max_difference"),
            str(len(result["rows"])),
            _verdict(result),
            result["started_at"][:10],
        )
        for result in results
    ]
    return table(heads, cells)


def _noun(rows: int) -> str:
    return "row" if rows == 1 else "rows"


def _both(result: Mapping[str, Any], name: str, scale: float = 1.0) -> str:
    return f"{_one(result, f'reference_{name}', scale)} -> {_one(result, name, scale)}"


def _one(result: Mapping[str, Any], name: str, scale: float = 1.0) -> str:
    if name not in result["figures"]:
        return _MISSING
    value = result["figures"][name]["value"] / scale
    return number(value)


def _error(result: Mapping[str, Any], prefix: str) -> str:
    if result["figures"][f"{prefix}relative_error"]["value"] == 0:
        return "none"
    return f"{result['figures'][f'{prefix}relative_error_db']['value']:.1f}"


def _verdict(result: Mapping[str, Any]) -> str:
    """What is wrong with the form's audio and not with its parent's."""
    flags = sorted({flag for row in result["rows"] for flag in row["flags"]})
    if result["figures"]["sample_count_mismatches"]["value"]:
        flags.append("sample counts differ")
    return ", ".join(flags) or "healthy"
