"""Tables of WER for pages and for the asset's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from speech_assets.quality.noise import DECIDING, points
from speech_assets.quality.sentences import KINDS
from speech_assets.results.markdown import EMBEDDED, INVALID, INVALID_MARK, NONE_YET, table

_WORDS = (
    "words", "device", "clips", "not spoken", "WER", "WER, format-insensitive", "CER", "heard by",
    "date",
)  # fmt: skip
_DIFFERENCES = (
    "differences", "device", "WER less the base preset's", "format-insensitive, less the same",
    "detectable difference",
)  # fmt: skip
_SOUND = (
    "sound", "device", "DNSMOS", "speaker similarity", "of two clips of the base preset",
    "leading silence p50, s",
)  # fmt: skip
_METHOD = (
    "In brackets 95 % intervals by resampling sentences. Differences are over the clips that both "
    "presets have; rates of rows with other clips do not compare. *Detectable difference* is the "
    "true difference of format-insensitive WER that such a set of clips finds four times in five; "
    "the base preset's own is a figure to plan with, if all sentences change alike. Whether one "
    "was found, the interval says. DNSMOS judges noise, not naturalness. *Leading silence* is the "
    "model's own, before a server trims it."
)
_VOICES = (
    "*Speaker similarity* is the cosine of a speaker encoder's embeddings (1 is the same), with "
    "the base preset's clip of the same sentence and seed. Read it beside that of two clips of the "
    "base preset: "
)
_NONE = "-"
_MISHEARD_SHOWN = 12


def wer_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Every result of kind `wer`, by device: how well each preset's speech is understood.

    Three tables: words, differences from the base preset, sound.
    """
    ordered = sorted(
        results, key=lambda r: (r["device"]["name"], r["name"] != r["config"]["base"], r["name"])
    )
    if not ordered:
        return NONE_YET
    tables = [
        table(heads, [[_name(r), r["device"]["name"], *row(r)] for r in ordered])
        for heads, row in ((_WORDS, _words), (_DIFFERENCES, _differences), (_SOUND, _sound))
    ]
    notes = [_METHOD]
    beside = {r["config"].get("speaker_yardstick", "") for r in results if _is_compared(r)}
    notes += [f"{_VOICES}{' or '.join(sorted(beside))}."] * bool(beside)
    notes += [INVALID] * any(_is_invalid(r) for r in results)
    notes += [EMBEDDED] * any(str(r["name"]).startswith("embedded") for r in results)
    return "\n\n".join([*tables, *notes])


def kinds_table(result: Mapping[str, Any]) -> str:
    """The same clips by kind of sentence: words, and the share of them that was wrong."""
    heads = ("kind", "clips", "words", "WER", "WER, format-insensitive", "not spoken")
    rows: list[Sequence[str]] = []
    for kind in KINDS:
        clips = [row for row in result["rows"] if row["kind"] == kind]
        if not clips:
            continue
        rows.append(
            (
                kind.replace("_", " "),
                str(len(clips)),
                str(_sum(clips, "words")),
                *(_rate(clips, form) for form in ("", "format_insensitive_")),
                str(sum(not row["spoke"] for row in clips)),
            )
        )
    return table(heads, rows)


def misheard_table(result: Mapping[str, Any]) -> str:
    """The clips that were understood worst, what was to be said beside what was heard."""
    heads = ("sentence", "seed", "to be said", "heard", "words wrong", "of", "flags")
    wrong = [row for row in result["rows"] if row["format_insensitive_word_errors"]]
    wrong.sort(
        key=lambda row: row["format_insensitive_word_errors"] / row["format_insensitive_words"],
        reverse=True,
    )
    if not wrong:
        return "Every word of every clip was understood."
    return table(
        heads,
        [
            (
                str(row["sentence_id"]),
                str(row["seed"]),
                row["text"],
                row["transcript"] or row.get("error") or "(nothing)",
                str(row["format_insensitive_word_errors"]),
                str(row["format_insensitive_words"]),
                ", ".join(row.get("flags") or ()),
            )
            for row in wrong[:_MISHEARD_SHOWN]
        ],
    )


def _words(result: Mapping[str, Any]) -> Sequence[str]:
    figures, mark = result["figures"], _mark(result)
    return (
        f"{figures['clips']['value']:g}",
        f"{figures['clips_not_spoken']['value']:g}",
        *(_share(figures[name], mark) for name in ("wer", "wer_format_insensitive", "cer")),
        result["config"]["asr"],
        result["started_at"][:10],
    )


def _differences(result: Mapping[str, Any]) -> Sequence[str]:
    figures, mark = result["figures"], _mark(result)
    is_base = result["config"]["base"] == result["name"]
    planned = figures.get(f"smallest_detectable_{DECIDING}_difference") if is_base else None
    smallest = figures.get(f"smallest_detectable_{DECIDING}_less_base", planned)
    return (
        _less(figures.get("wer_less_base"), mark, is_base=is_base),
        _less(figures.get(f"{DECIDING}_less_base"), mark, is_base=is_base),
        f"{100 * smallest['value']:.1f} points{mark}" if _is_of_any(smallest) else _NONE,
    )


def _sound(result: Mapping[str, Any]) -> Sequence[str]:
    figures, mark = result["figures"], _mark(result)
    silence = figures.get("leading_silence_s_p50")
    return (
        _value(figures.get("dnsmos_overall"), 2, mark),
        *_voices(result, mark),
        f"{silence['value']:.2f}{mark}" if _is_of_any(silence) else _NONE,
    )


def _name(result: Mapping[str, Any]) -> str:
    return str(result["name"]) + (" (reduced)" if result["reduced"] else "")


def _is_invalid(result: Mapping[str, Any]) -> bool:
    return result.get("status", "complete") != "complete"


def _mark(result: Mapping[str, Any]) -> str:
    """What follows every figure of it."""
    return f" {INVALID_MARK}" if _is_invalid(result) else ""


def _is_of_any(figure: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Whether there is a figure, and it is of anything: a share of none says nothing."""
    return figure is not None and bool(figure.get("n", 1))


def _rate(clips: Sequence[Mapping[str, Any]], form: str) -> str:
    words = _sum(clips, f"{form}words")
    return f"{_sum(clips, f'{form}word_errors') / words:.1%}" if words else _NONE


def _share(figure: Mapping[str, Any], mark: str) -> str:
    if not _is_of_any(figure):
        return _NONE
    low, high = figure.get("ci_low"), figure.get("ci_high")
    between = "" if low is None or high is None else f" ({100 * low:.1f}-{100 * high:.1f})"
    return f"{figure['value']:.1%}{between}{mark}"


def _less(figure: Mapping[str, Any] | None, mark: str, *, is_base: bool) -> str:
    if not _is_of_any(figure):
        return "base" if is_base else "not compared"
    return points(figure) + mark


def _value(figure: Mapping[str, Any] | None, digits: int, mark: str) -> str:
    if not _is_of_any(figure):
        return _NONE
    low, high = figure.get("ci_low"), figure.get("ci_high")
    between = "" if low is None or high is None else f" ({low:.{digits}f}-{high:.{digits}f})"
    return f"{figure['value']:.{digits}f}{between}{mark}"


def _voices(result: Mapping[str, Any], mark: str) -> tuple[str, str]:
    """Similarity to the base preset, whose own is a yardstick; and that of two of its clips."""
    figures = result["figures"]
    found = _value(figures.get("speaker_similarity"), 3, mark)
    if result["config"]["base"] == result["name"]:
        return ("base" if _is_compared(result) else found), found
    return found, _value(figures.get("speaker_similarity_yardstick"), 3, mark)


def _is_compared(result: Mapping[str, Any]) -> bool:
    return "speaker_similarity" in result["figures"]


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(row[name]) for row in rows)
