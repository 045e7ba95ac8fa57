"""Tables of WER for pages and for the asset's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speech_assets.quality.noise import points
from speech_assets.quality.sentences import KINDS
from speech_assets.results.markdown import EMBEDDED, table

_HEADS = (
    "preset", "device", "clips", "WER", "WER, whatever the format", "CER",
    "WER less the base preset's", "the same, whatever the format", "detectable difference",
    "DNSMOS", "leading silence p50, s", "clips not spoken", "heard by", "date",
)  # fmt: skip
_METHOD = (
    "In brackets 95 % intervals by resampling sentences. *Detectable* is the difference of WER "
    "that such a set of clips finds four times in five. DNSMOS judges noise, not naturalness."
)
_MISHEARD_SHOWN = 12


def wer_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Every result of kind `wer`: how well each preset's speech is understood, by device."""
    ordered = sorted(
        results, key=lambda r: (r["device"]["name"], r["name"] != r["config"]["base"], r["name"])
    )
    rows = [_row(result) for result in ordered]
    if not rows:
        return table(_HEADS, rows)
    notes = [_METHOD]
    notes += [EMBEDDED] * any(str(r["name"]).startswith("embedded") for r in results)
    return "\n\n".join([table(_HEADS, rows), *notes])


def kinds_table(result: Mapping[str, Any]) -> str:
    """The same clips by kind of sentence: words, and the share of them that was wrong."""
    heads = ("kind", "clips", "words", "WER", "WER, whatever the format", "not spoken")
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
                f"{_sum(clips, 'word_errors') / _sum(clips, 'words'):.1%}",
                f"{_sum(clips, 'loose_word_errors') / _sum(clips, 'loose_words'):.1%}",
                str(sum(not row["spoke"] for row in clips)),
            )
        )
    return table(heads, rows)


def misheard_table(result: Mapping[str, Any]) -> str:
    """The clips that were understood worst, what was to be said beside what was heard."""
    heads = ("sentence", "seed", "to be said", "heard", "words wrong", "of", "flags")
    wrong = [row for row in result["rows"] if row["loose_word_errors"]]
    wrong.sort(key=lambda row: row["loose_word_errors"] / row["loose_words"], reverse=True)
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
                str(row["loose_word_errors"]),
                str(row["loose_words"]),
                ", ".join(row.get("flags") or ()),
            )
            for row in wrong[:_MISHEARD_SHOWN]
        ],
    )


def _row(result: Mapping[str, Any]) -> Sequence[str]:
    figures, config = result["figures"], result["config"]
    is_base = config["base"] == result["name"]
    smallest = figures.get("smallest_detectable_wer_difference")
    silence = figures.get("leading_silence_s_p50")
    return (
        result["name"] + (" (reduced)" if result["reduced"] else ""),
        result["device"]["name"],
        f"{figures['clips']['value']:g}",
        _share(figures["wer"]),
        _share(figures["wer_format_insensitive"]),
        _share(figures["cer"]),
        _less(figures.get("wer_less_base"), is_base=is_base),
        _less(figures.get("wer_format_insensitive_less_base"), is_base=is_base),
        f"{100 * smallest['value']:.1f} points" if smallest else "-",
        _mos(figures.get("dnsmos_overall")),
        f"{silence['value']:.2f}" if silence else "-",
        f"{figures['clips_not_spoken']['value']:g}",
        config["asr"],
        result["started_at"][:10],
    )


def _share(figure: Mapping[str, Any]) -> str:
    low, high = figure.get("ci_low"), figure.get("ci_high")
    between = "" if low is None or high is None else f" ({100 * low:.1f}-{100 * high:.1f})"
    return f"{figure['value']:.1%}{between}"


def _less(figure: Mapping[str, Any] | None, *, is_base: bool) -> str:
    if figure is None:
        return "base" if is_base else "not compared"
    return points(figure)


def _mos(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return "-"
    low, high = figure.get("ci_low"), figure.get("ci_high")
    between = "" if low is None or high is None else f" ({low:.2f}-{high:.2f})"
    return f"{figure['value']:.2f}{between}"


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(row[name]) for row in rows)
