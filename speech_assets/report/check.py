"""Whether a written report agrees with the store's results, to the last digit.

The page's record says of which files, by their hashes, it was made. They are read again, the
report is made again, and what differs is named.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from speech_assets.errors import ConfigError
from speech_assets.report.document import CODE_VERSION, build_report
from speech_assets.report.evidence import gather_recorded
from speech_assets.report.page import RECORD_ID, render_page
from speech_assets.report.plain import record_in, render_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from resources.store import Store
    from speech_assets.report.document import Report

_SHOWN = 160  # Characters of a line that differs.


class _Source(TypedDict):
    key: str
    sha256: str


class _Samples(_Source):
    preset: str


class _Record(TypedDict):
    """A page's record, as far as it must be right to be followed."""

    __pydantic_config__ = ConfigDict(extra="ignore")  # pyright: ignore[reportGeneralTypeIssues]
    code_version: str
    drawn_with: dict[str, str]
    profile: str
    presets: list[str]
    written_at: str
    results: list[_Source]
    manifests: list[_Source]
    samples: list[_Samples]
    unreadable: list[str]


_RECORD = TypeAdapter(_Record)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was compared of a report, and what of it is not as the store's results say.

    Attributes:
        faults: one line each, with the place and what both say; empty where all agrees.
        figures: that the results give for it; 0 where its sources are not there to give any.
        charts: of its charts, whose data is compared with each form of the report.
        chart_files: files of charts that were looked at beside it.
        sources: files of the store that it names by their hashes.
    """

    faults: tuple[str, ...]
    sources: int
    figures: int = 0
    charts: int = 0
    chart_files: int = 0

    @property
    def sentence(self) -> str:
        """What was compared, in words."""
        files = f" and {self.chart_files} files of them" * bool(self.chart_files)
        return (
            f"{self.figures:,} figures, every line and {self.charts} charts{files} were compared "
            f"with {self.sources} files of the store: "
            + (f"{len(self.faults)} differ" if self.faults else "all agree")
        )


def check_report(store: Store, text: str, where: str, charts: Path | None = None) -> Checked:
    """The report `text`, HTML or Markdown, beside what the store's results say.

    `charts` is the folder of its charts; without it, those that are files are not looked at.

    Raises:
        ConfigError: it is no report of this project, or of another version of it.
    """
    # By its beginning: a transcript may hold any words.
    is_html = text.lstrip().lower().startswith(("<!doctype html", "<html"))
    record = _record(_PageReader.of(text).record if is_html else record_in(text), where)
    sources = sum(len(record[kind]) for kind in ("results", "manifests", "samples"))
    evidence, faults = gather_recorded(store, record)
    if faults:
        return Checked(tuple(faults), sources)
    report = build_report(store, evidence)
    made = render_page(report) if is_html else render_markdown(report)
    if is_html:
        faults = _figures(_PageReader.of(text).figures, _PageReader.of(made).figures)
    is_drawn_alike = record["drawn_with"] == report.record["drawn_with"]
    if not is_drawn_alike:
        # Another matplotlib draws, another FFmpeg encodes otherwise: what both say is compared.
        text, made = _without_media(text), _without_media(made)
    faults = faults or _lines(text, made)
    if charts is not None:
        faults += _charts(charts, report, is_drawn_alike=is_drawn_alike)
    return Checked(
        tuple(faults),
        sources,
        figures=sum(
            cell.value is not None
            for section in report.sections
            for table in section.tables
            for row in table.rows
            for cell in row
        ),
        charts=sum(len(section.charts) for section in report.sections),
        chart_files=0 if charts is None else sum(1 for _ in charts.iterdir()),
    )


def _record(found: str, where: str) -> Mapping[str, Any]:
    remedy = (
        "give an index.html or report.md that `.venv/bin/python -m speech_assets.work.report` wrote"
    )
    if not found.strip():
        raise ConfigError(f"{where} holds no record of a report; {remedy}")
    try:
        record = _RECORD.validate_json(found, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"{where}: the report's record is not one ({place}: {first['msg']}); {remedy}"
        ) from error
    if record["code_version"] != CODE_VERSION:
        raise ConfigError(
            f"{where} was written by version {record['code_version']} of the report, this is "
            f"{CODE_VERSION}; check it with that version, or write it again"
        )
    for row in [*record["results"], *record["manifests"], *record["samples"]]:
        if row["key"].startswith("/") or ".." in row["key"].split("/"):
            raise ConfigError(f"{where}: {row['key']!r} is no key of a store; {remedy}")
    return {**json.loads(found), **record}


def _figures(page: list[dict[str, str]], made: list[dict[str, str]]) -> list[str]:
    """Figures of the page that differ from those of the results, one line each."""
    if len(page) != len(made):
        return [f"the page has {len(page)} figures, the results give {len(made)}"]
    return [
        f"{results['place']} of {results['result']}: the page says {said['text']} "
        f"({said['value']}), the result {results['text']} ({results['value']})"
        for said, results in zip(page, made, strict=True)
        if said != results
    ]


def _lines(text: str, made: str) -> list[str]:
    """The first line that differs."""
    pairs = zip_longest(text.splitlines(), made.splitlines(), fillvalue="(no line)")
    for line, (said, results) in enumerate(pairs, 1):
        if said != results:
            at = next(
                (i for i, (a, b) in enumerate(zip(said, results, strict=False)) if a != b),
                min(len(said), len(results)),
            )
            start = max(0, at - _SHOWN // 2)
            shown = [part[start : start + _SHOWN].strip() for part in (said, results)]
            return [f"line {line}: the page says {shown[0]!r}, the results {shown[1]!r}"]
    return []


def _without_media(text: str) -> str:
    """The page without pictures and sound; a chart's data is no picture, and stays."""
    text = re.sub(
        r'<svg class="chart" role="img" aria-label="([^"]*)".*?</svg>', r"\1", text, flags=re.S
    )
    text = re.sub(r'"data:(?!text/csv)[a-z/+0-9]+;base64,[^"]*"', '""', text)
    return re.sub(r'"drawn_with": \{[^}]*\}', "", text)


def _charts(folder: Path, report: Report, *, is_drawn_alike: bool) -> list[str]:
    """What among the report's chart files is not as the results say, one line each."""
    made: dict[str, Callable[[], bytes]] = {}
    for chart in (chart for section in report.sections for chart in section.charts):
        made |= {f"{chart.name}.csv": chart.csv, f"{chart.name}.svg": chart.svg}
    there = {path.name: path for path in folder.iterdir()}
    faults = [
        f"{folder.name}/{name} is of no chart of the report" for name in sorted({*there} - {*made})
    ]
    for name, content in made.items():
        path = there.get(name)
        if path is None or not path.is_file():
            faults.append(f"{folder.name}/{name}, a chart of the report, is not there")
        elif (is_drawn_alike or path.suffix == ".csv") and path.read_bytes() != content():
            faults.append(f"{folder.name}/{name} is not what the results give")
    return faults


class _PageReader(HTMLParser):
    """Reads a page's figures and its record."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.figures: list[dict[str, str]] = []
        self.record = ""
        self._is_in = ""

    @classmethod
    def of(cls, text: str) -> _PageReader:
        """The reader, after the page."""
        reader = cls()
        reader.feed(text)
        reader.close()
        return reader

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "data":
            self._is_in = tag
            names = {"value": "value", "result": "data-result", "place": "data-place"}
            self.figures.append({k: found.get(v, "") for k, v in names.items()} | {"text": ""})
        elif tag == "script" and found.get("id") == RECORD_ID:
            self._is_in = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._is_in:
            self._is_in = ""

    def handle_data(self, data: str) -> None:
        if self._is_in == "data":
            self.figures[-1]["text"] += data
        elif self._is_in == "script":
            self.record += html.unescape(data)
