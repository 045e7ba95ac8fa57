"""The report's process and asset: what it writes, its check, its end."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from conftest import ROOT
from report.filled import filled_store

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.report import report_assets, report_checks

if TYPE_CHECKING:
    from pathlib import Path

    from resources.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return filled_store(str(tmp_path_factory.mktemp("store")))


def report(store: Store, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "speech_assets.work.report", "--store", store.root]
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, "SPEECH_PROFILE": "embedded"},
        capture_output=True,
        text=True,
    )


def test_it_writes_a_page_that_its_check_accepts_until_a_figure_is_edited(
    store: Store, tmp_path: Path
) -> None:
    store.write_bytes("report/charts/of-before.svg", b"<svg/>")
    done = report(store)
    assert done.returncode == 0, done.stderr
    keys = store.keys("report")
    assert {"report/index.html", "report/report.md"} <= set(keys)
    charts = {key for key in keys if key.startswith("report/charts/")}
    assert {"report/charts/wer.svg", "report/charts/wer.csv"} <= charts
    assert "report/charts/of-before.svg" not in charts
    markdown = store.read_bytes("report/report.md").decode()
    for key in charts:
        assert f"]({key.removeprefix('report/')})" in markdown
    for name in ("index.html", "report.md"):
        done = report(store, "--check", store.path(f"report/{name}"))
        assert done.returncode == 0, done.stderr
        assert "agrees True" in done.stderr
        assert " figures, every line and " in done.stderr
    data = store.read_bytes("report/charts/wer.csv")
    store.write_bytes("report/charts/wer.csv", data.replace(b"8.33", b"1.33"))
    for name in ("index.html", "report.md"):
        done = report(store, "--check", store.path(f"report/{name}"))
        assert done.returncode == 2
        assert "charts/wer.csv is not what the results give" in done.stderr
    edited = tmp_path / "edited.html"
    page = store.read_bytes("report/index.html").decode()
    edited.write_text(page.replace("8.3 % (", "0.3 % ("), encoding="utf-8")
    done = report(store, "--check", str(edited))
    assert done.returncode == 2
    assert "figures.wer of wer/" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_check_of_nothing_is_one_clear_line(store: Store, tmp_path: Path) -> None:
    done = report(store, "--check", str(tmp_path / "none.html"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: --check {tmp_path / 'none.html'}: No such file or directory; "
        "give a report's index.html"
    ]


def test_the_asset_needs_no_partition_of_what_it_shows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            report_assets(),
            selection=["report"],
            resources={"store": StoreResource(root=store.root), "work": WorkResource()},
            instance=instance,
        )
        assert result.success
        event = instance.get_latest_materialization_event(dg.AssetKey("report"))
    metadata = event.asset_materialization.metadata
    assert metadata["page"].value == store.path("report/index.html")
    assert metadata["html_bytes"].value == len(store.read_bytes("report/index.html"))
    assert metadata["clips"].value == 5
    assert "embedded-w4a16" in metadata["headline"].value
    assert "8.3 %" in metadata["headline"].value


def test_the_check_of_the_asset_says_what_it_compared_and_names_an_edited_figure(
    store: Store,
) -> None:
    assert report(store).returncode == 0

    def checked() -> dg.AssetCheckEvaluation:
        with dg.DagsterInstance.ephemeral() as instance:
            done = dg.materialize(
                [*report_assets(), *report_checks()],
                selection=dg.AssetSelection.checks_for_assets("report"),
                resources={"store": StoreResource(root=store.root), "work": WorkResource()},
                instance=instance,
            )
            [found] = done.get_asset_check_evaluations()
        return found

    found = checked()
    assert found.passed
    assert found.description.endswith("files of the store: all agree")
    assert found.metadata["figures"].value > 100
    page = store.read_bytes("report/index.html").decode()
    store.write_bytes("report/index.html", page.replace(">8.3 % (", ">0.3 % (", 1).encode())
    found = checked()
    assert not found.passed
    assert "figures.wer of wer/" in found.description
    assert "the page says 0.3 %" in found.description
