"""Dagster's UI in a real browser: a backfill of every shard, started there, ends with a full
lineage.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from conftest import SHORT_SHARDS
from lineage_run import ending, wait_for
from playwright.sync_api import Page, expect, sync_playwright

from resources.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
BROWSER_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 400_000
ATTEMPTS = 25
KEYS = [shard.key for shard in SHORT_SHARDS]


@pytest.fixture
def dagster_ui(tmp_path: Path, short_profile: dict[str, str]) -> Iterator[str]:
    """Address of `dagster dev` on the short corpus, with a home and a store of its own."""
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        **short_profile,
        "DAGSTER_HOME": str(tmp_path),
        "SPEECH_STORE": str(tmp_path / "store"),
        "PYTHONWARNINGS": "ignore:Function",
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dagster", "dev", "-w", str(ROOT / "workspace.yaml")),
                *("-h", "127.0.0.1", "-p", str(port)),
            ],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with ending(process):
        yield f"http://127.0.0.1:{port}"
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        try:
            process.wait(60)
        finally:
            _, alive = psutil.wait_procs(children, timeout=60)
            for child in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
    assert [child.pid for child in alive] == []


@pytest.mark.timeout(600)
def test_a_backfill_started_in_the_ui_fills_the_lineage(
    browser_path: str, dagster_ui: str, tmp_path: Path
) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=list(BROWSER_OPTIONS)
        )
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        # The port opens when the definitions are loaded; the browser's own wait is shorter.
        wait_for(lambda: _is_open(dagster_ui), "the UI listens")
        page.goto(f"{dagster_ui}/locations/__repository__@speech_assets/asset-groups/corpus")
        page.get_by_role("button", name="Materialize all").click()
        page.get_by_role("button", name="All", exact=True).click()
        page.get_by_role("button", name="Launch backfill").click()
        expect(page.get_by_role("button", name="Launch backfill")).to_be_hidden()
        shown_at(page, f"{dagster_ui}/assets/tokens?view=partitions", f"Materialized ({len(KEYS)})")
        expect(page.get_by_text("Failed (0)")).to_be_visible()
        page.screenshot(path=tmp_path / "partitions.png")
        # The card comes last; its figures stand on its page once it is there.
        shown_at(page, f"{dagster_ui}/assets/dataset_card", "audio_hours")
        browser.close()
    store = Store(str(tmp_path / "store"))
    assert [s.key for s in SHORT_SHARDS if store.exists(s.object_key("tokens"))] == KEYS
    assert store.exists("tokens/README.md")


def shown_at(page: Page, address: str, text: str) -> None:
    """Load a page again and again until it shows `text`, or fail when patience ends."""
    for attempt in range(ATTEMPTS):
        page.goto(address)
        try:
            expect(page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS / ATTEMPTS)
        except AssertionError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _is_open(address: str) -> bool:
    host, port = address.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
