"""The precision ladder: how fast each preset decodes, how far it strays, whether it is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.quantize.speed_tables import decision, fidelity_of, reference_of
from speech_assets.report.cells import Cell, figure, number, percent, table
from speech_assets.report.charts import Chart, Dot, charts_with_data
from speech_assets.report.headline import served
from speech_assets.report.section import Section, named, not_measured

if TYPE_CHECKING:
    from speech_assets.report.cells import Table
    from speech_assets.report.evidence import Evidence, Found


def precision_section(evidence: Evidence) -> Section:
    """Decode speed and fidelity of each preset."""
    return Section(
        "precision",
        "Precision",
        paragraphs=(
            (
                f"One stream alone, no server. A stream keeps up with its playback from "
                f"{REALTIME_TOKENS_PER_S:.2f} tokens/s on. Mean KL is how far the preset's "
                "predictions are from the base model's on what the base model said; a preset above "
                "its limit is not served."
            ),
        ),
        charts=charts_with_data([_speeds(evidence)]),
        tables=_decode_speed(evidence) + _fidelity(evidence),
        missing=not_measured(
            evidence.without("decode_speed"),
            "decode speed",
            "decode_speed",
            "python -m speech_assets.work.decode_speed --preset NAME",
        )
        + not_measured(
            evidence.without("fidelity"),
            "fidelity",
            "fidelity",
            "python -m speech_assets.work.fidelity --preset NAME",
        ),
    )


def _decode_speed(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "precision", "tokens/s (range of runs)", "ms a token p50", "RTF",
        "of the bandwidth floor", "MB read a step", "weights, GiB", "peak memory, GiB", "start, s",
        "worth serving", "from",
    )  # fmt: skip
    results = [found.value for found in evidence.all_of("decode_speed")]
    fidelities = [found.value for found in evidence.all_of("fidelity")]
    # As they were measured: what presets have become since is nothing that a result says.
    settings = {str(r["config"]["preset"]): r["config"].get("settings", {}) for r in results}
    rows: list[list[Cell]] = []
    for preset in evidence.presets:
        speed = evidence.of("decode_speed", preset)
        if speed is None:
            continue
        worth, why = decision(
            speed.value,
            reference_of(speed.value, results, settings),
            fidelity_of(speed.value, fidelities),
        )
        rows.append(
            [
                Cell(preset),
                Cell(str(speed.value["config"]["scheme"])),
                figure(speed, "tokens_per_s", with_interval=True),
                figure(speed, "ms_per_token_p50"),
                figure(speed, "rtf"),
                figure(speed, "floor_share", percent),
                figure(speed, "bytes_per_step", _megabytes),
                figure(speed, "weights_gib"),
                figure(speed, "peak_memory_gib"),
                figure(speed, "start_s"),
                Cell(worth, note=why),
                named(speed, evidence),
            ]
        )
    return table("Decode speed of one stream alone", heads, rows)


def _fidelity(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "mean KL, nats", "limit", "served", "same first choice", "perplexity",
        "less the base model's", "tokens", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(preset),
            figure(found, "mean_kl_nats", with_interval=True),
            _limit(found),
            Cell(served(found).text),
            figure(found, "top1_agreement", percent),
            figure(found, "perplexity"),
            figure(found, "perplexity_difference", with_interval=True),
            Cell(f"{found.value['figures']['mean_kl_nats']['n']:,}"),
            named(found, evidence),
        ]
        for preset in evidence.presets
        if (found := evidence.of("fidelity", preset)) is not None
    ]
    return table("Fidelity to the base model", heads, rows)


def _limit(found: Found) -> Cell:
    nats = float(found.value["config"]["limit_nats"])
    return Cell(f"{nats:g}", nats, found.id, "config.limit_nats")


def _speeds(evidence: Evidence) -> Chart:
    dots: list[Dot] = []
    for preset in evidence.presets:
        if found := evidence.of("decode_speed", preset):
            known = found.value["figures"]["tokens_per_s"]
            dots.append(Dot(preset, known["value"], known.get("ci_low"), known.get("ci_high")))
    return Chart(
        "decode-speed",
        "Tokens a second of one stream alone, with the range of its runs",
        "tokens/s",
        dots=tuple(dots),
        limit=round(REALTIME_TOKENS_PER_S, 2),
        limit_name="realtime",
    )


def _megabytes(value: float) -> str:
    return number(value / 1e6)
