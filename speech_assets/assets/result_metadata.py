"""What assets that measure show of a result on their page: what it says first, figures below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from server.frames import TOKENS_PER_FRAME
from speech_assets.results.amounts import interval, is_share, shown_number, shown_unit
from speech_assets.results.findings import finding, shortened
from speech_assets.results.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping

PLOTTED: dict[str, tuple[str, ...]] = {
    "fidelity": ("mean_kl_nats", "top1_agreement", "perplexity_difference"),
    "decode_speed": (
        "ms_per_token_p50", "tokens_per_s", "rtf", "floor_share", "peak_memory_gib", "start_s",
    ),
    "codec_checkpoint": (
        "relative_error_db", "flagged_clips", "resident_mib", "load_ms_p50",
        "decode_ms_per_audio_s_rows1_p50", "decode_ms_per_audio_s_rows8_p50",
    ),
    "load_tests": (
        "max_realtime_streams_generating", "max_realtime_streams_listening", "ttfa_ms_p50",
        "ttfs_ms_p50", "rtf_p50", "rtf_p95",
    ),
    "wer": (
        "wer", "wer_format_insensitive", "cer", "dnsmos_overall", "speaker_similarity",
        "clips_not_spoken", "flagged_clips",
    ),
    "ab": (
        "wer_format_insensitive_difference", "speaker_similarity_b", "lm_ms_per_step_difference",
        "decode_ms_per_audio_s_difference", "rtf_difference", "memory_added_mib",
    ),
}  # fmt: skip
"""By kind, the figures that are numbers on the page, so that Dagster plots them over time. Of other
kinds, all are. Every figure stands in a table, with its interval."""
_SLOT = "_slot_"


def result_metadata(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What an asset's page shows of a result: what it says, figures, device, command, in order.

    `value` is the result, `path` where it lies in the store. A number that is plotted has its unit
    in its name and as many digits as tables show; the result file has all of them.
    """
    figures: Mapping[str, Mapping[str, Any]] = value["figures"]
    plotted = PLOTTED.get(value["kind"], tuple(figures))
    said = finding(value)
    by_slot = _slots_table(figures)
    return {
        **({"finding": dg.MetadataValue.text(said)} if said else {}),
        "reduced": dg.MetadataValue.text(shortened(value) or "no"),
        "status": dg.MetadataValue.text(str(value["status"])),
        **{
            plotted_name(name, str(figures[name]["unit"])): dg.MetadataValue.float(
                plotted_number(name, float(figures[name]["value"]), str(figures[name]["unit"]))
            )
            for name in plotted
            if name in figures
        },
        "figures": dg.MetadataValue.md(_figures_table(figures)),
        **({"by_slot": dg.MetadataValue.md(by_slot)} if by_slot else {}),
        "device": dg.MetadataValue.text(str(value["device"]["name"])),
        "command": dg.MetadataValue.md(f"`{value['command']}`"),
        "result": dg.MetadataValue.path(path),
    }


def plotted_name(name: str, unit: str) -> str:
    """A figure's name with the unit of its number: "wer_percent", "ttfa_ms_p50", "rtf"."""
    return f"{name.removesuffix('_share')}_percent" if is_share(name, unit) else name


def plotted_number(name: str, value: float, unit: str) -> float:
    """Three digits that count; shares in percent."""
    return float(shown_number(name, value, unit))


def _figures_table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Every figure with its unit and interval, those of slots left out."""
    rows = [
        (
            name,
            shown_number(name, float(figure["value"]), str(figure["unit"])),
            interval(name, figure),
            shown_unit(name, str(figure["unit"])),
            str(figure.get("n", 1)),
        )
        for name, figure in figures.items()
        if _SLOT not in name
    ]
    return table(("figure", "value", "interval", "unit", "n"), rows)


def _slots_table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """A row of each slot of the frame, where figures are of slots."""
    names = list(dict.fromkeys(name.split(_SLOT)[0] for name in figures if _SLOT in name))
    if not names:
        return ""
    rows: list[tuple[str, ...]] = []
    for slot in range(TOKENS_PER_FRAME):
        of_slot = [figures.get(f"{name}{_SLOT}{slot}") for name in names]
        cells = [
            _with_interval(name, figure) if figure else ""
            for name, figure in zip(names, of_slot, strict=True)
        ]
        tokens = [str(figure["n"]) for figure in of_slot if figure]
        rows.append((str(slot), *cells, *tokens[:1]))
    return table(("slot", *(_headed(name, figures) for name in names), "tokens"), rows)


def _headed(name: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    unit = shown_unit(name, str(figures.get(name, {}).get("unit", "")))
    return name if not unit or name.endswith(f"_{unit}") else f"{name}, {unit}"


def _with_interval(name: str, figure: Mapping[str, Any]) -> str:
    between = interval(name, figure)
    shown = shown_number(name, float(figure["value"]), str(figure["unit"]))
    return shown + (f" ({between})" if between else "")
