"""Charts: their data by hand, pictures that are whole, colours that can be told from the paper."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import speech_assets.report
from speech_assets.report.charts import COLOURS, Chart, Dot, Line, inline, shown_data

LINES = Chart(
    "ttfa", "Time to <first> audio", "streams", "ms",
    lines=(
        Line("a p50", ((1.0, 200.0), (2.0, 350.123))),
        Line("a p95", ((2.0, 434.5),), is_dashed=True),
    ),
    limit=300.0,
    limit_name="the limit",
)  # fmt: skip
DOTS = Chart(
    "wer", "Errors", "%",
    dots=(
        Dot("a", 8.0, 5.0, 11.0, "WER"),
        Dot("b", 12.0, series="WER"),
        Dot("a", 6.0, 4.0, 9.0, "loose"),
    ),
)  # fmt: skip
STYLE = (Path(speech_assets.report.__file__).parent / "report.css").read_text()


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_data_is_what_was_drawn() -> None:
    assert LINES.csv().decode() == "streams,a p50,a p95\n1,200.0,\n2,350.123,434.5\n"
    assert DOTS.csv().decode().splitlines() == [
        "name,series,value,low,high",
        "a,WER,8.0,5.0,11.0",
        "b,WER,12.0,,",
        "a,loose,6.0,4.0,9.0",
    ]
    assert shown_data(LINES)[1] == [["1", "200", "-"], ["2", "350", "434"]]
    assert shown_data(DOTS)[1][0] == ["a", "WER", "8", "5", "11"]


@pytest.mark.parametrize(("low", "high"), [(9.0, 11.0), (5.0, 7.0), (9.0, 5.0)])
def test_a_value_outside_its_interval_is_drawn(low: float, high: float) -> None:
    chart = Chart("x", "x", "x", dots=(Dot("a", 8.0, low, high), Dot("b", 8.0, 7.0, 9.0)))
    assert ET.fromstring(chart.svg()).tag.endswith("svg")
    assert chart.csv().decode().splitlines()[1] == f"a,,8.0,{low},{high}"


def test_a_name_is_no_formula_of_a_spreadsheet() -> None:
    chart = Chart("x", "x", "x", dots=(Dot("=1+1", 1.0),))
    assert chart.csv().decode().splitlines()[1].startswith("'=1+1,")


def test_it_says_in_words_what_it_shows() -> None:
    assert DOTS.description == "Errors. a, WER 8 (5 to 11); b, WER 12; a, loose 6 (4 to 9)."
    assert "a p50 from 200 at 1 to 350 at 2; a p95 434 at 2." in LINES.description
    assert LINES.description.endswith("the limit: 300.")


@pytest.mark.parametrize("chart", [LINES, DOTS])
def test_a_picture_is_the_same_each_time_and_stands_alone(chart: Chart) -> None:
    svg = chart.svg()
    assert svg == chart.svg()
    root = ET.fromstring(svg)
    assert root[0].text == chart.title
    addresses = set(re.findall(r'"(https?://[^"]*)"', svg.decode()))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
                         "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd"}  # fmt: skip


@pytest.mark.parametrize("chart", [LINES, DOTS])
def test_inside_a_page_its_ink_is_the_pages(chart: Chart) -> None:
    text = inline(chart, chart.svg())
    root = ET.fromstring(text)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == chart.description
    assert "currentColor" in text
    assert "#000000" not in text
    assert "fill: #ffffff" not in text
    assert "var(--chart-0)" in text
    assert not re.search(r'<g id="', text)


def test_every_colour_stands_out_from_the_paper_in_light_and_in_dark() -> None:
    light, dark = STYLE.split("prefers-color-scheme: dark", 1)
    for part in (light, dark):
        named = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part))
        for place in range(len(COLOURS)):
            assert contrast(named[f"chart-{place}"], named["paper"]) >= 3
        for name in ("ink", "faint", "accent", "alert"):
            assert contrast(named[name], named["paper"]) >= 4.5
        assert contrast(named["alert"], named["alert-paper"]) >= 4.5
    named = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    assert [named[f"chart-{place}"] for place in range(len(COLOURS))] == list(COLOURS)


def drawn(*lines: Line) -> ET.Element:
    return ET.fromstring(Chart("x", "x", "streams", "ms", lines=lines).svg())


def strokes(root: ET.Element) -> int:
    """Lines of two points or more in a series' colour: marks are shapes of their own."""
    paths = root.iter("{http://www.w3.org/2000/svg}path")
    return sum(COLOURS[0] in p.get("style", "") and "fill: none" in p.get("style", "")
               and "clip-path" in p.attrib for p in paths)  # fmt: skip


def test_two_points_are_marks_and_no_curve() -> None:
    two, three = ((1.0, 2.0), (2.0, 3.0)), ((1.0, 2.0), (2.0, 3.0), (4.0, 9.0))
    assert strokes(drawn(Line("a", two))) == 0
    assert strokes(drawn(Line("a", three))) == 1


def test_a_level_that_failed_is_crossed_out_and_said() -> None:
    line = Line("a", ((1.0, 2.0), (2.0, 3.0), (4.0, 9.0)), failed=(4.0,))
    chart = Chart("x", "x", "streams", "ms", lines=(line,))
    assert "a from 2 at 1 to 9 at 4 (failed at 4)" in chart.description
    assert "level that failed" in chart.svg().decode()
    passed = Chart("x", "x", "streams", "ms", lines=(Line("a", line.points),))
    assert "level that failed" not in passed.svg().decode()
