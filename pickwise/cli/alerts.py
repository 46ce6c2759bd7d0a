"""Alerts: what fired, whether notifications arrive, and silences."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    DataDir,
    Project,
    To,
    UserError,
    alone,
    console,
    existing,
    print_json,
    remarks,
    settings_from,
    window,
    writable,
)
from pickwise.settings import Settings

#: Changes that are listed unless more are asked for.
_CHANGES = 100

alerts_app = typer.Typer(
    invoke_without_command=True,
    help="Alerts: what fired (list, the default), whether notifications arrive (test), and when nobody is called"
    " (silence).",
)


@alerts_app.callback()
def alerts_default(
    context: typer.Context, data_dir: DataDir = None, project: Project = DEFAULT, as_json: AsJson = False
) -> None:
    if alone(context):
        alerts_list(data_dir, project, as_json=as_json)


@alerts_app.command("list")
def alerts_list(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    limit: Annotated[int, typer.Option("--limit", min=1, help="so many at most")] = _CHANGES,
    as_json: AsJson = False,
) -> None:
    """The newest changes of alerts' states, newest first."""
    from analytics import frames
    from analytics.tables import Tables

    settings = existing(settings_from(data_dir=data_dir))
    rows = frames.alerts(Tables(settings.data_dir).connect(), project=project, limit=limit).to_dicts()
    if as_json:
        print_json(rows)
    elif not rows:
        console.print("No alert has fired.")
    else:
        _print(("time", "rule", "grp", "state", "severity", "value", "n", "message"), rows)


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


@alerts_app.command("silence")
def alerts_silence(
    rule: Annotated[str | None, typer.Argument(help="the rule that nobody is told of (default: all rules)")] = None,
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    group: Annotated[str | None, typer.Option("--group", help="only this group of the rule")] = None,
    length: Annotated[str | None, typer.Option("--for", help="how long: 30m, 2h, 1d")] = None,
    start: Annotated[str | None, typer.Option("--from", help="its first instant, RFC 3339 (default: now)")] = None,
    to: To = None,
    reason: Annotated[str, typer.Option("--reason", help="why, for whoever reads the list")] = "",
    end: Annotated[str | None, typer.Option("--end", metavar="ID", help="end the silence with this id")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell nobody that an alert fires, for a while; without --for, --to and --end: the silences that stand.

    States are followed and recorded as ever. What still fires afterwards is posted then.

    Example: `pickwise alerts silence failed_tools --for 2h --reason "the mail API moves"`
    """
    from analytics import silences
    from collector.control import Control

    if end is None and length is None and to is None and (rule or group or start or reason):
        raise UserError("how long? Give --for 2h, or --to with a time")
    settings = writable(settings_from(data_dir=data_dir))
    control = Control(settings.data_dir)
    try:
        if end is not None:
            if not silences.remove(control, end):
                raise UserError(f"--end: no silence has the id {end}; `pickwise alerts silence` lists them")
        elif length is not None or to is not None:
            begin, until = _span(start, to, length)
            _note_unknown(settings, rule)
            made = silences.Silence(
                project=project, rule=rule, group=group, start=begin, end=until, reason=reason
            )  # fmt: skip
            silences.add(control, made)
        standing = [found for found in silences.standing(control, datetime.now(UTC)) if found.project == project]
    finally:
        control.close()
    rows = [{name: getattr(found, name) for name in _SILENCE} for found in standing]
    if as_json:
        print_json(rows)
    elif not rows:
        console.print("Nothing is silenced.")
    else:
        _print(_SILENCE, rows)


_SILENCE = ("id", "rule", "group", "start", "end", "reason")


def _span(start: str | None, to: str | None, length: str | None) -> tuple[datetime, datetime]:
    from analytics.rules import parse_duration

    if to is not None and length is not None:
        raise UserError("--for and --to both say when it ends: give one of them")
    begin, until = window(start, to)
    begin = begin or datetime.now(UTC)
    try:
        until = until or begin + parse_duration(length)
    except (ValueError, OverflowError) as error:
        raise UserError(f"--for: {error}") from error
    if until <= max(begin, datetime.now(UTC)):
        raise UserError("a silence ends after it begins, and after now")
    return begin, until


def _note_unknown(settings: Settings, rule: str | None) -> None:
    """The service may have other rules than this command's settings say, so it is only a note."""
    from analytics.rules import SKILL_STATUS, load_rules

    known = {SKILL_STATUS, *(found.name for found in load_rules(settings.alert_rules))}
    if rule is not None and rule not in known:
        remarks.print(f"note: no rule is named {rule}; known are {', '.join(sorted(known))}", markup=False)


def _print(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    table = Table(*("group" if column == "grp" else column for column in columns))
    for row in rows:
        table.add_row(*(_text(row[column]) for column in columns))
    console.print(table, markup=False)


def _text(value: Any) -> str:
    from analytics.plain import plain

    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else escape(plain(str(value)))
