"""Pages whose tables are rendered from published results.

A page holds `<!-- results: NAME -->` ... `<!-- /results -->`; what is between is rendered by the
table NAME.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from server.presets import load_presets
from speech_assets.ab.tables import ab_table
from speech_assets.codec_forms.tables import codec_forms_table
from speech_assets.demo_time import demo_table
from speech_assets.errors import ConfigError
from speech_assets.load.cost_tables import cost_curve_table
from speech_assets.load.tables import ladder_table, load_tests_table
from speech_assets.quality.tables import wer_table
from speech_assets.quantize.speed_tables import kernel_table, precision_table
from speech_assets.results import published
from speech_assets.results.tables import (
    ablation_table,
    backfill_table,
    codec_speed_table,
    pipeline_table,
    server_table,
    soak_table,
    tokenize_table,
)
from speech_assets.scaling.page import SCALING_TABLES
from speech_assets.voice.tables import codec_table, speech_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PAGES = ("README.md", "docs/*.md", "server/embedded/*/CARD.md")
_BLOCK = re.compile(
    r"(?P<open><!-- results: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<close><!-- /results -->)", re.S
)
_OPENING, _CLOSING = re.compile(r"<!--\s*results\b"), re.compile(r"<!--\s*/results\b")

TABLES: dict[str, Callable[[], str]] = {
    "tokenize": lambda: tokenize_table(published.of_kind("tokenize")),
    "tokenize-pipeline": lambda: pipeline_table(published.of_kind("tokenize_pipeline")),
    "tokenize-ablation": lambda: ablation_table(published.of_kind("tokenize_ablation")),
    "server": lambda: server_table(published.of_kind("server")),
    "soak": lambda: soak_table(published.of_kind("soak")),
    "backfill": lambda: backfill_table(published.of_kind("backfill")),
    "cost-curve": lambda: cost_curve_table(published.of_kind("cost_curve")),
    "load-tests": lambda: load_tests_table(published.of_kind("load_tests")),
    "ladder": lambda: ladder_table(published.of_kind("ladder")),
    "precision": lambda: precision_table(
        published.of_kind("decode_speed"),
        published.of_kind("fidelity"),
        # The project's own: a page must not follow what a user has added here.
        presets={name: preset.config() for name, preset in load_presets({}).items()},
    ),
    "kernel-shares": lambda: kernel_table(published.of_kind("decode_speed")),
    "codec-forms": lambda: codec_forms_table(published.of_kind("codec_checkpoint")),
    "demo": lambda: demo_table(published.of_kind("demo")),
    "codec-speed": lambda: codec_speed_table(published.of_kind("codec_speed")),
    "wer": lambda: wer_table(published.of_kind("wer")),
    "ab": lambda: ab_table(published.of_kind("ab")),
    "voice-codec": lambda: codec_table(published.of_kind("voice_codec")),
    "voice-speech": lambda: speech_table(published.of_kind("voice_speech")),
    **SCALING_TABLES,
}


def render_page(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """`text` with every results block rendered anew.

    Raises:
        ConfigError: a block names a table that does not exist.
    """

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            raise ConfigError(f"no table {name!r}; the tables are {', '.join(sorted(tables))}")
        # What a result says must not end the block, or begin another.
        body = tables[name]().replace("<!--", "&lt;!--").replace("-->", "--&gt;")
        return f"{match['open']}{body.rstrip()}\n{match['close']}"

    blocks = len(_BLOCK.findall(text))
    if blocks != len(_OPENING.findall(text)) or blocks != len(_CLOSING.findall(text)):
        raise ConfigError(
            "a '<!-- results: NAME -->' has no '<!-- /results -->', or the other way round, or is"
            " not written so exactly"
        )
    return _BLOCK.sub(block, text)


def render_pages(*, write: bool) -> list[Path]:
    """The pages that disagree with `results/`; with `write` they are rendered anew.

    Raises:
        ConfigError: a page or a published result is malformed.
    """
    for path in sorted(published.PUBLISHED.rglob("*.json")):
        published.read_published(path)
    disagree: list[Path] = []
    for page in (p for pattern in PAGES for p in sorted(published.ROOT.glob(pattern))):
        try:
            text = page.read_text(encoding="utf-8")
            rendered = render_page(text, TABLES)
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{page.relative_to(published.ROOT)}: {error}") from error
        if rendered != text:
            disagree.append(page)
            if write:
                page.write_text(rendered, encoding="utf-8")
    return disagree
