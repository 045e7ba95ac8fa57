"""The server's page in a real browser: type, choose a voice, hear it as it streams, see figures."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
import soundfile
from playwright.sync_api import Browser, Page, expect, sync_playwright
from speech_servers import LONG_TEXT, health, post, same, wait_until_free

from server.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Guarded

    from resources.speech_server import SpeechServer

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
PATIENCE_MS = 120_000
# A waveform has ink in its columns: pixels that are not transparent, beside the line in the middle.
INKED_COLUMNS = """
canvas => {
  const { width, height } = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  let columns = 0;
  for (let x = 0; x < width; x++) {
    let inked = 0;
    for (let y = 0; y < height; y++) inked += data[4 * (y * width + x) + 3] > 0;
    columns += inked > 2;
  }
  return columns / width;
}
"""


@pytest.fixture(scope="module")
def browser(browser_path: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, server: SpeechServer, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page, ready; nothing it asks for may fail or come from elsewhere, nor may it complain."""
    page = browser.new_page(viewport={"width": 900, "height": 760}, color_scheme=request.param)
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", lambda failed: troubles.append(failed.url))
    page.on(
        "request",
        lambda asked: (
            None if asked.url.startswith((server.url, "blob:")) else troubles.append(asked.url)
        ),
    )
    page.goto(server.url)
    expect(page.locator("body")).to_have_attribute("data-state", "ready")
    yield page
    page.close()
    assert troubles == []


def test_text_is_heard_and_measured(page: Page, server: SpeechServer, tmp_path: Path) -> None:
    page.get_by_label("Text to speak").fill("hello there. and again")
    page.get_by_label("Voice").select_option("michael")
    page.get_by_text("More settings").click()
    page.get_by_label("Seed").fill("1")
    page.get_by_label("Trim the silence").uncheck()
    page.get_by_role("button", name="Speak").click()
    expect(page.get_by_role("link", name="Save as WAV")).to_be_visible()
    expect(page.locator("body")).to_have_attribute("data-state", "ready")
    for name in ("ttfa", "ttfs"):
        expect(page.locator(f"#{name}")).to_contain_text("ms")
        expect(page.locator(f"#{name}-server")).to_contain_text("server: ")
    assert float(page.locator("#rtf").text_content() or "") > 0
    expect(page.get_by_role("alert")).to_be_hidden()
    assert page.locator("#waveform").evaluate(INKED_COLUMNS) > 0.05
    page.screenshot(path=tmp_path / "page.png")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as WAV").click()
    saved, rate = soundfile.read(download.value.path(), dtype="int16")
    expected = b"".join(
        post(server, text, voice="michael").content for text in ("hello there.", "and again")
    )
    assert rate == 24_000
    assert same(saved.tobytes(), expected)


def test_speech_is_heard_at_another_speed_and_saved_in_another_format(
    page: Page, server: SpeechServer
) -> None:
    page.get_by_label("Text to speak").fill("hello there.")
    page.get_by_text("More settings").click()
    page.get_by_label("Seed").fill("1")
    page.get_by_label("Speed").fill("1.5")
    page.get_by_label("Trim the silence").uncheck()
    assert page.get_by_label("Save as").locator("option").all_text_contents() == list(FORMATS)
    page.get_by_label("Save as").select_option("flac")
    page.get_by_role("button", name="Speak").click()
    link = page.get_by_role("link", name="Save as FLAC")
    expect(link).to_be_visible()
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "speech.flac"
    saved, rate = soundfile.read(download.value.path(), dtype="int16")
    whole = post(server, "hello there.", speed=1.5, stream=False)
    assert rate == 24_000
    assert same(saved.tobytes(), whole.content)
    assert page.locator("#duration").text_content() == f"{len(saved) / 24_000:.2f} s"
    expect(link).to_be_visible()


def test_audio_is_played_while_it_comes_and_stops_at_once(page: Page, server: SpeechServer) -> None:
    page.get_by_text("More settings").click()
    page.get_by_label("Seed").fill("1")
    page.get_by_label("Text to speak").fill(LONG_TEXT)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#duration")).to_contain_text("s")
    assert page.evaluate("document.body.dataset.state") == "speaking"
    assert health(server)["active_streams"] == 1
    page.keyboard.press("Escape")
    expect(page.locator("body")).to_have_attribute("data-state", "ready")
    wait_until_free(server)
    stopped_at = page.locator("#duration").text_content()
    # What was asked for next is heard, and nothing of what was stopped.
    page.get_by_label("Text to speak").fill("hello there.")
    page.get_by_role("button", name="Speak").click()
    expect(page.get_by_role("link", name="Save as WAV")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as WAV").click()
    audio = download.value.path().read_bytes()
    assert stopped_at
    samples, _ = soundfile.read(io.BytesIO(audio))
    assert f"{len(samples) / 24_000:.2f} s" == page.locator("#duration").text_content()


def test_errors_are_shown_in_words(page: Page) -> None:
    page.get_by_label("Text to speak").fill("   ")
    page.get_by_role("button", name="Speak").click()
    expect(page.get_by_role("alert")).to_contain_text("no text to speak")
    page.get_by_label("Text to speak").fill("x" * 140_000)
    page.get_by_role("button", name="Speak").click()
    expect(page.get_by_role("alert")).to_contain_text("characters, more than")
    expect(page.locator("body")).to_have_attribute("data-state", "ready")


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(page: Page) -> None:
    names: list[str] = []
    for _ in range(5):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "[document.activeElement.tagName, document.activeElement.labels?.[0]?.textContent"
            " ?? document.activeElement.textContent]"
        )
        names.append(" ".join(focused[1].split()))
    assert names[:4] == ["Text to speak", "Voice", "Speak", "More settings"]
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("#waveform").get_attribute("aria-label")


def test_a_server_that_wants_a_token_is_used_with_it(browser: Browser, guarded: Guarded) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page.goto(guarded.url)
    field = page.get_by_label("Token that this server wants")
    field.fill("not-the-token-at-all")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not know this token")
    field.fill(guarded.token)
    field.press("Enter")
    expect(page.locator("body")).to_have_attribute("data-state", "ready")
    expect(field).to_be_hidden()
    page.get_by_label("Text to speak").fill("hello there.")
    page.get_by_role("button", name="Speak").click()
    expect(page.get_by_role("link", name="Save as WAV")).to_be_visible()
    # A reload keeps it, another tab has to be told.
    page.reload()
    expect(page.locator("body")).to_have_attribute("data-state", "ready")
    page.close()
