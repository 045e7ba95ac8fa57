"""Write the report of the profile in force: `report/` in the store, from the newest results there.

`index.html` is one file that asks for nothing; `report.md` has the same words and figures;
`charts/` has each chart as SVG and its data as CSV. With --check FILE nothing is written: the
report FILE is compared with the store's results, as are the files of a folder `charts` beside it,
and what differs is named.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from resources.store import Store
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE, load_profile
from speech_assets.report.check import check_report
from speech_assets.report.document import build_report
from speech_assets.report.evidence import gather
from speech_assets.report.headline import headline
from speech_assets.report.page import render_page
from speech_assets.report.plain import markdown_table, render_markdown
from speech_assets.results.provenance import utc_now
from speech_assets.work import worker

if TYPE_CHECKING:
    import argparse

PAGE_KEY = "report/index.html"
MARKDOWN_KEY = "report/report.md"


class ReportDiffersError(SpeechAssetsError):
    """A report says what the store's results do not."""


def main() -> None:
    """Entry point of `python -m speech_assets.work.report`."""
    parser = worker.argument_parser("report", __doc__ or "")
    parser.add_argument("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    parser.add_argument("--check", metavar="FILE", help="a report that was written before")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    if arguments.check is not None:
        _check(store, Path(arguments.check), reporter)
    else:
        _write(store, reporter)


def _write(store: Store, reporter: worker.Reporter) -> None:
    profile = load_profile()
    evidence = gather(store, profile.name, profile.presets, profile.corpus.name, utc_now())
    report = build_report(store, evidence)
    charts = [chart for section in report.sections for chart in section.charts]
    page = render_page(report).encode()
    for chart in charts:
        store.write_bytes(f"report/charts/{chart.name}.svg", chart.svg())
        store.write_bytes(f"report/charts/{chart.name}.csv", chart.csv())
    store.write_bytes(MARKDOWN_KEY, render_markdown(report).encode())
    # Last: who finds the page finds all of it.
    store.write_bytes(PAGE_KEY, page)
    _forget_old_charts(store, {chart.name for chart in charts})
    reporter.result("figures", headline="\n\n".join(map(markdown_table, headline(evidence))))
    reporter.result(
        "report",
        key=PAGE_KEY,
        path=store.path(PAGE_KEY),
        html_bytes=len(page),
        results=len(evidence.results),
        charts=len(charts),
        clips=sum(
            bool(clip and clip.uri)
            for section in report.sections
            for row in section.clips
            for clip in row.clips
        ),
    )


def _forget_old_charts(store: Store, names: set[str]) -> None:
    """Charts of an earlier report that this one has not are not this one's."""
    for key in store.keys("report/charts"):
        if Path(key).stem not in names:
            store.delete(key)


def _check(store: Store, path: Path, reporter: worker.Reporter) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"--check {path}: {why}; give a report's index.html") from error
    charts = path.parent / "charts"
    checked = check_report(store, text, str(path), charts if charts.is_dir() else None)
    reporter.notice(f"{path}: {checked.sentence}")
    if checked.faults:
        lines = "\n".join(f"  {fault}" for fault in checked.faults)
        raise ReportDiffersError(
            f"{path} is not what the results in {store.path('results')} say:\n{lines}\n"
            "write it again: python -m speech_assets.work.report"
        )
    reporter.result("checked", file=str(path), agrees=True, figures=checked.figures)


if __name__ == "__main__":
    main()
