"""Options that many commands share, and how their errors and answers are shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from analytics.plain import plain
from pickwise.events import DEFAULT_PROJECT, EventError, as_datetime, parse_instant
from pickwise.settings import SUPERVISED, Settings, SettingsError, load_settings, unknown_variables


class PlainConsole(Console):
    """Shows names and texts, which come from outside, without what would move the cursor of a terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(map(plain, text.split("\n"))), **options)


#: Into a pipe or a file nothing is cut to a terminal's width.
_PIPE_WIDTH = 1000
console = PlainConsole(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH)
#: Progress and remarks, so that standard output holds the answer alone.
remarks = PlainConsole(stderr=True, highlight=False)

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="the data folder (PICKWISE_DATA_DIR; default ./pickwise-data)")
]


def _possible(project: str) -> str:
    from collector.projects import is_project

    if not is_project(project):
        raise UserError(f"--project: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {project!r:.80}")
    return project


Project = Annotated[str, typer.Option("--project", help="the project to read or write", callback=_possible)]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
From = Annotated[str | None, typer.Option("--from", help="first instant, RFC 3339 (default: all that is kept)")]
To = Annotated[str | None, typer.Option("--to", help="end of the window, exclusive, RFC 3339")]
By = Annotated[list[str] | None, typer.Option("--by", help="group by, repeated or comma-separated")]
DEFAULT = DEFAULT_PROJECT


class UserError(Exception):
    """An error that the user can mend; its text says how."""


def settings_from(**flags: Any) -> Settings:
    """Settings with the command's flags in front. A wrong one is a UserError that names it."""
    _warn_of_unknown_variables()
    try:
        settings = load_settings(**flags)
    except SettingsError as error:
        raise UserError(f"settings: {error}") from error
    return settings


@cache
def _warn_of_unknown_variables() -> None:
    """Said once, and by the parts of a service not again."""
    if SUPERVISED not in os.environ:
        for warning in unknown_variables():
            remarks.print(f"warning: {warning}", markup=False, soft_wrap=True)


def writable(settings: Settings) -> Settings:
    """The settings of a command that writes, its folder made where there is none. Raises UserError where it can't."""
    folder = settings.data_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
        # One that a service has just removed can't be written to either.
        locked = [path.name for path in folder.iterdir() if not os.access(path, os.W_OK) and path.exists()]
    except FileExistsError as error:
        raise wrong_folder(settings, "that is a file") from error
    except OSError as error:
        raise wrong_folder(settings, f"it can't be written to ({error.strerror})") from error
    if locked:
        raise wrong_folder(settings, f"it holds what this user may not write to: {', '.join(sorted(locked)[:3])}")
    return settings


def existing(settings: Settings) -> Settings:
    """The settings of a command that only reads; a folder that is not there holds nothing, and that is said.

    Raises UserError for what is there and can't be read as one.
    """
    try:
        next(settings.data_dir.iterdir(), None)
    except FileNotFoundError:
        remarks.print(
            f"note: {settings.data_dir} does not exist, so there is nothing to read: "
            "name the service's folder with --data-dir or PICKWISE_DATA_DIR",
            markup=False,
            soft_wrap=True,
        )
    except OSError as error:
        raise wrong_folder(settings, f"it can't be read ({error.strerror})") from error
    return settings


def wrong_folder(settings: Settings, why: str) -> UserError:
    """The data folder can't be used: why, and what names another."""
    return UserError(
        f"--data-dir: {settings.data_dir}: {why}; expected the folder of a service, or where this user can make one: "
        "name it with --data-dir or PICKWISE_DATA_DIR"
    )


def say_without_effect(settings: Settings, names: Sequence[str], project: str) -> None:
    """Name the settings that a running service, which does the work, has otherwise."""
    from gateway.in_force import without_effect

    for sentence in without_effect(settings, names, project):
        remarks.print(f"note: {sentence}", markup=False, soft_wrap=True)


def window(start: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    """The bounds of a window. Raises UserError for one that is no time, or that ends before it begins."""
    first, last = instants(start, end)
    return (
        None if first is None else as_datetime(first),
        None if last is None else as_datetime(last),
    )


def instants(start: str | None, end: str | None) -> tuple[int | None, int | None]:
    """The same in Unix nanoseconds."""
    first, last = _instant("--from", start), _instant("--to", end)
    if first is not None and last is not None and last < first:
        raise UserError(f"--to: expected a time after --from ({start}), got {end}")
    return first, last


def alone(context: typer.Context) -> bool:
    """Whether a group was called without one of its commands. Options in front of a command would be lost: refused."""
    if context.invoked_subcommand is None:
        return True
    sources = [context.get_parameter_source(name) for name in context.params]
    if any(source is not None and source.name == "COMMANDLINE" for source in sources):
        raise UserError(f"options belong behind the command: {context.command_path} {context.invoked_subcommand} …")
    return False


def split(by: list[str] | None) -> list[str]:
    return [part.strip() for item in by or [] for part in item.split(",") if part.strip()]


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode() + "\n")


def _instant(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_instant(value)
    except EventError as error:
        raise UserError(f"{name}: {str(error).removeprefix('time: ')}") from error
