"""The whole report before it is written in a form: sections in order, and the record of sources."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from speech_assets.report.clips import clip_rows
from speech_assets.report.comparisons import ab_section, codec_section
from speech_assets.report.corpus import corpus_section
from speech_assets.report.evidence import record_of
from speech_assets.report.headline import headline_section, measured_section
from speech_assets.report.listening import listening_section
from speech_assets.report.load import load_section
from speech_assets.report.marks import marked_tables
from speech_assets.report.method import (
    again_section,
    limits_section,
    method_section,
    sources_section,
)
from speech_assets.report.opening import banners, next_steps
from speech_assets.report.precision import precision_section
from speech_assets.report.quality import quality_section
from speech_assets.report.section import places_of, without_missing
from speech_assets.report.switches import switches_section

if TYPE_CHECKING:
    from resources.store import Store
    from speech_assets.report.evidence import Evidence
    from speech_assets.report.opening import Banner
    from speech_assets.report.section import Section

CODE_VERSION = "3"  # Bump when the same results would make another page.
_DRAWN_WITH = ("matplotlib", "av", "jinja2")


@dataclass(frozen=True, slots=True)
class Report:
    """What is written as HTML and as Markdown; `next_steps` and `warnings` stand at its top."""

    title: str
    next_steps: tuple[str, ...]
    warnings: tuple[Banner, ...]
    sections: tuple[Section, ...]
    record: dict[str, Any]


def build_report(store: Store, evidence: Evidence) -> Report:
    """The report of `evidence`; of the store only the samples' audio is read."""
    rows, sentences = clip_rows(store, evidence)
    made, not_measured = without_missing(
        replace(section, tables=marked_tables(section.tables, evidence))
        for section in (
            corpus_section(evidence),
            precision_section(evidence),
            load_section(evidence),
            switches_section(evidence),
            quality_section(evidence),
            listening_section(evidence, rows, sentences),
            ab_section(evidence),
            codec_section(evidence),
        )
    )
    return Report(
        title=f"Speech report: profile {evidence.profile}",
        next_steps=next_steps(evidence, is_all_measured=not_measured is None),
        warnings=banners(evidence, places_of(made)),
        sections=(
            headline_section(evidence),
            measured_section(evidence),
            *made,
            *filter(None, [not_measured]),
            method_section(),
            limits_section(evidence),
            again_section(evidence),
            sources_section(evidence),
        ),
        record={
            "schema_version": 1,
            "code_version": CODE_VERSION,
            "drawn_with": {name: importlib.metadata.version(name) for name in _DRAWN_WITH},
            **record_of(evidence),
        },
    )
