"""The scaling page: rendered from results and assumptions, checked, and edited figures refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from load.rows import level_row
from results.examples import example

from speech_assets.load.summary import load_figures
from speech_assets.results import published
from speech_assets.results.__main__ import main
from speech_assets.results.markdown import NONE_YET
from speech_assets.results.pages import TABLES
from speech_assets.scaling.page import SCALING_TABLES

PAGE = Path(__file__).parent.parent.parent / "docs" / "SCALING.md"
ROWS = [level_row(5), level_row(6), level_row(7, is_passed=False)]
LOAD_TEST: dict[str, Any] = {
    "kind": "load_tests",
    "name": "w4a16_lmhead",
    "device": {"name": "NVIDIA L4"},
    "config": {"sweep": {"duration_s": 60.0}, "client_faults": [], "no_level_failed": []},
    "rows": [asdict(row) for row in ROWS],
    "figures": load_figures(ROWS),
}
ROW = "| w4a16_lmhead | NVIDIA L4 | generating | 6 | 5 | 17 | 20 | 167 | 200 | 1,667 | 2,000 |"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the page in a repository that has one load test and one tokenization."""
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    copy = tmp_path / "docs" / "SCALING.md"
    copy.parent.mkdir()
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    published.publish(example(**LOAD_TEST), "load test")
    published.publish(example(), "tokenization")
    assert main(["render"]) == 0
    assert main(["check"]) == 0
    return copy


def test_the_page_shows_every_table_that_there_is_for_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in SCALING_TABLES:
        assert text.count(f"<!-- results: {name} -->\n") == 1
        assert TABLES[name] is SCALING_TABLES[name]


def test_the_page_shows_what_follows_from_a_result(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert ROW in text
    # 1.234 and 1.3 h a minute: 2,000,000 / 1.234 / 60 = 27,012, and 25,641; 8 devices, 24 hours.
    assert "| A CPU (R) 9000 | snac-5.1M-abc | 1.23 | 27,012 | 141 | 1.3 | 25,641 |" in text
    assert "published by others, reference project: SNAC 24 kHz" in text


@pytest.mark.parametrize(
    ("figure", "edited"),
    [
        ("| 6 | 5 | 17 | 20 |", "| 6 | 5 | 16 | 20 |"),
        ("| 27,012 |", "| 7,012 |"),
        ("| 3,300,867,072 |", "| 3,000,000,000 |"),
        ("| 0.4 share | assumption |", "| 0.5 share | assumption |"),
        ("| 45.4 (0.55 x realtime) |", "| 145.4 (1.77 x realtime) |"),
    ],
)
def test_a_figure_that_was_edited_fails_the_check(
    page: Path, capsys: pytest.CaptureFixture[str], figure: str, edited: str
) -> None:
    text = page.read_text(encoding="utf-8")
    assert figure in text
    page.write_text(text.replace(figure, edited), encoding="utf-8")
    assert main(["check"]) == 1
    assert "docs/SCALING.md disagrees with results/" in capsys.readouterr().out
    assert main(["render"]) == 0
    assert page.read_text(encoding="utf-8") == text


def test_a_result_that_was_edited_fails_the_check(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [path] = (published.PUBLISHED / "load_tests").rglob("*.json")
    value = json.loads(path.read_bytes())
    value["figures"]["max_realtime_streams_generating"]["value"] = 60
    path.write_text(json.dumps(value))
    assert main(["check"]) == 2
    assert "the file was edited" in capsys.readouterr().err


def test_tables_of_results_say_so_where_none_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    shown = {name: render() for name, render in SCALING_TABLES.items()}
    assert shown["scaling-streams"] == shown["scaling-bandwidth"] == NONE_YET
    assert all(text.startswith("| ") for text in shown.values() if text != NONE_YET)
