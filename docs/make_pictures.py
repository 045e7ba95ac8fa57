"""Take the README's two pictures: the lineage in Dagster's UI, and a report's first screen.

    make demo && make ui          # in another terminal
    .venv/bin/python docs/make_pictures.py --ui http://127.0.0.1:3000

Needs the development environment and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

FOLDER = Path(__file__).parent
GROUPS = ("corpus", "checkpoints", "serving", "quality")
LINEAGE_PIXELS: ViewportSize = {"width": 3000, "height": 2600}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    """Write docs/lineage.png and docs/report.png; 0, or 2 when there is nothing to picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ui", default="http://127.0.0.1:3000", help="address of `make ui`")
    parser.add_argument("--report", type=Path, default=Path(".store/report/index.html"))
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    browser_path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser_path is None:
        print(f"no browser: none of {', '.join(BROWSERS)} is on the PATH", file=sys.stderr)
        return 2
    if not arguments.report.exists():
        print(f"{arguments.report} is not there; make demo writes it", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        # Wide enough for the graph, and half as large as a picture.
        page = browser.new_page(viewport=LINEAGE_PIXELS, device_scale_factor=0.5)
        page.set_default_timeout(60_000)
        lineage(page, arguments.ui)
        page.screenshot(path=arguments.out / "lineage.png")
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(arguments.report.resolve().as_uri())
        page.screenshot(path=arguments.out / "report.png")
        browser.close()
    return 0


def lineage(page: Page, address: str) -> None:
    """Show the whole graph with every group but the voice's open."""
    groups = ",".join(f"global@global:{name}" for name in GROUPS)
    page.goto(f"{address}/asset-groups?expanded={groups}")
    page.get_by_text("base_model").first.wait_for()
    for _ in range(3):  # The page opens at full size, and draws only what is in view.
        page.get_by_label("zoom_out").last.click()
    page.get_by_text("dataset_card").first.wait_for()
    expect(page.get_by_text("partitions").first).to_be_visible()  # As they are, not as boxes.
    expect(page.get_by_text("Loading...")).to_have_count(0, timeout=60_000)


if __name__ == "__main__":
    sys.exit(main())
