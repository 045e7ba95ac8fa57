"""The report: the end of the lineage, one page of what the newest results say."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from typing import Any

import dagster as dg

from resources.configured import StoreResource, WorkResource
from speech_assets.assets.failures import ERRORS, failed, result_of

# Bump when the same results would make another report.
CODE_VERSION = "1"


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
