"""Commands that bring data in and take it out: import, export, sql, doctor."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    DataDir,
    Project,
    UserError,
    console,
    existing,
    print_json,
    remarks,
    say_without_effect,
    settings_from,
    writable,
)
from pickwise.settings import Settings

#: Columns narrower than this can't be read: rows are printed one column a line then.
_NARROWEST = 12


class Format(StrEnum):
    EVENTS = "events"
    OPENAI_MESSAGES = "openai-messages"
    OTLP_JSON = "otlp-json"
    SKILLS = "skills"


class ExportFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"


def register(app: typer.Typer) -> None:
    app.command("import")(import_)
    app.command()(export)
    app.command()(sql)
    app.command()(doctor)


def import_(
    paths: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="files to read")],
    format_: Annotated[Format, typer.Option("--format", help="what the files hold")],
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    error_pattern: Annotated[
        list[str] | None,
        typer.Option(help="regular expression: a tool result that matches is a failure (openai-messages); repeatable"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring files in, through the running service or by itself; returns when they are visible.

    Importing the same file twice changes nothing.
    """
    bring_in(paths, format_, data_dir, project, as_json, error_pattern=error_pattern)


def bring_in(
    paths: list[Path],
    format_: Format,
    data_dir: Path | None,
    project: str,
    as_json: bool,
    *,
    error_pattern: list[str] | None = None,
    strict: bool = False,
) -> None:
    """`import`; ``strict``: entries that the review finds an error in are refused, with all sent beside them."""
    from collector import importers
    from collector.lock import FolderHeld
    from gateway.in_force import MAPPING
    from gateway.intake import ServiceRefused, open_intake

    patterns = [{"pattern": pattern} for pattern in error_pattern] if error_pattern else None
    settings = writable(settings_from(data_dir=data_dir, error_patterns=patterns))
    # The results in conversations are judged here, by the patterns of this command.
    is_judged_here = format_ is Format.OPENAI_MESSAGES
    served = [name for name in MAPPING if not (is_judged_here and name == "error_patterns")]
    say_without_effect(settings, served, project)
    accepted = findings = 0

    def report(problem: importers.Problem) -> None:
        problems.append(str(problem))

    problems: list[str] = []
    try:
        with (
            open_intake(settings, project, strict=strict) as intake,
            Progress(console=remarks, transient=True) as progress,
        ):
            for path in paths:
                task = progress.add_task(path.name, total=None)
                for batch in importers.batches(path, format_.value, settings, report):
                    receipt = intake.send(batch)
                    accepted += receipt.accepted
                    findings += receipt.findings
                    problems += [f"{path}: {problem}" for problem in receipt.problems]
                    progress.update(task, description=f"{path.name} ({accepted:,})")
            intake.refresh()
    except (FolderHeld, ServiceRefused) as error:
        raise UserError(str(error)) from error
    say_receipt(accepted, problems, project, settings, as_json, findings)


def say_receipt(
    accepted: int, problems: list[str], project: str, settings: Settings, as_json: bool, findings: int = 0
) -> None:
    """Print what an import brought; exit 1 where it brought nothing but problems."""
    if findings:
        asked = f"pickwise registry review --project {project}"
        remarks.print(f"{findings:,} finding(s) about these entries: `{asked}` says them", markup=False, soft_wrap=True)
    if as_json:
        print_json({"accepted": accepted, "rejected": len(problems), "problems": problems})
    else:
        console.print(f"{accepted:,} accepted, {len(problems):,} refused (project {project}, {settings.data_dir})")
        for problem in problems[:20]:
            remarks.print(f"  [yellow]refused:[/yellow] {escape(problem)}", soft_wrap=True)
    if problems and not accepted:
        raise typer.Exit(1)


def export(
    target: Annotated[Path, typer.Argument(help="folder that gets one file a table")] = Path("pickwise-export"),
    format_: Annotated[ExportFormat, typer.Option("--format", help="file format")] = ExportFormat.PARQUET,
    data_dir: DataDir = None,
    project: Annotated[str | None, typer.Option("--project", help="only this project (default: all)")] = None,
) -> None:
    """Write every table as a file, for any other tool."""
    from analytics import export as tables_export
    from analytics.tables import Tables

    connection = Tables(existing(settings_from(data_dir=data_dir)).data_dir).connect()
    try:
        for path, rows in tables_export.export(connection, target, format_.value, project):
            console.print(f"{path}  {rows:,} rows", soft_wrap=True, markup=False)
    except OSError as error:
        raise UserError(f"TARGET: {target} can't be written: {error.strerror or error}") from error


def sql(
    query: Annotated[str, typer.Argument(help="a SELECT over selections, candidates, calls, feedback, skills, …")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Ask the tables anything, in DuckDB's SQL (read-only, all projects).

    Example: `pickwise sql "select skill_id, count(*) from calls where not ok group by 1 order by 2 desc"`
    """
    from analytics.tables import SqlError, Tables

    try:
        rows = Tables(existing(settings_from(data_dir=data_dir)).data_dir).sql(query)
    except SqlError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(rows)
        return
    if rows and len(rows[0]) * _NARROWEST > console.width:
        for number, row in enumerate(rows, 1):
            console.print(f"-- row {number}", markup=False)
            for name, value in row.items():
                console.print(f"{name:<24} {'' if value is None else value}", markup=False, soft_wrap=True)
        return
    table = Table(*(rows[0] if rows else ["(no rows)"]))
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table, markup=False)


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What is wrong with this installation or data folder, and the mend. Exit 1 when something is."""
    from gateway.doctor import examine

    report = examine(data_dir)
    if as_json:
        print_json(report)
    else:
        marks = {"ok": "[green]ok[/green]  ", "note": "[yellow]note[/yellow]", "bad": "[red]bad[/red] "}
        for check in report["checks"]:
            console.print(f"{marks[check['state']]}  {check['name']}: {escape(check['finding'])}", soft_wrap=True)
            if check["mend"]:
                console.print(f"      mend: {check['mend']}", soft_wrap=True, markup=False)
        if report["settings"]:
            table = Table("setting", "value", "from", title="settings in force")
            for setting in report["settings"]:
                table.add_row(setting["name"], str(setting["value"]), setting["source"])
            console.print(table, markup=False)
    if any(check["state"] == "bad" for check in report["checks"]):
        raise typer.Exit(1)
