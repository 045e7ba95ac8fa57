"""The report as Markdown: the same words and figures, for a repository or an issue."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from speech_assets.results.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speech_assets.report.cells import Cell, Table
    from speech_assets.report.clips import Clip
    from speech_assets.report.document import Report
    from speech_assets.report.opening import Banner
    from speech_assets.report.section import Section

RECORD_OPENS, RECORD_CLOSES = "<!-- report-record", "-->"
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#!~&])")


def render_markdown(report: Report) -> str:
    """The report; charts are files in `charts/` beside it, clips those of the store."""
    lines = [f"# {plain_text(report.title)}"]
    lines += ["What to do next:", "\n".join(f"1. {_prose(line)}" for line in report.next_steps)]
    lines += map(_banner, report.warnings)
    for section in report.sections:
        lines += [f"## {section.title}", *_parts(section)]
    # Two hyphens would end the comment in some readers.
    record = json.dumps(report.record, ensure_ascii=False).replace("--", "-\\u002d")
    return "\n\n".join([*lines, f"{RECORD_OPENS}\n{record}\n{RECORD_CLOSES}"]) + "\n"


def record_in(text: str) -> str:
    """The record of a report that was written as Markdown; empty where there is none."""
    found = re.search(f"^{RECORD_OPENS}\n(.*)\n{RECORD_CLOSES}$", text, re.M)
    return found[1] if found else ""


def plain_text(text: str) -> str:
    """Text of a result, in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", text)


def markdown_table(content: Table) -> str:
    """The table with its caption above and its notes below."""
    rows = [[_cell(cell) for cell in row] for row in content.rows]
    parts = [
        f"**{plain_text(content.caption)}**",
        table(list(map(plain_text, content.heads)), rows),
    ]
    return "\n\n".join([*parts, *map(_prose, content.notes)])


def _parts(section: Section) -> Iterator[str]:
    yield from map(_prose, section.paragraphs)
    yield from (f"**{word}**: {_prose(meaning)}" for word, meaning in section.terms)
    for chart in section.charts:
        data = f"[CSV](charts/{chart.name}.csv)"
        yield f"![{plain_text(chart.description)}](charts/{chart.name}.svg)\n\n{data}"
    yield from map(markdown_table, section.tables)
    if section.clips:
        rows = [
            [plain_text(f"{row.sentence} ({row.kind}, seed {row.seed})"), *map(_clip, row.clips)]
            for row in section.clips
        ]
        yield table(["sentence", *section.clip_presets], rows)
    if section.commands:
        fence = "```"
        lines = [command.replace(fence, "") for command in section.commands]
        yield "\n".join([f"{fence}sh", *lines, fence])
    if section.missing:
        yield "\n".join(f"- {_prose(line)}" for line in section.missing)


def _banner(banner: Banner) -> str:
    """The banner, and the results that it is about, each with the section that shows it."""
    lines = [f"> **{_prose(banner.text)}**", ">" * bool(banner.results)]
    for result in banner.results:
        where = f" ({result.place.title})" if result.place else ""
        lines.append(f"> - {plain_text(result.id)}{where}: {plain_text(result.why)}")
    return "\n".join(filter(None, lines))


def _prose(text: str) -> str:
    """The project's own prose; what it names (a device) may come from a result. Its links within
    the page are words: a heading's id is the reader's to make."""
    text = re.sub(r"\[([^\]]+)\]\(#[a-z-]+\)", r"*\1*", text)
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _cell(cell: Cell) -> str:
    words = [plain_text(cell.text)] * bool(cell.text)
    words += [plain_text(id) for _, id in cell.links]
    words += [f"({plain_text(cell.note)})"] * bool(cell.note)
    return " ".join(words)


def _clip(clip: Clip | None) -> str:
    if clip is None:
        return "-"
    words = [plain_text(clip.why_not)]
    if clip.uri:
        # The report lies in `report/`, the samples beside that folder.
        words = [f"[{clip.seconds:.1f} s](../{quote(clip.key)})"]
    if clip.heard is not None:
        words.append(f"heard: {plain_text(clip.heard or 'nothing')} ({clip.errors})")
    return ", ".join(words)
