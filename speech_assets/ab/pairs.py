"""The same clip of both arms, beside each other: a row of the result."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from server.frames import SAMPLE_RATE_HZ
from speech_assets.codec_forms.comparison import compare_clip, decibels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from speech_assets.ab.raw import RawRow

_LARGEST = 32_767
_OF_THE_PAIR = ("sentence_id", "kind", "seed", "text")


def compare_pair(
    a: RawRow, b: RawRow, a_pcm: NDArray[np.int16], b_pcm: NDArray[np.int16]
) -> dict[str, Any]:
    """A row: what the clip is, each arm's own facts (`a`, `b`), and what differs between them.

    Differences of samples (B less A, in 16-bit steps, and relative) are over what both have from
    the start: `over_prefix` says that the lengths differ. They are None where an arm has no audio.
    Where an arm has none, or both, nothing is the same.
    Flags are of the audio by itself; clicks are jumps beyond those of the other arm.
    """
    both = bool(a.file and b.file)
    row: dict[str, Any] = {
        **{name: getattr(a, name) for name in _OF_THE_PAIR},
        "first": "a" if a.position < b.position else "b",
        "a": _side(a),
        "b": _side(b),
        "both_have_audio": both,
        "same_samples": both and a.samples == b.samples,
        "same_frames": both and a.frames == b.frames,
        "same_bytes": both and a.file_sha256 == b.file_sha256,
        "duration_difference_s": (b.samples - a.samples) / SAMPLE_RATE_HZ,
        "over_prefix": False,
        "compared_samples": 0,
        "pcm_mean_difference": None,
        "pcm_max_difference": None,
        "error_energy": None,
        "reference_energy": None,
        "relative_error_db": None,
    }
    if not row["both_have_audio"]:
        return row
    one, other = _waveform(a_pcm), _waveform(b_pcm)
    found = compare_clip("", other, one)
    error = found.relative_error
    row |= {
        "over_prefix": a.samples != b.samples,
        "compared_samples": min(a.samples, b.samples),
        "pcm_mean_difference": found.pcm_mean_difference,
        "pcm_max_difference": found.pcm_max_difference,
        "error_energy": found.error_energy,
        "reference_energy": found.reference_energy,
        # The same waveform has no decibels, and neither has one beside silence.
        "relative_error_db": decibels(error) if 0 < error < np.inf else None,
    }
    row["a"]["flags"] = list(compare_clip("", one, other).health.flags())
    row["b"]["flags"] = list(found.health.flags())
    return row


def add_transcripts(row: dict[str, Any], judged: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The row with what was heard of each arm's clip; `judged` are the fields of `a` and `b`."""
    return {
        **row,
        "a": {**row["a"], **judged["a"]},
        "b": {**row["b"], **judged["b"]},
        "same_transcript": row["both_have_audio"]
        and judged["a"]["transcript"] == judged["b"]["transcript"],
    }


def _side(raw: RawRow) -> dict[str, Any]:
    own = {name: value for name, value in asdict(raw).items() if name not in _OF_THE_PAIR}
    # A clip that was not spoken has no audio to be unhealthy.
    return {
        **own,
        "has_audio": bool(raw.file),
        "seconds": raw.samples / SAMPLE_RATE_HZ,
        "flags": [],
    }


def _waveform(pcm: NDArray[np.int16]) -> NDArray[np.float64]:
    """Full scale 1 as the server rounds it: `as_pcm` gives the same samples back."""
    return pcm.astype(np.float64) / _LARGEST
