"""The report: the end of the lineage, one page of what the newest results say."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from pathlib import Path
from typing import Any

import dagster as dg

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.failures import ERRORS, failed, result_of

# Bump when the same results would make another report.
CODE_VERSION = "3"

_SHOWN = 10  # Differences that the check names.


def report_assets() -> list[Any]:
    """The report of the presets of the profile in force."""

    @dg.asset(
        group_name="quality",
        # All partitions of each, as far as they are there: a preset without a result is said on
        # the page and keeps nothing from being written.
        deps=[
            "dataset_card",
            "fidelity",
            "decode_speed",
            "codec_checkpoints",
            "load_tests",
            "ladder",
            "samples",
            "wer",
            "ab",
        ],
        kinds={"html", "markdown"},
        code_version=CODE_VERSION,
    )
    def report(
        context: dg.AssetExecutionContext, store: StoreResource, work: WorkResource
    ) -> dg.MaterializeResult:
        """One self-contained page of the newest results, and the same in Markdown: presets, load,
        quality, charts, samples to listen to. What was not measured is named there."""
        try:
            results = work.run(context, "report", ["--store", store.root])
            made = result_of(context, results, "report")
        except ERRORS as error:
            raise failed(context, error) from error
        table = next(str(r["headline"]) for r in results if r["kind"] == "figures")
        return dg.MaterializeResult(
            metadata={
                "page": dg.MetadataValue.path(str(made["path"])),
                "headline": dg.MetadataValue.md(table),
                "html_bytes": int(made["html_bytes"]),
                "results": int(made["results"]),
                "charts": int(made["charts"]),
                "clips": int(made["clips"]),
            }
        )

    return [report]


def report_checks() -> list[Any]:
    """The check `agrees` of the report; it can be made again by itself, also of an older page."""

    @dg.asset_check(
        asset="report",
        name="agrees",
        description="Every figure, line and chart of the page is what the results say that it was "
        "made from: they are read again, by their hashes, and the page is made again.",
    )
    def agrees(store: StoreResource) -> dg.AssetCheckResult:
        # Here, and not above: what draws charts and plays clips takes a second to load.
        from speech_assets.report.check import check_report
        from speech_assets.work.report import PAGE_KEY

        opened = store.store()
        page = opened.path(PAGE_KEY)
        charts = Path(page).parent / "charts"
        try:
            text = opened.read_bytes(PAGE_KEY).decode()
            checked = check_report(opened, text, page, charts if charts.is_dir() else None)
        except FileNotFoundError as error:
            raise dg.Failure(f"{page} is not there; materialize report") from error
        except (UnicodeDecodeError, *ERRORS) as error:
            raise dg.Failure(str(error)) from error
        more = len(checked.faults) - _SHOWN
        lines = [f"- {fault}" for fault in checked.faults[:_SHOWN]]
        lines += [f"- and {more} more"] * (more > 0)
        return dg.AssetCheckResult(
            passed=not checked.faults,
            description="\n".join([checked.sentence, *lines]),
            metadata={
                "figures": checked.figures,
                "charts": checked.charts,
                "chart_files": checked.chart_files,
                "sources": checked.sources,
                "differences": len(checked.faults),
            },
        )

    return [agrees]
