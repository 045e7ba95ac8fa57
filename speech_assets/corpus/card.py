"""The dataset card of the token shards, rendered from the manifests alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from server.frames import CODEBOOK_SIZE, SAMPLES_PER_FRAME, TOKENS_PER_FRAME
from speech_assets.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CODE_VERSION = "1"
CARD_KEY = "tokens/README.md"  # Beside the shards: the folder is a dataset by itself.


def render_card(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Markdown with the header that `datasets` reads: one configuration, a split per manifest."""
    made_with = manifests[0]["made_with"]
    for made in manifests:
        if made["made_with"] != made_with:
            raise ShardError(
                f"split {made['split']!r} was made with {made['made_with']['codec']}, split"
                f" {manifests[0]['split']!r} with {made_with['codec']}; materialize tokens and"
                " manifest of all splits with one codec"
            )
    corpus = manifests[0]["corpus"]
    trained = made_with["codec_trained"] == "true"
    by_licence: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for made in manifests:
        for row in made["audio_hours_by_source_and_licence"]:
            by_licence[row["source"], row["licence"]] += row["audio_hours"]
        reasons.update(made["quarantine"])
    lines = [
        "---",
        "configs:",
        "- config_name: default",
        "  data_files:",
        *[
            line
            for made in manifests
            for line in (
                f"  - split: {made['split'].replace('-', '_')}",
                f"    path: {made['split']}/*.parquet",
            )
        ],
        "---",
        "",
        f"# SNAC tokens of {corpus}",
        "",
    ]
    if not trained:
        lines += [
            (
                "**Untrained: the codec's weights are random. These codes are for measuring speed;"
                " they carry no speech.**"
            ),
            "",
        ]
    lines += [
        "| split | rows | hours | tokens | tokens per hour | speakers | set aside |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for made in manifests:
        totals = made["totals"]
        lines.append(
            f"| {made['split']} | {totals['rows']:,} | {totals['audio_hours']:.3f} | "
            f"{totals['tokens']:,} | {totals['tokens_per_hour']:,.0f} | {totals['speakers']} | "
            f"{totals['quarantined_rows']} |"
        )
    lines += [
        "",
        "## Sources and licences",
        "",
        "| source | licence | hours |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {source} | {licence or 'not stated'} | {hours:.3f} |"
        for (source, licence), hours in sorted(by_licence.items())
    ]
    lines += ["", "## Set aside", ""]
    named = {reason: count for reason, count in sorted(reasons.items()) if count}
    lines += [f"- {reason}: {count}" for reason, count in named.items()] or ["Nothing."]
    lines += [
        "",
        "## How it was made",
        "",
        (
            "Audio was decoded to mono 24 kHz (soxr, VHQ), non-speech at both ends cut by WebRTC's"
            " voice activity detector (200 ms kept, inner pauses untouched), and encoded in"
            " float32. A sample of every shard was compared with clips encoded alone: smallest"
            f" agreement {min(_shard_values(manifests, 'agreement'), default=1.0):.4%}."
        ),
        "",
        f"- codec: `{made_with['codec']}`, weights sha256 `{made_with['codec_weights_sha256']}`",
        f"- precision {made_with['precision']}, layout version {made_with['layout_version']}",
        "",
        "## A row",
        "",
        (
            f"`codes` holds {TOKENS_PER_FRAME} codes (0..{CODEBOOK_SIZE - 1}) a frame of"
            f" {SAMPLES_PER_FRAME:,} samples, in slot order: level 0 is slot 0, level 1 slots 1 and"
            " 4, level 2 slots 2, 3, 5 and 6. The last frame is padded with zeros: `sample_count`"
            " says where the clip ends. `trim_start_samples` and `trim_end_samples` were cut from"
            " the original."
        ),
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'dataset = load_dataset("PATH/TO/tokens")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _shard_values(manifests: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [entry[name] for made in manifests for entry in made["shards"] if entry["rows"]]
