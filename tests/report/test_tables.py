"""What tables say of doubtful figures: other clips, invalid measurements, shares of nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from conftest import ROOT
from report.filled import DEVICE, A, B, evidence_in, put, put_ab, put_wer, scores

from resources.store import Store
from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.report.cells import figure
from speech_assets.report.clip_sets import clips_said
from speech_assets.report.comparisons import ab_section
from speech_assets.report.document import build_report
from speech_assets.report.headline import headline
from speech_assets.report.page import render_page
from speech_assets.report.plain import render_markdown
from speech_assets.report.precision import precision_section
from speech_assets.report.quality import quality_section
from speech_assets.results.markdown import INVALID, INVALID_MARK
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from speech_assets.report.cells import Cell, Table
    from speech_assets.report.evidence import Evidence, Found


def cells(table: Table, name: str) -> dict[str, Cell]:
    """The row of that name, by head."""
    (row,) = (row for row in table.rows if row[0].text == name)
    return dict(zip(table.heads, row, strict=True))


def wer_of(evidence: Evidence, preset: str) -> Found:
    found = evidence.of("wer", preset)
    assert found is not None
    return found


def put_speed(store: Store, preset: str, tokens_per_s: float, **given: Any) -> dict[str, Any]:
    """A published decode speed of the embedded voice, with another preset and rate."""
    path = next((ROOT / "results" / "decode_speed").rglob("embedded-bf16/*.json"))
    value = json.loads(path.read_text())
    figures = {
        name: Figure(**{k: known[k] for k in ("value", "unit", "n", "ci_low", "ci_high")
                        if k in known})
        for name, known in value["figures"].items()
    }  # fmt: skip
    figures["tokens_per_s"] = Figure(tokens_per_s, "tokens/s", 3, tokens_per_s, tokens_per_s)
    faults = {"faults": given.pop("faults")} if "faults" in given else {}
    config = {**value["config"], "preset": preset, **faults}
    if preset != A:
        config["scheme"] = "w4a16"
    return put(
        store, kind="decode_speed", name=preset, config=config, rows=value["rows"],
        figures=figures, device=DEVICE, seeds=value["seeds"], **given,
    )  # fmt: skip


def test_a_wer_stands_with_its_clips_and_the_baselines_on_the_same(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    base = scores((1, 0, 2, 2, 0, 0))
    put_wer(store, A, base)
    put_wer(store, B, scores((3, 2)), base)
    evidence = evidence_in(store)
    (table,) = headline(evidence)
    assert cells(table, A)["WER of samples"].note == "6 clips"
    # Of the two clips that both spoke, A has 1 wrong word of 20, B has 5.
    said = f"2 clips, not those of {A}; on the 2 that both have WER is 25.0 %, {A}'s 5.0 %"
    assert cells(table, B)["WER of samples"].note == said
    words = quality_section(evidence).tables[0]
    assert said.removeprefix("2 clips, ") == cells(words, B)["clips"].note
    kinds = quality_section(evidence).tables[-1]
    assert "not asked for the same clips" in kinds.notes[0]
    chart = quality_section(evidence).charts[0]
    assert {dot.name for dot in chart.dots} == {f"{A} (6 clips)", f"{B} (2 clips)"}


def test_a_wer_of_the_same_clips_needs_no_more_words(evidence: Evidence) -> None:
    (table,) = headline(evidence)
    assert cells(table, B)["WER of samples"].note == "6 clips"
    assert quality_section(evidence).tables[-1].notes == ()


def test_wers_without_a_common_clip_are_not_comparable(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    clips = scores((1, 0, 2, 2, 0, 0))
    put_wer(store, B, clips[4:])
    assert clips_said(wer_of(evidence_in(store), B), evidence_in(store)) == (
        f"2 clips; {A} was not measured"
    )
    put_wer(store, A, clips[:4])
    assert clips_said(wer_of(evidence_in(store), B), evidence_in(store)) == (
        f"2 clips; not comparable with {A}: they have no clip in common"
    )
    other = {"base": A, "asr": "whisper large-v3"}
    put_wer(store, B, clips, clips, config=other, started_at="2026-11-30T10:00:00Z")
    assert "another Whisper heard it" in clips_said(
        wer_of(evidence_in(store), B), evidence_in(store)
    )


@pytest.mark.parametrize(("rate", "is_realtime"), [(61.0, "no"), (82.02, "no"), (218.0, "yes")])
def test_the_headline_says_whether_a_preset_is_realtime_and_why(
    tmp_path: Path, rate: float, is_realtime: str
) -> None:
    store = Store(str(tmp_path))
    put_speed(store, A, rate)
    (table,) = headline(evidence_in(store))
    cell = cells(table, A)["realtime"]
    assert cell.text == is_realtime
    assert cell.note == f"{rate:.4g} of {REALTIME_TOKENS_PER_S:.2f} tokens/s"
    assert cell.value == rate


def test_nothing_is_worth_serving_by_an_invalid_baseline(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put_speed(store, A, 100.0, status="invalid", faults=["others took 40 % of a core"])
    put_speed(store, B, 150.0)
    speeds = precision_section(evidence_in(store)).tables[0]
    worth = cells(speeds, B)["worth serving"]
    assert worth.text == "not known"
    assert worth.note == "the baseline's measurement is invalid (others took 40 % of a core)"
    assert cells(speeds, A)["worth serving"].text == "not known"
    put_speed(store, A, 100.0)
    speeds = precision_section(evidence_in(store)).tables[0]
    assert cells(speeds, B)["worth serving"].text == "yes"


def test_figures_of_an_invalid_result_are_marked_in_every_table_and_chart(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    base = scores((1, 0, 2, 2, 0, 0))
    put_wer(store, A, base)
    put_wer(store, B, scores((3, 2, 2, 2, 1, 1)), base, status="invalid")
    put_speed(store, B, 150.0, status="invalid", faults=["a <b>busy</b> machine"])
    evidence = evidence_in(store)
    ids = {found.id for found in evidence.results if found.value["name"] == B}
    report = build_report(store, evidence)
    tables = [t for s in report.sections for t in s.tables if s.anchor not in ("sources",)]
    marked = 0
    for table in (*tables, *headline(evidence)):
        of_invalid = [c for row in table.rows for c in row if c.result in ids and c.text != "-"]
        others = [c for row in table.rows for c in row if c.result not in ids]
        assert all(c.text.endswith(INVALID_MARK) for c in of_invalid)
        assert not any(INVALID_MARK in c.text for c in others)
        assert (INVALID in table.notes) == bool(of_invalid)
        marked += len(of_invalid)
    assert marked > 10
    dots = {dot.name for s in report.sections for chart in s.charts for dot in chart.dots}
    assert {A, f"{B} {INVALID_MARK}"} <= dots
    assert B not in dots


def test_banners_name_the_results_their_place_and_the_reason(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put_wer(store, A, scores((1, 0, 2, 2, 0, 0)), reduced=True)
    put_speed(store, B, 150.0, status="invalid", faults=["a <b>busy</b> machine"])
    evidence = evidence_in(store)
    report = build_report(store, evidence)
    invalid, reduced = (
        next(b for b in report.warnings if word in b.text) for word in ("Not valid", "reduced")
    )
    (speed,) = invalid.results
    assert speed.why == "a <b>busy</b> machine"
    assert speed.place is not None
    assert speed.place.title == "Precision"
    assert [(named.id, named.why) for named in reduced.results] == [
        (wer_of(evidence, A).id, "6 clips")
    ]
    page, markdown = render_page(report), render_markdown(report)
    assert f'<a href="#{speed.place.id}">{speed.id}</a>: a &lt;b&gt;busy' in page
    assert f'id="{speed.place.id}"' in page
    assert "<b>" not in page
    assert "(Precision): a \\<b\\>busy" in markdown
    top = page.partition("<main>")[0]
    assert "What to do next" in top
    assert 'href="#again"' in top
    assert 'href="#not-measured"' in top


def test_a_share_of_nothing_is_a_dash(evidence: Evidence) -> None:
    found = wer_of(evidence, A)
    none = {**found.value, "figures": {"wer": Figure(0.0, "share", 0).as_json()}}
    assert figure(replace(found, value=none), "wer").text == "-"


@pytest.mark.parametrize("mute", ["a", "b", "ab"])
def test_how_alike_arms_are_is_a_dash_where_one_is_mute(tmp_path: Path, mute: str) -> None:
    store = Store(str(tmp_path))
    value = put_ab(store)
    (table,) = ab_section(evidence_in(store)).tables
    assert cells(table, "clips of the same bytes")["B less A"].text == "0.0 %"
    figures = {name: Figure(**known) for name, known in value["figures"].items()}
    for letter in mute:
        figures[f"clips_without_audio_{letter}"] = Figure(6, "clips", 6)
    kept = ("kind", "name", "config", "rows", "seeds")
    put(store, **{name: value[name] for name in kept}, figures=figures)
    (table,) = ab_section(evidence_in(store)).tables
    for name in ("clips of the same bytes", "clips of as many samples"):
        assert cells(table, name)["B less A"].text == "-"
    assert "how alike they are is not told" in table.notes[-1]


def test_the_two_wers_have_names_of_their_own(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    value = put_ab(store)
    rate = {
        f"wer_{which}": Figure(0.1, "share", 6, 0.0, 0.2, 3) for which in ("a", "b", "difference")
    }
    figures = {name: Figure(**known) for name, known in value["figures"].items()} | rate
    kept = ("kind", "name", "config", "rows", "seeds")
    put(store, **{name: value[name] for name in kept}, figures=figures)
    put_wer(store, A, scores((1, 0, 2, 2, 0, 0)))
    evidence = evidence_in(store)
    (compared,) = ab_section(evidence).tables
    assert cells(compared, "WER, of these clips")["A"].text == "10.0 %"
    heads = {h for t in (*headline(evidence), *quality_section(evidence).tables) for h in t.heads}
    assert "WER of samples" in heads
    assert "WER" not in heads


def test_tables_of_quality_fit_a_narrow_page(evidence: Evidence) -> None:
    words, differences, sound = quality_section(evidence).tables[:3]
    assert all(len(table.heads) <= 9 for table in (words, differences, sound))
    (detectable,) = (h for h in differences.heads if "etect" in h)
    assert detectable.startswith("detectable difference")
    assert "*Detectable difference*" in differences.notes[0]
