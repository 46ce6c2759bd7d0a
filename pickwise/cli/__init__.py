"""The command line. The only place in this package that calls its siblings, and only when a command runs."""

from __future__ import annotations

import sqlite3
import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from pickwise.cli import answers, chains, data, keys, labels, learn, lifecycle, registry, run, weights
from pickwise.cli.options import PlainConsole, UserError, console

app = typer.Typer(
    name="pickwise",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="See which tools your agents pick, which fail, and learn from it.\n\n"
    "Start with `pickwise serve`, point an OTLP exporter at it "
    "(`OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318`), then read `pickwise report`.",
)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=lambda on: on and _print_version(), help="the version")
    ] = False,
) -> None:
    """Options in front of a command."""


def _print_version() -> None:
    console.print(f"pickwise {metadata.version('pickwise')}")
    raise typer.Exit


for module in (run, data, registry, answers, chains, learn, weights, labels, keys, lifecycle):
    module.register(app)


def main() -> None:
    """Entry point: an expected error is one line on stderr and exit code 1, never a traceback."""
    try:
        app()
    except (UserError, OSError) as error:
        _fail(str(error))
    except sqlite3.DatabaseError as error:
        _fail(f"a database in the data folder can't be read ({error}): `pickwise doctor` says which, and the mend")
    except Exception as error:
        if not _is_of_duckdb(error):
            raise
        why = str(error).splitlines()[0]
        _fail(f"a file in the data folder can't be read ({why}): `pickwise doctor` says which, and the mend")


def _is_of_duckdb(error: Exception) -> bool:
    """Without importing it, which takes a while, for those who don't."""
    duckdb = sys.modules.get("duckdb")
    return duckdb is not None and isinstance(error, duckdb.Error)


def _fail(message: str) -> NoReturn:
    PlainConsole(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    sys.exit(1)
