"""Figures of a comparison: each arm's, and B less A with the interval over sentences.

`<name>_a` and `<name>_b` are of the arms, `<name>_difference` is B less A. `n` is the pairs of
clips that are counted. An interval is of 10,000 resamples of their sentences, a sentence with its
seeds and both arms together (`quality.resampling`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speech_assets.ab.raw import RawArm
from speech_assets.codec_forms.comparison import decibels
from speech_assets.quality.noise import DECIDING
from speech_assets.quality.resampling import (
    Estimate,
    counts_of,
    interval,
    paired_difference,
)
from speech_assets.results.result import Figure

Side = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Measure:
    """A rate that both arms have: sum of `amount` over sum of `out_of`, of a clip's arm.

    Attributes:
        name, unit, title: `title` is how a table calls it.
        less_is_better: None where more and less are neither.
        needs_audio: only of clips that have audio in both arms; else one without it counts, too.
        is_time: it depends on what else takes the machine's cores (`ab.waiting`).
    """

    name: str
    title: str
    unit: str
    amount: Callable[[Side], float | None]
    out_of: Callable[[Side], float]
    less_is_better: bool | None = True
    needs_audio: bool = True
    is_time: bool = False


def _one(_: Side) -> float:
    return 1.0


MEASURES: tuple[Measure, ...] = (
    Measure(
        "wer", "WER", "share", lambda s: s["word_errors"], lambda s: s["words"], needs_audio=False
    ),
    Measure(
        "wer_format_insensitive", "WER, format-insensitive", "share",
        lambda s: s["format_insensitive_word_errors"], lambda s: s["format_insensitive_words"],
        needs_audio=False,
    ),
    # To arm A; in A itself of two of its clips (ab.voices). More is not better: bytes are the same.
    Measure(
        "speaker_similarity", "speaker similarity to A", "cosine",
        lambda s: s["speaker_similarity"], _one, None,
    ),
    Measure("duration_s", "duration of a clip", "s", lambda s: s["seconds"], _one, None),
    Measure("lm_ms", "language model a clip", "ms", lambda s: s["lm_ms"], _one, is_time=True),
    Measure(
        "lm_ms_per_step", "language model a step", "ms",
        lambda s: s["lm_ms"], lambda s: s["lm_steps"], is_time=True,
    ),
    Measure("decode_ms", "codec a clip", "ms", lambda s: s["decode_ms"], _one, is_time=True),
    Measure(
        "decode_ms_per_audio_s", "codec a second of audio", "ms",
        lambda s: s["decode_ms"], lambda s: s["seconds"], is_time=True,
    ),
    Measure(
        "first_audio_ms", "first audio made", "ms", lambda s: s["first_audio_ms"], _one,
        is_time=True,
    ),
    Measure("wall_ms", "whole answer", "ms", lambda s: s["wall_ms"], _one, is_time=True),
    Measure(
        "rtf", "RTF of the whole answer", "ratio",
        lambda s: s["wall_ms"] / 1e3, lambda s: s["seconds"], is_time=True,
    ),
)  # fmt: skip
"""Rates a step or a second of audio compare arms that say the same with other tokens; times of a
clip are what a client waits."""


def ab_figures(rows: Rows, a: RawArm, b: RawArm) -> dict[str, Figure]:
    """Figures of all rows, and of the arms' memory."""
    figures = {**_parity(rows), **_audio(rows), **_waited(rows)}
    for measure in MEASURES:
        figures |= _paired(measure, rows)
    if "same_transcript" in rows[0]:
        figures["same_transcript_share"] = _same("same_transcript", rows)
    is_comparable = a.memory_measure == b.memory_measure
    if is_comparable and a.memory_mib is not None and b.memory_mib is not None:
        figures["memory_mib_a"] = Figure(a.memory_mib, "MiB")
        figures["memory_mib_b"] = Figure(b.memory_mib, "MiB")
        figures["memory_added_mib"] = Figure(b.memory_mib - a.memory_mib, "MiB")
    return figures


def _parity(rows: Rows) -> dict[str, Figure]:
    n = len(rows)
    figures = {
        "clips": Figure(n, "clips"),
        "sentences": Figure(len({row["sentence_id"] for row in rows}), "sentences"),
    }
    for name in ("same_samples", "same_frames", "same_bytes"):
        figures[f"{name}_share"] = _same(name, rows)
    for letter in ("a", "b"):
        mute = sum(not row[letter]["has_audio"] for row in rows)
        flagged = sum(bool(row[letter]["flags"]) for row in rows)
        figures[f"clips_without_audio_{letter}"] = Figure(mute, "clips", n)
        figures[f"flagged_clips_{letter}"] = Figure(flagged, "clips", n)
    return figures


def _same(name: str, rows: Rows) -> Figure:
    """Of clips that have audio in an arm, the share that are the same: of none it is 0, n is 0.

    Two arms that both gave nothing are not alike, and one that gave nothing differs.
    """
    spoken = [row for row in rows if row["a"]["has_audio"] or row["b"]["has_audio"]]
    n = len(spoken)
    return Figure(sum(row[name] for row in spoken) / n if n else 0.0, "share", n)


def _audio(rows: Rows) -> dict[str, Figure]:
    """Differences of samples, of clips of one length; of others only how many they are."""
    heard = [row for row in rows if row["both_have_audio"]]
    alike = [row for row in heard if not row["over_prefix"]]
    figures = {"clips_of_other_length": Figure(len(heard) - len(alike), "clips", len(rows))}
    if not alike:
        return figures
    n, samples = len(alike), sum(row["compared_samples"] for row in alike)
    steps = sum(row["pcm_mean_difference"] * row["compared_samples"] for row in alike)
    largest = max(row["pcm_max_difference"] for row in alike)
    figures["pcm_mean_difference"] = Figure(steps / samples, "of 32768", n)
    figures["pcm_max_difference"] = Figure(largest, "of 32768", n)
    error, reference = (sum(r[k] for r in alike) for k in ("error_energy", "reference_energy"))
    if error > 0 and reference > 0:  # The same waveform has no decibels.
        figures["relative_error_db"] = Figure(decibels(math.sqrt(error / reference)), "dB", n)
    return figures


def _waited(rows: Rows) -> dict[str, Figure]:
    """Of each arm, the share of its threads' time in which they had no core; none if not known."""
    figures: dict[str, Figure] = {}
    for letter in ("a", "b"):
        known = [s for row in rows if (s := row[letter]).get("waited_s") is not None]
        waited_s, ran_s = (sum(side[name] for side in known) for name in ("waited_s", "ran_s"))
        if waited_s + ran_s > 0:
            share = waited_s / (waited_s + ran_s)
            figures[f"waited_share_{letter}"] = Figure(share, "share", len(known))
    return figures


def _paired(measure: Measure, rows: Rows) -> dict[str, Figure]:
    """The rate of each arm and their difference; nothing where no clip of both has it."""
    taken: list[tuple[int, dict[str, tuple[float, float]]]] = []
    for row in rows:
        if measure.needs_audio and not row["both_have_audio"]:
            continue
        sides = {letter: _pair(measure, row[letter]) for letter in ("a", "b")}
        found = {letter: side for letter, side in sides.items() if side is not None}
        if len(found) == 2:
            taken.append((row["sentence_id"], found))
    if not taken:
        return {}
    of_arm = {
        letter: counts_of((sentence, *sides[letter]) for sentence, sides in taken)
        for letter in ("a", "b")
    }
    difference = paired_difference(of_arm["b"], of_arm["a"])
    estimates = {
        f"{measure.name}_a": interval(of_arm["a"]),
        f"{measure.name}_b": interval(of_arm["b"]),
        f"{measure.name}_difference": difference,
    }
    figures = {name: _figure(found, measure.unit, len(taken)) for name, found in estimates.items()}
    if measure.name == DECIDING and difference.smallest_detectable is not None:
        smallest = Figure(
            difference.smallest_detectable, measure.unit, len(taken), sentences=difference.sentences
        )
        figures[f"smallest_detectable_{measure.name}_less_a"] = smallest
    return figures


def _pair(measure: Measure, side: Side) -> tuple[float, float] | None:
    """Amount and what it is out of; None where the arm's clip has neither."""
    try:
        amount, out_of = measure.amount(side), measure.out_of(side)
    except KeyError:
        return None  # Nobody listened for words, or for voices.
    return None if amount is None or out_of <= 0 else (float(amount), float(out_of))


def _figure(found: Estimate, unit: str, pairs: int) -> Figure:
    return Figure(found.value, unit, pairs, found.low, found.high, found.sentences)
