"""The registry: import it, from files or from an MCP server, and review it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table

from pickwise.cli import data
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
    settings_from,
    writable,
)

if TYPE_CHECKING:
    from collector.review import Finding

Strict = Annotated[bool, typer.Option("--strict", help="write nothing when the review finds an error")]

registry_app = typer.Typer(no_args_is_help=True, help="The skills that exist: import, from-mcp, review.")


def register(app: typer.Typer) -> None:
    app.add_typer(registry_app, name="registry")


@registry_app.command("import")
def registry_import(
    paths: Annotated[
        list[Path], typer.Argument(exists=True, dir_okay=False, help="JSON or NDJSON of registry entries")
    ],
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Add or update skills (as `import --format skills`)."""
    data.bring_in(paths, data.Format.SKILLS, data_dir, project, as_json, strict=strict)


@registry_app.command("from-mcp")
def registry_from_mcp(
    url: Annotated[str, typer.Argument(metavar="URL", help="where the server answers, e.g. http://127.0.0.1:8000/mcp")],
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="SERVER/", help="goes before each name, as agents call the tools")
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="'NAME: VALUE'", help="goes with every request, e.g. `Authorization: …`; repeatable"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the entries, write nothing")] = False,
    strict: Strict = False,
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Add or update the tools of a running MCP server (streamable HTTP), with its schemas and annotations.

    Entries that the server has no more are kept.

    Example: `pickwise registry from-mcp http://127.0.0.1:8000/mcp --prefix github/ --dry-run`
    """
    from collector.mcp_client import McpProblem, list_tools
    from collector.mcp_entries import entry_of

    try:
        server, tools = list_tools(url, _headers(header))
    except McpProblem as error:
        raise UserError(str(error)) from error
    entries, problems = _checked([entry_of(tool, prefix) for tool in tools])
    remarks.print(f"{server} offers {len(tools):,} tool(s)", markup=False)
    if not dry_run:
        _send_entries(entries, problems, data_dir, project, as_json, strict)
        return
    if as_json:
        print_json(entries)
    else:
        _print_entries(entries)
    for problem in problems:
        remarks.print(f"would be refused: {problem}", markup=False, soft_wrap=True)


def _headers(given: list[str] | None) -> dict[str, str]:
    headers = {}
    for header in given or []:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not value.strip():
            raise UserError("--header: expected 'NAME: VALUE'")  # not repeated: it may hold a secret
        headers[name.strip()] = value.strip()
    return headers


def _checked(entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The entries that can be taken, and why the others can't."""
    from pickwise.events import EventError
    from pickwise.skills import decode_skill

    good: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, entry in enumerate(entries, start=1):
        try:
            decode_skill(entry)
        except EventError as error:
            problems.append(f"tool {number} ({entry.get('name')!r:.80}): {error}")
        else:
            good.append(entry)
    return good, problems


def _send_entries(
    entries: list[dict[str, Any]],
    problems: list[str],
    data_dir: Path | None,
    project: str,
    as_json: bool,
    strict: bool,
) -> None:
    """Write entries through the running service or directly, in one request."""
    from collector.importers import Batch
    from collector.lock import FolderHeld
    from gateway.intake import ServiceRefused, open_intake

    settings = writable(settings_from(data_dir=data_dir))
    body = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    accepted = findings = 0
    try:
        with open_intake(settings, project, strict=strict) as intake:
            if entries:
                receipt = intake.send(Batch("registry", body, "ndjson", len(entries)))
                accepted, findings = receipt.accepted, receipt.findings
                problems = [*problems, *receipt.problems]
            intake.refresh()
    except (FolderHeld, ServiceRefused) as error:
        raise UserError(str(error)) from error
    data.say_receipt(accepted, problems, project, settings, as_json, findings)


def _print_entries(entries: list[dict[str, Any]]) -> None:
    table = Table("skill", "parameters", "side effect", "description")
    for entry in entries:
        properties = (entry.get("parameters_schema") or {}).get("properties")
        names = ", ".join(properties) if isinstance(properties, dict) else ""
        effect = ", ".join(name if on else f"not {name}" for name, on in entry.get("side_effect", {}).items())
        first_line = (entry.get("description") or "").strip().partition("\n")[0]
        table.add_row(entry["skill_id"], names, effect, first_line)
    console.print(table, markup=False)


@registry_app.command("review")
def registry_review(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    strict: Annotated[bool, typer.Option("--strict", help="exit 1 when a finding is an error")] = False,
    as_json: AsJson = False,
) -> None:
    """What makes skills hard to pick: names and descriptions that collide, missing triggers, oversized schemas."""
    from analytics.frames import active_entries
    from analytics.tables import Tables
    from collector.review import review

    settings = existing(settings_from(data_dir=data_dir))
    findings = review(active_entries(Tables(settings.data_dir).connect(), project=project))
    if as_json:
        print_json(findings)
    else:
        _print_findings(findings)
    if strict and any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def _print_findings(findings: list[Finding]) -> None:
    if not findings:
        console.print("Nothing to say against this registry.")
        return
    table = Table("severity", "code", "skill", "field", "finding")
    for finding in findings:
        table.add_row(finding.severity, finding.code, finding.skill_id, finding.field or "", finding.message)
    console.print(table, markup=False)
    counts = Counter(f"{finding.code} ({finding.severity})" for finding in findings)
    console.print(", ".join(f"{count:,} {code}" for code, count in counts.most_common()), markup=False)
