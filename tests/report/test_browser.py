"""The page in a real browser, from a file: nothing is asked for, charts and clips are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from pathlib import Path

AUDIO = """() => Promise.all([...document.querySelectorAll('audio')].map(
    a => new Promise(done => a.readyState ? done(a.duration)
        : (a.onloadedmetadata = () => done(a.duration), a.onerror = () => done(-1)))))"""
CHARTS = """() => [...document.querySelectorAll('svg.chart')].map(
    c => [c.getBoundingClientRect().width, c.getBoundingClientRect().height,
          c.querySelectorAll('text').length])"""
INK = "() => getComputedStyle(document.querySelector('svg.chart text')).fill"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1_280), ("dark", 400)])
def test_a_browser_shows_all_of_it_and_asks_for_nothing(
    browser_path: str, page: str, tmp_path: Path, scheme: str, width: int
) -> None:
    file = tmp_path / "index.html"
    file.write_text(page, encoding="utf-8")
    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": 900},
        )
        shown = context.new_page()
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(file.as_uri())
        durations_s = shown.evaluate(AUDIO)
        charts = shown.evaluate(CHARTS)
        page_width = shown.evaluate("() => document.documentElement.scrollWidth")
        ink = shown.evaluate(INK)
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert len(durations_s) == 5  # Three sentences of two presets, one of them not spoken.
    assert min(durations_s) > 0.5
    assert len(charts) >= 5
    assert all(250 < chart[0] <= width and chart[1] > 120 and chart[2] > 5 for chart in charts)
    assert page_width == width  # Tables scroll in themselves, the page does not.
    assert ink == ("rgb(236, 238, 242)" if scheme == "dark" else "rgb(25, 28, 34)")
