"""Fixtures of the report's tests: a filled store and the page that is made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from report.filled import evidence_in, filled_store

from speech_assets.report.document import Report, build_report
from speech_assets.report.page import render_page
from speech_assets.report.plain import render_markdown

if TYPE_CHECKING:
    from resources.store import Store
    from speech_assets.report.evidence import Evidence


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with results of every kind; tests only read it."""
    return filled_store(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="session")
def evidence(store: Store) -> Evidence:
    """What a report of it is made from."""
    return evidence_in(store)


@pytest.fixture(scope="session")
def report(store: Store, evidence: Evidence) -> Report:
    """The report before it has a form."""
    return build_report(store, evidence)


@pytest.fixture(scope="session")
def page(report: Report) -> str:
    """The report as HTML."""
    return render_page(report)


@pytest.fixture(scope="session")
def markdown(report: Report) -> str:
    """The report as Markdown."""
    return render_markdown(report)
