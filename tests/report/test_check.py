"""The check: a page as it was written agrees; whatever was changed since is named."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from report.filled import A, evidence_in, filled_store

from speech_assets.errors import ConfigError
from speech_assets.report.check import check_report
from speech_assets.report.document import build_report
from speech_assets.report.page import render_page

if TYPE_CHECKING:
    from pathlib import Path

    from resources.store import Store
    from speech_assets.report.evidence import Evidence


def test_what_was_written_agrees(store: Store, page: str, markdown: str) -> None:
    assert check_report(store, page, "index.html") == []
    assert check_report(store, markdown, "report.md") == []


def test_a_newer_result_does_not_make_an_older_page_wrong(tmp_path: Path) -> None:
    store = filled_store(str(tmp_path))
    page = render_page(build_report(store, evidence_in(store)))
    found = evidence_in(store).of("wer", A)
    store.write_bytes(found.key.replace("20261130", "20261231"), store.read_bytes(found.key))
    assert check_report(store, page, "index.html") == []


def test_an_edited_figure_is_named(store: Store, page: str, evidence: Evidence) -> None:
    found = evidence.of("wer", A)
    place = f'data-result="{found.id}" data-place="figures.wer">8.3 %'
    assert place in page
    faults = check_report(store, page.replace(place, place.replace("8.3", "1.3")), "index.html")
    assert len(faults) >= 1
    assert faults[0].startswith(f"figures.wer of {found.id}: the page says 1.3 %")
    assert "the result 8.3 %" in faults[0]


def test_an_edited_value_behind_the_text_is_named(store: Store, page: str) -> None:
    edited = re.sub(r'(<data class="figure" value=")[^"]+(")', r"\g<1>0.5\2", page, count=1)
    assert "0.5" in check_report(store, edited, "index.html")[0]


def test_an_edited_figure_of_the_markdown_is_named(store: Store, markdown: str) -> None:
    (fault,) = check_report(store, markdown.replace("8.3 %", "1.3 %", 1), "report.md")
    assert "1.3 %" in fault
    assert "8.3 %" in fault


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r'<p class="warning">[^<]*</p>', ""),
        (r"A moment at which", "A rare moment at which"),
        (r'href="data:text/csv;base64,[^"]*"', 'href="data:text/csv;base64,bGV2ZWwK"'),
        (r'src="data:audio/mpeg;base64,[^"]*"', 'src="data:audio/mpeg;base64,AAAA"'),
        (r"<small>no fidelity result</small>|reduced run", "full run"),
    ],
)
def test_anything_else_that_was_changed_is_shown(
    store: Store, page: str, old: str, new: str
) -> None:
    edited, count = re.subn(old, new, page, count=1)
    assert count == 1
    assert check_report(store, edited, "index.html")[0].startswith("line ")


def test_sources_that_changed_or_went_are_named(tmp_path: Path) -> None:
    store = filled_store(str(tmp_path))
    evidence = evidence_in(store)
    page = render_page(build_report(store, evidence))
    key = evidence.of("wer", A).key
    store.write_bytes(key, store.read_bytes(key) + b"\n")
    store.delete("manifests/train.json")
    assert check_report(store, page, "index.html") == [
        f"{key} is not the file that the page shows: it was changed since",
        "manifests/train.json, which the page shows, is not in the store",
    ]


def test_another_drawing_library_is_no_difference_of_figures(store: Store, page: str) -> None:
    other = re.sub(r'("matplotlib": ")[^"]*', r"\g<1>0.1", page)
    other = re.sub(r"<path d=\"M [^\"]*", '<path d="M 0 0', other)
    assert other != page
    assert check_report(store, other, "index.html") == []
    assert check_report(store, other.replace("8.3 %", "1.3 %", 1), "index.html") != []


def changed_record(page: str, **changes: object) -> str:
    found = re.search(r'id="report-record">\n(.*?)\n</script>', page, re.S)
    record = {**json.loads(found[1]), **changes}
    return page[: found.start(1)] + json.dumps(record) + page[found.end(1) :]


def test_what_is_no_report_is_refused(store: Store, page: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.html holds no record of a report"):
        check_report(store, "<html></html>", "a.html")
    with pytest.raises(ConfigError, match="holds no record"):
        check_report(store, "# Notes", "notes.md")
    with pytest.raises(ConfigError, match="written by version 0 of the report"):
        check_report(store, changed_record(page, code_version="0"), "a.html")
    with pytest.raises(ConfigError, match=r"results\.0\.key"):
        check_report(store, changed_record(page, results=[{"sha256": "0"}]), "a.html")
    outside = [{"key": "../../secret", "sha256": "0"}]
    with pytest.raises(ConfigError, match="is no key of a store"):
        check_report(store, changed_record(page, manifests=outside), "a.html")
