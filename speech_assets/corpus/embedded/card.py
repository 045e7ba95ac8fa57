"""The tables of the embedded corpus' card, from its facts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FACTS_BEGIN = "<!-- facts:begin (from facts.json; do not edit by hand) -->"
FACTS_END = "<!-- facts:end -->"


def place_facts(card: str, tables: str) -> str:
    """`card` with `tables` between its markers; CorpusError unless it has them once each."""
    if card.count(FACTS_BEGIN) != 1 or card.count(FACTS_END) != 1:
        raise CorpusError(
            f"CARD.md must have the lines {FACTS_BEGIN!r} and {FACTS_END!r} once each; restore them"
        )
    before, _, rest = card.partition(FACTS_BEGIN)
    return f"{before}{FACTS_BEGIN}\n{tables}\n{FACTS_END}{rest.partition(FACTS_END)[2]}"


def render_facts(facts: Mapping[str, Any]) -> str:
    """Markdown of `facts.json`."""
    return "\n\n".join([*_contents(facts), *_formats(facts), *_origin(facts)])


def _contents(facts: Mapping[str, Any]) -> list[str]:
    whole, splits = facts["all"], facts["splits"]
    return [
        f"{whole['clips']} clips, {whole['minutes']} minutes, {whole['words']:,} words; "
        f"{facts['total_bytes'] / 1e6:.2f} MB of parquet in {len(facts['files'])} files. Clips "
        f"last {whole['shortest_s']} to {whole['longest_s']} s.",
        _table(
            ("split", "clips", "minutes", "words", "different texts", "shortest s", "longest s"),
            ([split, *group.values()] for split, group in splits.items()),
        ),
        _table(
            ("source", "speaker", "licence", "clips", "of them in dev", "minutes"),
            (
                [s[k] for k in ("source", "speaker_id", "licence", "clips", "dev_clips", "minutes")]
                for s in facts["sources"]
            ),
        ),
        _table(
            ("duration", *splits),
            ([_span(row), *(row[split] for split in splits)] for row in facts["durations"]),
        ),
    ]


def _formats(facts: Mapping[str, Any]) -> list[str]:
    compared = facts["compared"]
    return [
        "### Formats",
        _table(("format", "clips"), ([row["format"], row["clips"]] for row in facts["formats"])),
        f"What else could have been: {compared[0]['clips']} prompts, one in "
        f"{facts['compared_every']}, against the G.722 decode. The format in bold ships.",
        _table(
            ("format", "kbit/s in parquet", "SNR dB", "log-spectral distance dB"),
            (
                [
                    f"**{row['format']}**" if row["ships"] else row["format"],
                    row["kbit_per_s"],
                    "exact" if row["snr_db"] is None else row["snr_db"],
                    row["log_spectral_distance_db"],
                ]
                for row in compared
            ),
        ),
        "Stored otherwise on purpose, so that every reader meets more than one format:",
        _table(
            ("id", "format", "split", "seconds"),
            (
                [row["id"], row["format"], row["split"], row["seconds"]]
                for row in facts["stored_otherwise"]
            ),
        ),
    ]


def _origin(facts: Mapping[str, Any]) -> list[str]:
    rules = Counter(prompt["rule"] for prompt in facts["left_out"])
    software = ", ".join(f"{name} {version}" for name, version in facts["software"].items())
    return [
        "### Left out of the Asterisk prompts",
        _table(("rule", "prompts"), ([rule, count] for rule, count in rules.items())),
        "### Made from",
        _table(
            ("package", "version", "sha256"),
            ([p["name"], p["version"], f"`{p['sha256']}`"] for p in facts["packages"]),
        ),
        f"Encoded and written by {software}.",
        "### Files",
        _table(
            ("file", "rows", "bytes", "sha256"),
            ([f["name"], f["rows"], f["bytes"], f"`{f['sha256']}`"] for f in facts["files"]),
        ),
    ]


def _span(row: Mapping[str, Any]) -> str:
    if row["to_s"] is None:
        return f"{row['from_s']:g} s and more"
    return f"{row['from_s']:g} to {row['to_s']:g} s"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
