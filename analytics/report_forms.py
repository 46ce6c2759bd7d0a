"""The forms that the report is read in, by name."""

from __future__ import annotations

import io
from typing import Any, Literal

import duckdb
from rich.console import Console

from analytics.report_html import render_html, trends
from analytics.report_text import render_markdown, render_text

Form = Literal["text", "markdown", "html"]
#: Columns of a report in text that no terminal limits.
_WIDTH = 120


def rendered(connection: duckdb.DuckDBPyConnection, found: dict[str, Any], form: Form) -> str:
    """A report (``analytics.report.report``) in one form; ``connection`` is asked for the trends that HTML draws."""
    if form == "html":
        return render_html(found, trends(connection, found))
    if form == "markdown":
        return render_markdown(found)
    page = io.StringIO()
    Console(file=page, width=_WIDTH).print(render_text(found), markup=False)
    return page.getvalue()
