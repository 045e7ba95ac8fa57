"""The corpus section: what the token shards hold, from their manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.report.cells import Cell, number, percent, table
from speech_assets.report.section import Section

if TYPE_CHECKING:
    from speech_assets.report.evidence import Evidence, Sheet


def corpus_section(evidence: Evidence) -> Section:
    """Splits, hours, tokens, what was set aside."""
    heads = (
        "split", "corpus", "codec", "shards", "clips", "hours", "tokens", "tokens an hour",
        "speakers", "set aside", "codes as alone", "from",
    )  # fmt: skip
    missing = ()
    if not evidence.manifests:
        missing = (
            (
                "No manifest is in the store. The job `tokenize` makes shards and the assets "
                "`manifest` and `dataset_card` count them; `make demo` runs all of it."
            ),
        )
    return Section(
        "corpus",
        "Corpus",
        paragraphs=(
            "Speech turned into SNAC tokens. A row that cannot be used is set aside with its "
            "reason, never dropped.",
        ),
        tables=table("Token shards by split", heads, [_row(made) for made in evidence.manifests]),
        missing=missing,
    )


def _row(sheet: Sheet) -> list[Cell]:
    made = sheet.value
    totals = made["totals"]
    agreement = min((shard["agreement"] for shard in made["shards"]), default=1.0)
    why = ", ".join(f"{n} {reason}" for reason, n in made["quarantine"].items() if n)

    def total(name: str, text: str) -> Cell:
        return Cell(text, float(totals[name]), sheet.key, f"totals.{name}")

    return [
        Cell(str(made["split"])),
        Cell(str(made["corpus"])),
        Cell(
            str(made["made_with"]["codec"]),
            note="" if made["made_with"]["codec_trained"] == "true" else "untrained: no speech",
        ),
        total("shards", f"{totals['shards']:,}"),
        total("rows", f"{totals['rows']:,}"),
        total("audio_hours", number(totals["audio_hours"])),
        total("tokens", f"{totals['tokens']:,}"),
        total("tokens_per_hour", f"{totals['tokens_per_hour']:,.0f}"),
        total("speakers", f"{totals['speakers']:,}"),
        Cell(
            f"{totals['quarantined_rows']:,}",
            float(totals["quarantined_rows"]),
            sheet.key,
            "totals.quarantined_rows",
            note=why,
        ),
        Cell(percent(agreement), float(agreement), sheet.key, "shards.agreement"),
        Cell(sheet.key),
    ]
