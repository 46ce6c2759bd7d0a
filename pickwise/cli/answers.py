"""Commands that read: metrics, report, alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    By,
    DataDir,
    From,
    Project,
    To,
    UserError,
    alone,
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

alerts_app = typer.Typer(
    invoke_without_command=True, help="Alerts: what fired (list, the default), and whether notifications arrive (test)."
)


def register(app: typer.Typer) -> None:
    app.command()(metrics)
    app.command()(report)
    app.add_typer(alerts_app, name="alerts")


def metrics(
    name: Annotated[str | None, typer.Argument(help="a metric; without one: the list of them")] = None,
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    start: From = None,
    to: To = None,
    by: By = None,
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
        document = metric(tables, name, project=project, start=begin, end=end, by=split(by))
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
    as_json: AsJson = False,
) -> None:
    """The four decision groups, the change from the window before, and what to look at first."""
    from analytics import report as reports
    from analytics.query import MetricError
    from analytics.tables import Tables

    settings = existing(settings_from(data_dir=data_dir))
    begin, end = window(start, to)
    try:
        document = reports.report(Tables(settings.data_dir).connect(), project, begin, end, split(by))
    except MetricError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(document)
    else:
        console.print(reports.render_text(document), markup=False)


@alerts_app.callback()
def alerts_default(
    context: typer.Context, data_dir: DataDir = None, project: Project = DEFAULT, as_json: AsJson = False
) -> None:
    if alone(context):
        alerts_list(data_dir, project, as_json)


@alerts_app.command("list")
def alerts_list(data_dir: DataDir = None, project: Project = DEFAULT, as_json: AsJson = False) -> None:
    """Every change of an alert's state, newest first."""
    from analytics import frames
    from analytics.tables import Tables

    rows = frames.alerts(Tables(settings_from(data_dir=data_dir).data_dir).connect(), project=project).to_dicts()
    if as_json:
        print_json(rows)
    elif not rows:
        console.print("No alert has fired.")
    else:
        table = Table("time", "rule", "group", "state", "severity", "value", "n", "message")
        for row in rows:
            cells = (row[key] for key in ("time", "rule", "grp", "state", "severity", "value", "n", "message"))
            table.add_row(*(_text(cell) for cell in cells))
        console.print(table, markup=False)


@alerts_app.command("test")
def alerts_test(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Send a test notification to every configured webhook and say how each answered."""
    from analytics import notify

    settings = settings_from(data_dir=data_dir)
    if not settings.webhook_urls:
        raise UserError(
            "no webhook is configured: set PICKWISE_WEBHOOK_URLS='[\"https://…\"]' or webhook_urls in pickwise.toml"
        )
    answers = notify.test(settings)
    if as_json:
        print_json(answers)
    else:
        for answer in answers:
            console.print(answer, markup=False)
    if not all(": delivered" in answer for answer in answers):
        raise typer.Exit(1)


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
