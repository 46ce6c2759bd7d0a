"""Commands on what is kept: replay, retention, forget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    DataDir,
    Project,
    UserError,
    console,
    instants,
    print_json,
    remarks,
    say_without_effect,
    settings_from,
    writable,
    wrong_folder,
)
from pickwise.settings import Settings

#: What the numbers count, as `pickwise sql` shows fewer.
_STORED = "A stored row is one fact as it was told; `pickwise sql` folds those about one thing into one row."
DryRun = Annotated[bool, typer.Option("--dry-run", help="change nothing, say what would change")]


def register(app: typer.Typer) -> None:
    app.command()(replay)
    app.command()(retention)
    app.command()(forget)


def replay(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    start: Annotated[
        str | None, typer.Option("--from", help="requests received from then on, RFC 3339 (default: all archived)")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="requests received before then, RFC 3339")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Map the archived requests anew, after a mapping fix or a change of the settings that it reads.

    All rows of a request give way to what today's mapping says of it; doing it twice changes nothing. Requests that
    could not be mapped at all are tried again. Works beside the running service or by itself.
    """
    from collector.operations import ReplayRequest
    from gateway import operate
    from gateway.in_force import MAPPING

    begin, until = instants(start, end)
    request = ReplayRequest(project=project, start=begin, end=until, dry_run=dry_run)
    settings = _settings(data_dir)
    say_without_effect(settings, MAPPING, project)
    report = _done(lambda: operate.replay(settings, project, request))
    if as_json:
        print_json(report)
    elif any(report[found] for found in ("requests", "mended", "still_dead", "problems")):
        _print_replay(report)
    else:
        where = "lies in that window" if start or end else f"of project {project} is kept"
        console.print(f"No archived request {where}: nothing to map anew.", markup=False)


def _print_replay(report: dict[str, Any]) -> None:
    would = "would be " if report["dry_run"] else ""
    console.print(
        f"{report['requests']:,} archived requests with {report['items']:,} spans and log records"
        f" mapped anew (mapping version {report['mapping_version']})"
    )
    for table, change in sorted(report["tables"].items()):
        console.print(f"{table}: {change['removed']:,} stored rows {would}replaced by {change['added']:,}")
    if report["tables"]:
        console.print(_STORED, soft_wrap=True)
    else:
        console.print("Every row is as today's mapping has it.")
    if report["mended"] or report["still_dead"]:
        console.print(f"dead letters: {report['mended']} mended, {report['still_dead']} still not mapped")
    for problem in report["problems"][:20]:
        remarks.print(f"  [yellow]note:[/yellow] {problem}", soft_wrap=True)


def retention(
    data_dir: DataDir = None, project: Project = DEFAULT, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Remove what is older than the settings `retention_days` and `retention` say; a running service does so hourly.

    Imported history stays. The archive, dead letters and damaged log files follow ages of their own.
    """
    from gateway import operate
    from gateway.in_force import KEEPING

    settings = _settings(data_dir)
    say_without_effect(settings, KEEPING, project)
    report = _done(lambda: operate.retain(settings, project, dry_run=dry_run))
    if as_json:
        print_json(report)
        return
    verb = "would be removed" if dry_run else "removed"
    if not report["rows"]:
        console.print("No table has an age set: rows are kept. See `retention_days` and `retention`.")
    table = Table("table", f"stored rows {verb}")
    for name, rows in report["rows"].items():
        table.add_row(name, f"{rows:,}")
    if report["rows"]:
        console.print(table, markup=False)
        console.print(_STORED, soft_wrap=True)
    for name in ("archive_hours", "dead_letters", "damaged_segments"):
        if report[name]:
            console.print(f"{name.replace('_', ' ')} removed: {report[name]}")


def forget(
    session: Annotated[str, typer.Option("--session", help="id of the session")],
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Remove a session from everywhere: tables and their history on the disk, archive, dead letters and the log.

    What it did before stays out for 7 days, should a sender try again. There is no way back.
    """
    from gateway import operate

    if not session:
        raise UserError("--session: expected the id of a session")
    settings = _settings(data_dir)
    report = _done(lambda: operate.forget(settings, project, session))
    is_known = any((*report["rows"].values(), *(count for name, count in report.items() if name != "rows")))
    if as_json:
        print_json(report)
    elif is_known:
        _print_forgotten(report)
    if not is_known:
        raise UserError(f"no session {session} in project {project}: nothing was removed; name another with --project")


def _print_forgotten(report: dict[str, Any]) -> None:
    rows = ", ".join(f"{count:,} of {table}" for table, count in report["rows"].items() if count)
    console.print(
        f"removed: stored rows: {rows or 'none'}; archived spans and log records: {report['archived_items']:,}",
        soft_wrap=True,
    )
    if report["dead_letters"] or report["damaged_segments"]:
        console.print(
            f"with it, whole: {report['dead_letters']} dead letters, {report['damaged_segments']} damaged log files"
        )
    if rows:
        console.print(_STORED, soft_wrap=True)


def _settings(data_dir: Path | None) -> Settings:
    """The settings of a command on what is kept. Raises UserError where the folder holds nothing or can't be used."""
    settings = settings_from(data_dir=data_dir)
    if not settings.data_dir.exists():
        raise wrong_folder(settings, "it does not exist")
    return writable(settings)


def _done(operation: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What an operation on the folder reports. Raises UserError with what stood in its way."""
    from collector.flusher import Interrupted
    from collector.lock import FolderHeld
    from gateway.intake import ServiceRefused

    try:
        return operation()
    except (FolderHeld, ServiceRefused, Interrupted) as error:
        raise UserError(str(error)) from error
