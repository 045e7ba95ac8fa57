"""The check: a page as it was written agrees; whatever was changed since is named."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from report.filled import A, evidence_in, filled_store

from speech_assets.errors import ConfigError
from speech_assets.report.check import check_report
from speech_assets.report.document import build_report
from speech_assets.report.page import render_page

if TYPE_CHECKING:
    from pathlib import Path

    from resources.store import Store
    from speech_assets.report.document import Report
    from speech_assets.report.evidence import Evidence


def faults_of(*given: Any) -> list[str]:
    """What the check finds."""
    return list(check_report(*given).faults)


def test_what_was_compared_is_said_with_how_many_figures(
    store: Store, page: str, markdown: str
) -> None:
    shown = page.count('<data class="figure"')
    for text, where in ((page, "index.html"), (markdown, "report.md")):
        checked = check_report(store, text, where)
        assert checked.figures == shown > 100
        assert checked.charts > 5
        assert checked.sentence == (
            f"{shown:,} figures, every line and {checked.charts} charts were compared with "
            f"{checked.sources} files of the store: all agree"
        )
    edited = check_report(store, page.replace(">8.3 %", ">1.3 %", 1), "index.html")
    assert edited.sentence.endswith(": 1 differ")


def test_what_was_written_agrees(store: Store, page: str, markdown: str) -> None:
    assert faults_of(store, page, "index.html") == []
    assert faults_of(store, markdown, "report.md") == []


def test_a_newer_result_does_not_make_an_older_page_wrong(tmp_path: Path) -> None:
    store = filled_store(str(tmp_path))
    page = render_page(build_report(store, evidence_in(store)))
    found = evidence_in(store).of("wer", A)
    store.write_bytes(found.key.replace("20261130", "20261231"), store.read_bytes(found.key))
    assert faults_of(store, page, "index.html") == []


def test_an_edited_figure_is_named(store: Store, page: str, evidence: Evidence) -> None:
    found = evidence.of("wer", A)
    place = f'data-result="{found.id}" data-place="figures.wer">8.3 %'
    assert place in page
    faults = faults_of(store, page.replace(place, place.replace("8.3", "1.3")), "index.html")
    assert len(faults) >= 1
    assert faults[0].startswith(f"figures.wer of {found.id}: the page says 1.3 %")
    assert "the result 8.3 %" in faults[0]


def test_an_edited_value_behind_the_text_is_named(store: Store, page: str) -> None:
    edited = re.sub(r'(<data class="figure" value=")[^"]+(")', r"\g<1>0.5\2", page, count=1)
    assert "0.5" in faults_of(store, edited, "index.html")[0]


def test_an_edited_figure_of_the_markdown_is_named(store: Store, markdown: str) -> None:
    (fault,) = faults_of(store, markdown.replace("8.3 %", "1.3 %", 1), "report.md")
    assert "1.3 %" in fault
    assert "8.3 %" in fault


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r'<p class="warning">[^<]*</p>', ""),
        (r"A moment at which", "A rare moment at which"),
        (r'href="data:text/csv;base64,[^"]*"', 'href="data:text/csv;base64,bGV2ZWwK"'),
        (r'src="data:audio/mpeg;base64,[^"]*"', 'src="data:audio/mpeg;base64,AAAA"'),
        (r"reduced run(?=[^>]*</small>)", "full run"),
    ],
)
def test_anything_else_that_was_changed_is_shown(
    store: Store, page: str, old: str, new: str
) -> None:
    edited, count = re.subn(old, new, page, count=1)
    assert count == 1
    assert faults_of(store, edited, "index.html")[0].startswith("line ")


def test_sources_that_changed_or_went_are_named(tmp_path: Path) -> None:
    store = filled_store(str(tmp_path))
    evidence = evidence_in(store)
    page = render_page(build_report(store, evidence))
    key = evidence.of("wer", A).key
    store.write_bytes(key, store.read_bytes(key) + b"\n")
    store.delete("manifests/train.json")
    assert faults_of(store, page, "index.html") == [
        f"{key} is not the file that the page shows: it was changed since",
        "manifests/train.json, which the page shows, is not in the store",
    ]


def test_another_drawing_library_is_no_difference_of_figures(store: Store, page: str) -> None:
    other = re.sub(r'("matplotlib": ")[^"]*', r"\g<1>0.1", page)
    other = re.sub(r"<path d=\"M [^\"]*", '<path d="M 0 0', other)
    assert other != page
    assert faults_of(store, other, "index.html") == []
    assert faults_of(store, other.replace("8.3 %", "1.3 %", 1), "index.html") != []


def test_a_charts_data_counts_whatever_drew_it(store: Store, page: str) -> None:
    other = re.sub(r'("matplotlib": ")[^"]*', r"\g<1>0.1", page)
    edited, count = re.subn(
        r'href="data:text/csv;base64,[^"]*"', 'href="data:text/csv;base64,bGV2ZWwK"', other, count=1
    )
    assert count == 1
    assert faults_of(store, edited, "index.html")[0].startswith("line ")


def test_files_of_charts_are_checked_with_either_form(
    store: Store, report: Report, page: str, markdown: str, tmp_path: Path
) -> None:
    charts = [chart for section in report.sections for chart in section.charts]
    for chart in charts:
        (tmp_path / f"{chart.name}.csv").write_bytes(chart.csv())
        (tmp_path / f"{chart.name}.svg").write_bytes(chart.svg())
    for text in (page, markdown):
        assert faults_of(store, text, "here", tmp_path) == []
    name = tmp_path.name
    data = tmp_path / "wer.csv"
    whole = data.read_bytes()
    data.write_bytes(whole.replace(b"8.33", b"1.33", 1))
    assert data.read_bytes() != whole
    picture = tmp_path / "wer.svg"
    picture.write_bytes(picture.read_bytes().replace(b"Word error rate", b"Word accuracy", 1))
    (tmp_path / "other.csv").write_bytes(b"1,2\n")
    (tmp_path / "wer-difference.csv").unlink()
    faults = {
        f"{name}/other.csv is of no chart of the report",
        f"{name}/wer-difference.csv, a chart of the report, is not there",
        f"{name}/wer.csv is not what the results give",
    }
    for text in (page, markdown):
        drawn = {*faults, f"{name}/wer.svg is not what the results give"}
        assert {*faults_of(store, text, "here", tmp_path)} == drawn
        other = re.sub(r'("matplotlib": ")[^"]*', r"\g<1>0.1", text)
        assert {*faults_of(store, other, "here", tmp_path)} == faults


def test_markdown_that_has_html_in_it_is_markdown(store: Store, markdown: str) -> None:
    (fault,) = faults_of(store, markdown.replace("8.3 %", "<html> %", 1), "report.md")
    assert fault.startswith("line ")
    assert "<html> %" in fault


def test_a_page_is_one_by_its_beginning(store: Store, page: str) -> None:
    assert page.lstrip().startswith("<!DOCTYPE html>")
    assert faults_of(store, page.replace("<!DOCTYPE", "<!doctype"), "index.html") != []


def test_presets_that_do_not_go_with_the_results_are_named(store: Store, markdown: str) -> None:
    edited = markdown.replace(f'"presets": ["{A}"', '"presets": ["another"')
    assert edited != markdown
    faults = faults_of(store, edited, "report.md")
    assert len(faults) > 1
    assert all("is of none of the presets that the page names: another, " in f for f in faults)


def test_a_recorded_source_that_is_no_such_file_is_named(tmp_path: Path) -> None:
    store = filled_store(str(tmp_path))
    page = render_page(build_report(store, evidence_in(store)))
    found = evidence_in(store).of("wer", A)
    edited = {**found.value, "figures": {}}
    for key, data in (
        (found.key, json.dumps(edited).encode()),
        ("manifests/train.json", b"[]"),
        (f"samples/{A}/samples.json", b"{}"),
    ):
        before = hashlib.sha256(store.read_bytes(key)).hexdigest()
        store.write_bytes(key, data)
        page = page.replace(before, hashlib.sha256(data).hexdigest())
    faults = faults_of(store, page, "index.html")
    assert [fault.partition(" ")[0].rstrip(":") for fault in faults] == [
        *(found.key, "manifests/train.json", f"samples/{A}/samples.json")
    ]


def changed_record(page: str, **changes: object) -> str:
    found = re.search(r'id="report-record">\n(.*?)\n</script>', page, re.S)
    record = {**json.loads(found[1]), **changes}
    return page[: found.start(1)] + json.dumps(record) + page[found.end(1) :]


def test_what_is_no_report_is_refused(store: Store, page: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.html holds no record of a report"):
        faults_of(store, "<html></html>", "a.html")
    with pytest.raises(ConfigError, match="holds no record"):
        faults_of(store, "# Notes", "notes.md")
    with pytest.raises(ConfigError, match="written by version 0 of the report"):
        faults_of(store, changed_record(page, code_version="0"), "a.html")
    with pytest.raises(ConfigError, match=r"results\.0\.key"):
        faults_of(store, changed_record(page, results=[{"sha256": "0"}]), "a.html")
    outside = [{"key": "../../secret", "sha256": "0"}]
    with pytest.raises(ConfigError, match="is no key of a store"):
        faults_of(store, changed_record(page, manifests=outside), "a.html")
