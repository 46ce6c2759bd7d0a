"""Commands that read: metrics, report, confusion, alerts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from pickwise.cli.alerts import alerts_app
from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    By,
    DataDir,
    From,
    Project,
    To,
    UserError,
    console,
    existing,
    print_json,
    settings_from,
    split,
    window,
)

if TYPE_CHECKING:
    from analytics.metrics.declarations import Metric

#: A metric whose denominator is all ranked selections.
_OF_RANKED = "fallback_rate"


def register(app: typer.Typer) -> None:
    app.command()(metrics)
    app.command()(report)
    app.command()(confusion)
    app.add_typer(alerts_app, name="alerts")


def metrics(
    name: Annotated[str | None, typer.Argument(help="a metric; without one: the list of them")] = None,
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    start: From = None,
    to: To = None,
    by: By = None,
    judge: Annotated[bool, typer.Option("--judge", help="count feedback with source = judge too")] = False,
    as_json: AsJson = False,
) -> None:
    """One metric, with its denominator and interval; grouped if asked.

    Example: `pickwise metrics failed_tool_rate --by skill`
    """
    from analytics.metrics.declarations import BY_NAME, METRICS
    from analytics.query import MetricError, metric
    from analytics.tables import Tables

    if name is None:
        _list_metrics(METRICS, as_json)
        return
    settings = existing(settings_from(data_dir=data_dir))
    begin, end = window(start, to)
    tables = Tables(settings.data_dir).connect()
    try:
        document = metric(tables, name, project=project, start=begin, end=end, by=split(by), judge=judge)
    except MetricError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(document)
    elif any(row["n"] or row.get("left_out") for row in document["rows"]):
        _print_rows(document)
    else:
        ranked = metric(tables, _OF_RANKED, project=project, start=begin, end=end)["rows"][0]["n"]
        _print_nothing(BY_NAME[name], ranked)


def report(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    start: From = None,
    to: To = None,
    by: By = None,
    form: Annotated[
        Literal["text", "markdown", "html"],
        typer.Option("--format", help="text for a terminal, Markdown, or one HTML page that loads nothing"),
    ] = "text",
    output: Annotated[Path | None, typer.Option("--output", help="write it to this file")] = None,
    as_json: AsJson = False,
) -> None:
    """The four decision groups, the change from the window before, and what to look at first.

    Example: `pickwise report --from 2026-03-02T00:00:00Z --format html --output report.html`
    """
    from analytics import report as reports
    from analytics.query import MetricError
    from analytics.report_forms import rendered
    from analytics.report_text import render_text
    from analytics.tables import Tables

    if as_json and (form != "text" or output is not None):
        raise UserError("--json prints the report as data: leave --format and --output out")
    settings = existing(settings_from(data_dir=data_dir))
    begin, end = window(start, to)
    tables = Tables(settings.data_dir).connect()
    try:
        document = reports.report(tables, project, begin, end, split(by))
    except MetricError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(document)
    elif form == "text" and output is None:
        console.print(render_text(document), markup=False)
    else:
        _put(rendered(tables, document, form), output)


def _put(text: str, output: Path | None) -> None:
    """To standard output, or into a file that is replaced whole."""
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output: {output} can't be written: {error.strerror}") from error


def confusion(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    skill: Annotated[str | None, typer.Option("--skill", help="only where this skill stood first")] = None,
    start: From = None,
    to: To = None,
    as_json: AsJson = False,
) -> None:
    """What was picked instead of a skill when it stood first, and how alike the two describe themselves.

    Example: `pickwise confusion --skill mail`
    """
    from analytics.confusion import confusions
    from analytics.tables import Tables

    settings = existing(settings_from(data_dir=data_dir))
    begin, end = window(start, to)
    connection = Tables(settings.data_dir).connect()
    found = confusions(connection, project, skill_id=skill, start=begin, end=end)
    if as_json:
        print_json(found)
    elif not found:
        console.print("No ranked selection was picked past its first.")
    else:
        table = Table(*found[0])
        for row in found:
            table.add_row(*(_text(value) for value in row.values()))
        console.print(table, markup=False)


def _list_metrics(declared: Any, as_json: bool) -> None:
    if as_json:
        print_json([{"metric": m.name, "unit": m.unit, "meaning": m.meaning} for m in declared])
        return
    table = Table("metric", "unit", "meaning")
    for declaration in declared:
        table.add_row(declaration.name, declaration.unit, declaration.meaning)
    console.print(table, markup=False)


def _print_nothing(declared: Metric, ranked: int) -> None:
    """Why a metric has no value: mostly for want of ranked lists, which no agent SDK sends by itself."""
    if "ranked selections" in declared.meaning and not ranked:
        why = "no ranked selections in the window: see docs/trace.md"
    else:
        why = f"nothing to count in the window. It is: {declared.meaning}"
    console.print(f"{declared.name}: {why}", soft_wrap=True, markup=False)


def _print_rows(document: dict[str, Any]) -> None:
    rows = document["rows"]
    table = Table(*(rows[0] if rows else ["value", "n"]), title=f"{document['metric']} ({document['unit']})")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    console.print(table, markup=False)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
