"""The load test's page in Dagster's UI, in a real browser: the charts of the sweep are there."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import httpx
import pytest
from conftest import ROOT
from lineage_run import wait_for
from load.rows import level_row
from playwright.sync_api import expect, sync_playwright

from resources.store import Store
from resources.work import end_group
from speech_assets.assets.imported import import_result
from speech_assets.load.summary import load_figures
from speech_assets.results.provenance import cpu_device
from speech_assets.results.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRESET = "embedded-bf16"
PATIENCE_MS = 120_000
ROWS = [level_row(1), level_row(2), level_row(4, is_passed=False), level_row(1, load="listening")]


@pytest.fixture
def webserver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of Dagster's webserver, whose history has one load test."""
    shutil.copy(ROOT / "dagster.yaml", tmp_path)  # No dialog greets a new user.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("SPEECH_STORE", str(tmp_path / "store"))
    result = Result(
        kind="load_tests",
        name=PRESET,
        started_at="2026-11-29T10:00:00Z",
        device=cpu_device(),
        command="python -m speech_assets.work.load_test",
        config={"client_faults": [], "no_level_failed": [], "sweep": {"duration_s": 60.0}},
        rows=[asdict(row) for row in ROWS],
        figures=load_figures(ROWS),
    )
    made = Store(str(tmp_path / "other"))
    made.write_json("result.json", result.as_json())
    import_result(tmp_path / "other" / "result.json", Store(str(tmp_path / "store")))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "dagster_webserver", "-m", "speech_assets.definitions"]
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (tmp_path / "log.txt").read_text()[-2_000:]
        try:
            return httpx.get(f"{url}/server_info", verify=False).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(answers, "the webserver answers")
        yield url
    finally:
        end_group(process)


def test_the_assets_page_shows_the_charts_of_the_sweep(browser_path: str, webserver: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1_500, "height": 1_400})
        page.goto(
            f"{webserver}/assets/load_tests?view=partitions&partition={PRESET}",
            timeout=PATIENCE_MS,
        )
        row = page.get_by_role("row").filter(has_text="max_realtime_streams_listening").first
        expect(row).to_be_visible(timeout=PATIENCE_MS)
        shown = page.get_by_text("[Show Markdown]")
        expect(shown).to_have_count(3, timeout=PATIENCE_MS)
        for number in range(3):
            shown.nth(number).click()
            picture = page.locator("img[src^='data:image/png;base64,']")
            expect(picture).to_have_count(1, timeout=PATIENCE_MS)
            # It has been decoded: a picture that is broken has no width.
            assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
            page.get_by_role("button", name="Close").click()
            expect(picture).to_have_count(0, timeout=PATIENCE_MS)
        browser.close()
