"""Writes the pages of docs/ that come from declarations; ``--check`` only says which are out of date (exit 1)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import typer
from typer.main import get_command

from analytics.metrics.document import metrics_document
from collector.telemetry_page import telemetry_page
from pickwise.cli import app
from pickwise.events import EVENT_TYPES, Event
from pickwise.settings import Settings
from pickwise.skills import Skill

DOCS = Path(__file__).resolve().parents[1] / "docs"
MARK = "<!-- Written by `make docs`; edit the declarations instead. -->"


def settings_page() -> str:
    lines = [
        "# Settings",
        MARK,
        "",
        "Every setting can be a flag where a command offers it, a variable `PICKWISE_NAME`, or a line in "
        "`pickwise.toml`; the first of these that is present wins. `pickwise doctor` prints what is in force. A list in a "
        "variable is JSON, or its items with commas between them. `pickwise.toml` is read from the working directory:",
        "",
        '    data_dir = "/var/lib/pickwise"',
        '    webhook_urls = ["https://hooks.example.com/pickwise"]',
        '    error_patterns = [{ pattern = "^Error", skill_id = "search" }, { pattern = "^429", error_kind = "rate_limited" }]',
        "",
        "| setting | variable | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `{name}` | `PICKWISE_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def events_page() -> str:
    lines = [
        "# Events",
        MARK,
        "",
        "JSON objects told apart by `type`, sent to `POST /v1/events` (one object, an array, or NDJSON). Over OTLP the "
        "same fields travel as span attributes `pickwise.FIELD` beside `pickwise.event` = the type. Unknown fields are "
        "left out and counted, never an error. `project` comes from the API key, without keys from the header "
        "`X-Pickwise-Project`, see [security](security.md).",
        "",
        '    curl -s http://127.0.0.1:4318/v1/events -H \'content-type: application/json\' -d \'{"type": "selection", '
        '"query": "refund my order", "ranked": true, "candidates": [{"skill_id": "a"}, {"skill_id": "b"}], '
        '"picks": ["b"]}\'',
        "",
        "`ranked` says that the order came from a ranking; absent, it is true when a candidate carries a score or the "
        "strategy is a retrieval. Limits: 64 KiB an event, a query of 8 KiB (longer is cut and flagged `truncated`), 200 "
        "candidates, 20 MiB a request after decompression, 100,000 items a request, 200 levels of nesting. `type` may also be `skill`: an entry of the [registry](registry.md).",
        "",
        "## Common to all",
        "",
        *_fields(Event, ()),
    ]
    common = Event.__struct_fields__
    for name, event_type in EVENT_TYPES.items():
        lines += ["", f"## {name}", "", (event_type.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " "), ""]
        lines += _fields(event_type, common)
    return "\n".join(lines) + "\n"


def registry_page() -> str:
    lines = [
        "# The registry",
        MARK,
        "",
        "The skills that exist, one JSON object each (`pickwise import FILE --format skills`, `PUT /v1/registry` to replace "
        "all, `POST /v1/registry` to add or update, `DELETE /v1/registry/SKILL_ID` to retire). Names of calls are judged "
        "against the registry as of the call's time. Without one, Pickwise learns the skills that it sees offered.",
        "",
        "**Import the whole registry**: what it does not contain counts as invented. A project's first write holds from the "
        "beginning of time, a later one from its `valid_from` or its receipt.",
        "",
        '    {"skill_id": "mail/send", "name": "send", "description": "Send an e-mail when the user asks to write to someone.",'
        ' "domain": "office", "not_for": ["chat messages"], "examples": [{"query": "write to Ada"}, {"query": "mail the team"}],'
        ' "parameters_schema": {"type": "object", "properties": {"to": {"type": "string"}}}}',
        "",
        *_fields(Skill, ()),
        "",
        "`pickwise registry from-mcp URL --prefix SERVER/` takes the tools of a running MCP server (streamable HTTP): their "
        "schemas become `parameters_schema` and `outputs`, the annotations `readOnlyHint`, `idempotentHint` and "
        "`destructiveHint` become `side_effect`, a tool that can only run as a task is `asynchronous`. `--dry-run` shows them.",
        "",
        "`pickwise registry review` says what makes entries hard to pick; each write answers with the same findings, and "
        "`?strict=true` refuses one that has errors. What it finds in 527 real tools, and how often it errs: "
        "[registry-review.md](registry-review.md).",
    ]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    lines = [
        "# Commands",
        MARK,
        "",
        "`pickwise COMMAND --help` says the same. Commands that print data take `--json`.",
        "",
    ]
    for name, command in _commands(get_command(app), "pickwise"):
        usage = command.get_usage(typer.Context(command, info_name=name)).removeprefix("Usage: ").strip()
        lines += [f"## {name}", "", (command.help or "").strip(), "", f"    {usage}", ""]
        options = [
            parameter
            for parameter in command.params
            if parameter.name != "help" and not getattr(parameter, "hidden", False)
        ]
        lines += [f"- `{_option(parameter)}`: {getattr(parameter, 'help', None) or ''}" for parameter in options]
        lines += [""] if options else []
    return "\n".join(lines).rstrip() + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "events.md": events_page,
    "registry.md": registry_page,
    "commands.md": commands_page,
    "metrics.md": metrics_document,
    "telemetry.md": lambda: telemetry_page(MARK),
}


def _fields(event_type: type[msgspec.Struct], leave_out: tuple[str, ...]) -> Iterator[str]:
    yield "| field | type | required |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(event_type):
        if field.name not in leave_out:
            yield f"| `{field.name}` | {_type(field.type)} | {'yes' if field.required else ''} |"


def _type(annotation: Any) -> str:
    """A type as a reader of JSON says it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return ""
    if annotation is Any:
        return "any"
    if hasattr(annotation, "__metadata__"):
        return _type(annotation.__origin__)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is not None and arguments and all(isinstance(argument, str) for argument in arguments):
        return " \\| ".join(f"`{argument}`" for argument in arguments)
    if arguments:
        return " or ".join(filter(None, map(_type, arguments)))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return "{" + ", ".join(f"`{name}`" for name in annotation.__struct_fields__) + "}"
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for key, child in sorted(getattr(command, "commands", {}).items()):
        if hasattr(child, "commands"):
            yield from _commands(child, f"{name} {key}")
        else:
            yield f"{name} {key}", child


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return str(max(parameter.opts, key=len))


def main() -> int:
    """Write the pages, or with ``--check`` compare them."""
    stale = []
    for name, page in PAGES.items():
        text = page()
        path = DOCS / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text)
    if stale:
        print(("out of date, run `make docs`: " if "--check" in sys.argv else "written: ") + ", ".join(stale))
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
