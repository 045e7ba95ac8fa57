"""The precision ladder: how fast each preset decodes, how far it strays, whether it is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.quantize.speed_tables import FASTER, decision, fidelity_of, reference_of
from speech_assets.report.cells import Cell, figure, number, percent, table
from speech_assets.report.charts import Chart, Dot, charts_with_data
from speech_assets.report.headline import realtime, served
from speech_assets.report.marks import marked_name
from speech_assets.report.section import Section, named, not_measured

if TYPE_CHECKING:
    from speech_assets.report.cells import Table
    from speech_assets.report.evidence import Evidence, Found


_WORTH = (
    "*Worth serving*, by one rule in this order: not realtime is a no; further from the base "
    f"model than its limit is a no; {FASTER:.2f} times the baseline's rate is a yes; as fast with "
    "fewer bytes is for memory; slower is a no. The baseline is the bf16 preset of the same model "
    "and device. Where a measurement that this needs is invalid, it is not known."
)


_FIDELITY = (
    "Both models read the same tokens and say what comes next. *Same first choice*: the share of "
    "tokens of which both hold the same most likely. *Perplexity*: among how many tokens the "
    "preset wavers, so to say; less is surer."
)


def precision_section(evidence: Evidence) -> Section:
    """Decode speed and fidelity of each preset."""
    return Section(
        "precision",
        "Precision",
        paragraphs=(
            (
                "What a preset gains and what it costs. Speed is of one stream alone, without a "
                f"server; it keeps up with its playback from {REALTIME_TOKENS_PER_S:.2f} tokens/s "
                "on. *Mean KL* is how far the preset's next-token predictions are from the base "
                "model's, 0 being the same; a server refuses a checkpoint above its limit."
            ),
        ),
        charts=charts_with_data([_speeds(evidence)]),
        tables=_decode_speed(evidence) + _cost(evidence) + _fidelity(evidence),
        missing=not_measured(
            evidence.without("decode_speed"),
            "decode speed",
            "decode_speed",
            ".venv/bin/python -m speech_assets.work.decode_speed --preset NAME",
        )
        + not_measured(
            evidence.without("fidelity"),
            "fidelity",
            "fidelity",
            ".venv/bin/python -m speech_assets.work.fidelity --preset NAME",
        ),
    )


def _decode_speed(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "precision", "tokens/s (range of runs)", "realtime", "ms a token p50",
        "of the bandwidth floor", "worth serving", "from",
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
                realtime(speed),
                figure(speed, "ms_per_token_p50"),
                figure(speed, "floor_share", percent),
                Cell(worth, note=why),
                named(speed, evidence),
            ]
        )
    return table("Decode speed of one stream alone", heads, rows, (_WORTH,))


def _cost(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "MB read a step", "weights, GiB", "peak memory, GiB", "start, s", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(preset),
            figure(speed, "bytes_per_step", _megabytes),
            figure(speed, "weights_gib"),
            figure(speed, "peak_memory_gib"),
            figure(speed, "start_s"),
            named(speed, evidence),
        ]
        for preset in evidence.presets
        if (speed := evidence.of("decode_speed", preset)) is not None
    ]
    return table("What a preset takes", heads, rows)


def _fidelity(evidence: Evidence) -> tuple[Table, ...]:
    heads = (
        "preset", "mean KL, nats", "limit", "allowed to be served", "same first choice",
        "perplexity",
        "less the base model's", "tokens", "from",
    )  # fmt: skip
    rows = [
        [
            Cell(preset),
            figure(found, "mean_kl_nats", with_interval=True),
            _limit(found),
            Cell(served(found).text, result=found.id),
            figure(found, "top1_agreement", percent),
            figure(found, "perplexity"),
            figure(found, "perplexity_difference", with_interval=True),
            Cell(f"{found.value['figures']['mean_kl_nats']['n']:,}"),
            named(found, evidence),
        ]
        for preset in evidence.presets
        if (found := evidence.of("fidelity", preset)) is not None
    ]
    return table("Fidelity to the base model", heads, rows, (_FIDELITY,))


def _limit(found: Found) -> Cell:
    nats = float(found.value["config"]["limit_nats"])
    return Cell(f"{nats:g}", nats, found.id, "config.limit_nats")


def _speeds(evidence: Evidence) -> Chart:
    dots: list[Dot] = []
    for preset in evidence.presets:
        if found := evidence.of("decode_speed", preset):
            known = found.value["figures"]["tokens_per_s"]
            name = marked_name(found)
            dots.append(Dot(name, known["value"], known.get("ci_low"), known.get("ci_high")))
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
