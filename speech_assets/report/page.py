"""The report as one HTML file that asks for nothing: no script runs, no address is fetched."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from speech_assets.report.charts import inline, shown_data
from speech_assets.report.section import table_id
from speech_assets.results.result import slug

if TYPE_CHECKING:
    from jinja2 import Template

    from speech_assets.report.charts import Chart
    from speech_assets.report.document import Report

RECORD_ID = "report-record"


def render_page(report: Report) -> str:
    """The page."""
    return _template().render(
        report=report,
        style=Markup(_source("report.css")),
        record=Markup(_script_safe(json.dumps(report.record, indent=1, ensure_ascii=False))),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("speech_assets.report", "."),
        autoescape=True,  # Of every file: texts from results are never markup.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters
    filters.update(prose=_prose, slug=slug, picture=_picture)
    names: dict[str, Any] = environment.globals
    names.update(shown_data=shown_data, table_id=table_id, record_id=RECORD_ID)
    return environment


def _template() -> Template:
    return _environment().get_template("report.html")


def _source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _prose(text: str) -> Markup:
    """The project's own prose: `words` between backticks are code, *words* are stressed, and
    [words](#id) lead to a section."""
    made = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    made = re.sub(r"\[([^\]]+)\]\(#([a-z-]+)\)", r'<a href="#\2">\1</a>', made)
    return Markup(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", made))


def _picture(chart: Chart) -> dict[str, Markup | str]:
    """The chart for inside the page, and it and its data to download."""
    svg = chart.svg()
    return {
        "inline": Markup(inline(chart, svg)),
        "svg": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        "csv": f"data:text/csv;base64,{base64.b64encode(chart.csv()).decode()}",
    }


def _script_safe(text: str) -> str:
    """JSON that cannot end the element that it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
