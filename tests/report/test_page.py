"""The page: it asks for nothing, its figures are the results', texts stay texts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from report.filled import EVIL, GIT, A, B, evidence_in, put_wer, scores

from resources.store import Store
from speech_assets.quality.figures import wer_figures
from speech_assets.report.check import _PageReader
from speech_assets.report.document import build_report
from speech_assets.report.headline import headline
from speech_assets.report.page import render_page
from speech_assets.report.plain import render_markdown
from speech_assets.results.result import Figure, slug

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from speech_assets.report.cells import Table
    from speech_assets.report.document import Report
    from speech_assets.report.evidence import Evidence


def said_at_top(report: Report) -> str:
    """All that stands above the sections."""
    lines = [*report.next_steps]
    for banner in report.warnings:
        lines += [banner.text, *(f"{named.id} {named.why}" for named in banner.results)]
    return " ".join(lines)


def table_text(tables: Iterable[Table]) -> list[str]:
    """Texts and notes of all cells."""
    return [f"{cell.text} {cell.note}" for made in tables for row in made.rows for cell in row]


FETCHING = {"src", "srcset", "poster", "data", "action", "formaction", "xlink:href", "background"}


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text of each `td` and `th`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.found.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])


def test_it_asks_for_nothing_and_runs_nothing(page: str) -> None:
    elements = Elements(page)
    for tag, attributes in elements.found:
        for name in FETCHING & attributes.keys():
            assert attributes[name].startswith(("data:", "#")), (tag, name)
        if "href" in attributes:
            assert attributes["href"].startswith(("data:", "#")), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    scripts = [attributes for tag, attributes in elements.found if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "report-record"}]
    policy = next(a for t, a in elements.found if t == "meta" and "http-equiv" in a)["content"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    style = re.sub(r"<svg.*?</svg>", "", page, flags=re.S)
    assert "url(" not in style
    assert "@import" not in page


def test_every_figure_is_the_results(page: str, evidence: Evidence) -> None:
    results = {found.id: found.value for found in evidence.results}
    figures = [f for f in _PageReader.of(page).figures if f["place"].startswith("figures.")]
    assert len(figures) > 100
    for figure in figures:
        value = results[figure["result"]]["figures"][figure["place"].removeprefix("figures.")]
        assert float(figure["value"]) == value["value"]


def test_figures_stand_with_their_intervals(page: str, evidence: Evidence) -> None:
    known = evidence.of("wer", A).value["figures"]["wer"]
    # 5 wrong of 60 words.
    assert known["value"] == pytest.approx(5 / 60, abs=1e-5)
    shown = f"8.3 % ({100 * known['ci_low']:.1f} % to {100 * known['ci_high']:.1f} %)"
    figures = _PageReader.of(page).figures
    found = {f["text"] for f in figures if f["result"] == evidence.of("wer", A).id}
    assert shown in found
    # Of B, sentences of kind `short` have 5 wrong words of 20.
    assert "25.0 % of 20" in {f["text"] for f in figures}


def test_speaker_similarity_stands_beside_that_of_the_first_presets_own_clips(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    own, other = (
        [replace(clip, speaker_similarity=value) for clip in scores([0] * 6)]
        for value in (0.9, 0.75)
    )
    put_wer(store, A, own)
    put_wer(store, B, other, own)
    text = render_markdown(build_report(store, evidence_in(store)))
    base, preset = (
        line
        for line in text.splitlines()
        if line.startswith((f"| {A} ", f"| {B} ")) and "0.900" in line
    )
    assert "| - | 0.900 (0.900 to 0.900) | - |" in base
    assert (
        "| 0.750 (0.750 to 0.750) | 0.900 (0.900 to 0.900) | -0.150 (-0.150 to -0.150) |" in preset
    )


def test_texts_of_results_stay_texts(page: str, markdown: str) -> None:
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>now</b>" not in page
    tags = [tag for tag, _ in Elements(page).found]
    assert tags.count("script") == 1
    assert "\\<script\\>alert(1)" in markdown
    assert "[link](http" not in markdown
    assert "**bold**" not in markdown
    # In a table of Markdown a pipe of the text is none of the table.
    line = next(line for line in markdown.splitlines() if "alert(1)" in line)
    assert EVIL.count("|") == 1
    assert "\\|" in line


def test_each_row_of_results_leads_to_its_source(page: str, evidence: Evidence) -> None:
    elements = Elements(page)
    targets = [a["href"][1:] for t, a in elements.found if t == "a" and a["href"][:1] == "#"]
    assert not set(targets) - set(elements.ids)
    assert len(elements.ids) == len(set(elements.ids))
    for found in evidence.results:
        assert f"result-{slug(found.id)}" in targets


def test_the_record_lists_every_result_with_its_hash(page: str, evidence: Evidence) -> None:
    record = json.loads(_PageReader.of(page).record)
    listed = {row["id"]: row["content_sha256"] for row in record["results"]}
    assert listed == {found.id: found.value["content_sha256"] for found in evidence.results}
    assert [row["key"] for row in record["manifests"]] == ["manifests/train.json"]
    assert {row["preset"] for row in record["samples"]} == {A, B}


def test_it_is_accessible_without_seeing_it(page: str) -> None:
    elements = Elements(page).found
    charts = [a for tag, a in elements if tag == "svg"]
    assert charts
    assert all(a["role"] == "img" and len(a["aria-label"]) > 40 for a in charts)
    assert all(a["aria-label"] for tag, a in elements if tag == "audio")
    tables = [tag for tag, _ in elements].count("table")
    captions = [tag for tag, _ in elements].count("caption")
    # A chart's data stands under the chart's own title.
    assert tables == captions + sum(tag == "figure" for tag, _ in elements)
    assert all(a.get("scope") for tag, a in elements if tag == "th")


def test_the_same_evidence_gives_the_same_page(store: Store, evidence: Evidence, page: str) -> None:
    assert render_page(build_report(store, evidence)) == page


def test_what_is_missing_is_said_once_at_the_end_with_what_makes_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    report = build_report(store, evidence_in(store))
    assert "nothing was measured yet" in said_at_top(report)
    (closing,) = (section for section in report.sections if section.missing)
    assert closing.anchor == "not-measured"
    missing = " ".join(closing.missing)
    for asset, command in (
        ("manifest", "make demo"),
        ("decode_speed", "speech_assets.work.decode_speed"),
        ("fidelity", "speech_assets.work.fidelity"),
        ("load_tests", "speech_assets.work.load_test"),
        ("ladder", "speech_assets.work.ladder"),
        ("wer", "speech_assets.work.wer"),
        ("samples", "speech_assets.work.samples"),
        ("ab", "speech-ab"),
        ("codec_checkpoints", "speech_assets.work.codec_checkpoint"),
    ):
        assert f"`{asset}`" in missing
        assert command in missing
    # What has nothing to show has no section of its own.
    assert [section.anchor for section in report.sections] == [
        "headline", "measured", "not-measured", "method", "limits", "again", "sources",
    ]  # fmt: skip
    page, markdown = render_page(report), render_markdown(report)
    assert "<code>wer</code>" in page
    assert "`speech-ab" in markdown
    assert "make demo" in page.partition("<main>")[0]


def test_what_was_measured_of_some_presets_has_the_others_at_the_end(report: Report) -> None:
    assert [s.anchor for s in report.sections if s.missing] == ["not-measured"]
    anchors = {section.anchor for section in report.sections}
    assert {"load", "quality", "listening", "precision"} <= anchors


def test_presets_without_any_result_are_named_under_not_measured_alone(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put_wer(store, A, scores((0, 0, 0, 0, 0, 0)))
    report = build_report(store, evidence_in(store))
    rest = replace(
        report,
        sections=tuple(s for s in report.sections if not s.missing),
        record={},
    )
    assert A in render_page(rest)
    assert "fp8" not in render_page(rest)
    assert "embedded-fp8" in render_page(report)
    assert "fp8" not in " ".join(table_text(headline(evidence_in(store))))


def test_the_embedded_profile_is_warned_of(report: Report, page: str, markdown: str) -> None:
    assert "say nothing about Orpheus 3B" in report.warnings[0].text
    assert "say nothing about Orpheus 3B" in page
    assert "say nothing about Orpheus 3B" in markdown


def test_doubts_stand_beside_the_figure(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    clips = scores((0, 1, 2, 0, 0, 0))
    for number, preset in enumerate((A, "embedded-fp8", "embedded-fp8-kv")):
        put_wer(store, preset, clips, started_at=f"2026-11-30T0{number}:00:00Z")
    odd = put_wer(
        store,
        B,
        clips,
        device={"name": "A <i>third</i>"},
        git={**GIT, "commit": "fedcba9876543210", "dirty": True},
        reduced=True,
        status="invalid",
    )
    evidence = evidence_in(store)
    assert evidence.doubts(evidence.of("wer", A)) == []
    assert evidence.doubts(evidence.of("wer", B)) == [
        "invalid", "reduced run", "on A <i>third</i>", "commit fedcba9", "uncommitted changes",
    ]  # fmt: skip
    page = render_page(build_report(store, evidence))
    row = next(part for part in page.split("<tr") if "whisper tiny.en" in part and B in part)
    words = (
        "invalid, reduced run, on A &lt;i&gt;third&lt;/i&gt;, commit fedcba9, uncommitted changes"
    )
    assert words in row
    assert "<i>" not in page
    assert "<i>" not in render_markdown(build_report(store, evidence)).replace("\\<", "")
    said = said_at_top(build_report(store, evidence))
    for words in (
        "reduced runs, too short to be quoted: 1 of 4", "Not valid", "another device",
        "Not of one known commit",
        "on A <i>third</i>", "commit fedcba9, with changes",
    ):  # fmt: skip
        assert words in said
    assert odd["status"] == "invalid"


def test_a_shortened_or_invalid_result_does_not_take_the_place_of_a_whole_one(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    clips = scores((0, 0, 0, 0, 0, 0))
    put_wer(store, A, clips, started_at="2026-11-28T00:00:00Z", reduced=True)
    put_wer(store, A, clips, started_at="2026-11-29T00:00:00Z", status="invalid")
    assert evidence_in(store).of("wer", A).value["started_at"] == "2026-11-29T00:00:00Z"
    whole = put_wer(store, A, clips, started_at="2026-11-27T00:00:00Z")
    assert evidence_in(store).of("wer", A).value == whole


def test_a_client_that_was_late_is_said_before_any_figure(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    late = put_wer(store, A, scores((0, 0, 0, 0, 0, 0)))
    put_wer(store, A, scores((0, 0, 0, 0, 0, 0)), config={**late["config"], "client_faults": ["x"]})
    said = said_at_top(build_report(store, evidence_in(store)))
    assert "The client was late itself (a busy machine)" in said
    assert "1 of 1 result." in said


def test_the_newest_result_counts_and_an_edited_one_is_passed_over(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put_wer(store, A, scores((0, 0, 0, 0, 0, 0)), started_at="2026-11-29T00:00:00Z")
    newest = put_wer(store, A, scores((1, 0, 0, 0, 0, 0)), started_at="2026-11-30T00:00:00Z")
    assert evidence_in(store).of("wer", A).value == newest
    newest["figures"]["wer"]["value"] = 0.001
    store.write_json(evidence_in(store).of("wer", A).key, newest)
    evidence = evidence_in(store)
    assert evidence.of("wer", A).value["started_at"] == "2026-11-29T00:00:00Z"
    assert "was edited" in evidence.unreadable[0]
    assert "could not be read" in said_at_top(build_report(store, evidence))
    assert "was edited" in render_page(build_report(store, evidence))


@pytest.mark.parametrize(("low", "high"), [(0.9, 0.1), (0.5, 0.9)])
def test_a_rate_that_its_interval_belies_is_passed_over(
    tmp_path: Path, low: float, high: float
) -> None:
    store = Store(str(tmp_path))
    clips = scores((1, 0, 2, 2, 0, 0))
    figures = {**wer_figures(clips), "wer": Figure(0.08, "share", 6, low, high, 3)}
    put_wer(store, A, clips, figures=figures)
    evidence = evidence_in(store)
    assert evidence.of("wer", A) is None
    assert "its interval" in evidence.unreadable[0]
    assert "its interval" in render_page(build_report(store, evidence))


def test_a_comparison_says_what_to_make_of_it(page: str, markdown: str) -> None:
    for text in (page, markdown):
        assert "no difference beyond noise is no proof that there is none" in text
        assert "B is better in language model a step and worse in nothing" in text
