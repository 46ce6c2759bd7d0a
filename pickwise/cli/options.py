"""Options that many commands share, and how their errors and answers are shown."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from pydantic import ValidationError
from rich.console import Console

from pickwise.events import DEFAULT_PROJECT, EventError, parse_time
from pickwise.settings import Settings, load_settings

console = Console(highlight=False)
#: Progress and remarks, so that standard output holds the answer alone.
remarks = Console(stderr=True, highlight=False)

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="the data folder (PICKWISE_DATA_DIR; default ./pickwise-data)")
]
Project = Annotated[str, typer.Option("--project", help="the project to read or write")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
From = Annotated[str | None, typer.Option("--from", help="first instant, RFC 3339 (default: all that is kept)")]
To = Annotated[str | None, typer.Option("--to", help="end of the window, exclusive, RFC 3339")]
By = Annotated[list[str] | None, typer.Option("--by", help="group by, repeated or comma-separated")]
DEFAULT = DEFAULT_PROJECT


class UserError(Exception):
    """An error that the user can mend; its text says how."""


def settings_from(**flags: Any) -> Settings:
    """Settings with the command's flags in front. A wrong one is a UserError that names it."""
    try:
        return load_settings(**flags)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise UserError(f"settings: {problems}") from error


def window(start: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    return _instant("--from", start), _instant("--to", end)


def split(by: list[str] | None) -> list[str]:
    return [part.strip() for item in by or [] for part in item.split(",") if part.strip()]


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode() + "\n")


def _instant(name: str, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        nanoseconds = parse_time(int(value) if value.isdigit() else value)
    except EventError as error:
        raise UserError(f"{name}: {str(error).removeprefix('time: ')}") from error
    return None if nanoseconds is None else datetime.fromtimestamp(nanoseconds / 1e9, UTC)
