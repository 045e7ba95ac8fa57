"""Tables of the embedded voice's published results, for README and docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speech_assets.results.markdown import table


def codec_table(results: Sequence[Mapping[str, Any]]) -> str:
    """What a codec does to recordings: resynthesised clips beside the recordings themselves."""
    heads = (
        "codec", "clips", "WER", "by voice", "WER of recordings", "CER", "DNSMOS",
        "DNSMOS of recordings", "date",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in results:
        figures = result["figures"]
        rows.append(
            (
                _name(result),
                str(figures["wer"]["n"]),
                _share(figures["wer"]),
                _by_voice(result),
                _share(figures["reference_wer"]),
                _share(figures["cer"]),
                _mos(figures.get("dnsmos_overall")),
                _mos(figures.get("reference_dnsmos_overall")),
                result["started_at"][:10],
            )
        )
    return table(heads, rows)


def speech_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Free-running speech of the held-out sentences, each voice and seed in it."""
    heads = (
        "voice", "seeds", "clips", "ended by themselves", "WER", "by voice", "WER by seed", "CER",
        "DNSMOS", "date",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in results:
        figures = result["figures"]
        by_seed = [
            f"{figure['value']:.1%}"
            for name, figure in sorted(figures.items())
            if name.startswith("wer_seed_")
        ]
        stopped = figures.get("stopped_share")
        rows.append(
            (
                _name(result),
                ", ".join(map(str, result["seeds"])),
                str(figures["wer"]["n"]),
                f"{stopped['value']:.1%}" if stopped else "",
                _share(figures["wer"]),
                _by_voice(result),
                ", ".join(by_seed),
                _share(figures["cer"]),
                _mos(figures.get("dnsmos_overall")),
                result["started_at"][:10],
            )
        )
    return table(heads, rows)


def _name(result: Mapping[str, Any]) -> str:
    return result["name"] + (" (reduced)" if result["reduced"] else "")


def _by_voice(result: Mapping[str, Any]) -> str:
    figures = result["figures"]
    voices = sorted({str(row["voice"]) for row in result["rows"]})
    return "<br>".join(f"{voice} {_share(figures[f'wer_{voice}'])}" for voice in voices)


def _share(figure: Mapping[str, Any]) -> str:
    return f"{figure['value']:.1%} ({100 * figure['ci_low']:.1f}-{100 * figure['ci_high']:.1f})"


def _mos(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['value']:.2f} ({figure['ci_low']:.2f}-{figure['ci_high']:.2f})"
